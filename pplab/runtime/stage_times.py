"""What each slice of the model took in a run, laid beside what was predicted of the cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.costs import Costs
from pplab.core.partition import Partition
from pplab.core.words import duration

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StageTimes:
    """Measured seconds per micro-batch by slice (a stage, or a chunk of one).

    forward, backward: shape (slices,), means over micro-batches, replicas and all steps but the
    first; bounds: first layer of each slice; partition: what was predicted, or None; step: seconds
    of the typical step; costs: everything measured, for the simulator.
    """

    forward: Floats
    backward: Floats
    bounds: tuple[int, ...]
    partition: Partition | None
    step: float
    costs: Costs

    @property
    def total(self) -> Floats:
        """F + B of each slice; shape (slices,)."""
        return self.forward + self.backward

    @property
    def comparable(self) -> bool:
        """Whether something was predicted, in seconds."""
        return self.partition is not None and self.partition.problem.profile.unit == "s"

    @property
    def errors(self) -> Floats:
        """Predicted F + B over measured, minus 1; shape (slices,); nan where nothing was said."""
        if not self.comparable:
            return np.full(len(self.forward), np.nan)
        assert self.partition is not None
        return self.partition.loads / self.total - 1

    @property
    def predicted_step(self) -> float | None:
        """Step time foretold by the partition, to which the measured costs that it leaves out
        (time between operations, messages, the optimizer) are added; None: nothing was said."""
        if not self.comparable:
            return None
        assert self.partition is not None
        return step_of(self.partition, self.costs)

    def rows(self) -> list[dict[str, Any]]:
        """One row a slice: its rank and layers, and seconds predicted and measured."""
        rows = []
        for piece, (first, last) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            row: dict[str, Any] = {"slice": piece, "layers": (first, last - 1)}
            if self.comparable:
                assert self.partition is not None
                f, b = float(self.partition.forward[piece]), float(self.partition.backward[piece])
                row |= {"predicted_forward": f, "predicted_backward": b, "predicted": f + b}
            f, b = float(self.forward[piece]), float(self.backward[piece])
            rows.append(row | {"forward": f, "backward": b, "measured": f + b})
        return rows

    def __str__(self) -> str:
        """A table: predicted and measured times in ms, then the step."""
        lines = ["slice  layers   measured F + B (ms)"]
        if self.comparable:
            lines = [
                "slice  layers   predicted F + B (ms)         measured F + B (ms)          error"
            ]
        for row, error in zip(self.rows(), self.errors, strict=True):
            span = "{}-{}".format(*row["layers"])
            text = f"{row['slice']:5}  {span:8}"
            if self.comparable:
                names = ("predicted_forward", "predicted_backward", "predicted")
                text += _sum(*(row[name] for name in names)) + "  "
            text += _sum(row["forward"], row["backward"], row["measured"])
            lines.append(text + (f"  {error:+.1%}" if self.comparable else ""))
        step = f"step: measured {duration(self.step, 's')}"
        if (predicted := self.predicted_step) is not None:
            off = predicted / self.step - 1
            step += f", predicted {duration(predicted, 's')} ({off:+.1%}; with the measured time "
            step += "between operations, of messages and of the optimizer)"
        elif self.partition is not None:
            step += "; the cut's prediction is in units, not seconds"
        return "\n".join([*lines, step])

    def __repr__(self) -> str:
        return "\n".join(f"[measured] {line}" for line in str(self).splitlines())


def step_of(partition: Partition, costs: Costs) -> float:
    """Step time of a cut whose slices take what the partition says and everything else costs what
    was measured; in the unit of both (seconds)."""
    whole = Costs(
        forward=partition.forward,
        backward=partition.backward,
        weight=partition.backward * weight_share(costs),
        update=costs.update,
        latency=costs.latency,
        overhead=costs.overhead,
        unit=costs.unit,
    )
    return partition.problem.schedule.simulate(whole).step_time


def weight_share(costs: Costs) -> float:
    """How much of the backward passes was W, over all slices; half where none was split off."""
    if costs.weight is None:
        return 0.5
    return float(np.sum(costs.weight) / np.sum(costs.backward))


def _sum(forward: float, backward: float, total: float) -> str:
    return f"{forward * 1e3:7.2f} + {backward * 1e3:7.2f} = {total * 1e3:7.2f}"
