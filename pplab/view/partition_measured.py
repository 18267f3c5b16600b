"""Measured times of the slices of a cut, from a run or as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from pplab.core.costs import Costs
from pplab.core.partition import Partition

if TYPE_CHECKING:
    from pplab.runtime.record import Run

Measured = Union[Sequence[float], Costs, "Run"]


def measured_times(name: str, cut: Partition, found: Any) -> tuple[float, ...]:
    """Forward + backward of each slice for one micro-batch, in the profile's unit.

    found: the times themselves, a run with this cut, or its ``costs``. Raises ValueError when they
    are those of another cut or in another unit.
    """
    slices, unit = cut.problem.slices, cut.problem.profile.unit
    if hasattr(found, "costs"):  # a run
        if tuple(found.bounds) != cut.bounds:
            text = f"the run for {name} was cut at {list(found.bounds)}, not {list(cut.bounds)}"
            raise ValueError(f"{text}: run it with pplab.run(..., partition=...)")
        found = found.costs
    if isinstance(found, Costs):
        if found.unit != unit:
            text = f"the times measured for {name} are in {found.unit!r}, the profile's in {unit!r}"
            raise ValueError(f"{text}: compare with a profile in seconds (pplab.profile)")
        batches = cut.problem.schedule.micro_batches
        found = found.table(slices, batches)[:2].mean(axis=2).sum(axis=0).tolist()
    times = tuple(map(float, found))
    if len(times) != slices:
        text = f"{name} has {slices} slices and {len(times)} measured times"
        raise ValueError(f"{text}: give the time of each, forward and backward of one micro-batch")
    if not all(np.isfinite(value) and value >= 0 for value in times):
        raise ValueError(f"measured times of {name} must be finite and not negative: {list(times)}")
    return times
