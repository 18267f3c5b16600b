"""What a sweep should find, before it has found it: points simulated from what one run cost.

Costs are measured on one run, or on two when the size of a micro-batch changes along the sweep:
what an operation takes is then drawn as a straight line through the two, a part that every
micro-batch pays and a part that every sample pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pplab.core.costs import Costs
from pplab.core.gaps import gaps
from pplab.core.ops import WHOLE_STEP
from pplab.core.schedule import Schedule, ScheduleMaker
from pplab.runtime.measured import measured_costs, update_times
from pplab.runtime.record import Run
from pplab.runtime.sweep.points import Point

#: Most points of a predicted curve, and most operations in one of its simulations.
POINTS, OPERATIONS = 48, 400_000


@dataclass(frozen=True, eq=False)  # by identity: costs hold arrays
class Reference:
    """What is known from one run.

    costs: seconds; their `update` holds the wait for all ranks too. update: seconds of an optimizer
    step of all ranks together, without it; None when only costs are known. activation: bytes by
    rank that one micro-batch keeps for its backward pass, all chunks; () when not counted.
    """

    micro_batches: int
    micro_batch_size: int
    costs: Costs
    activation: tuple[float, ...] = ()
    update: float | None = None


@dataclass(frozen=True)
class Predictor:
    """Predicts points of one schedule. `references`: one, or two of different micro-batch sizes."""

    maker: ScheduleMaker
    stages: int
    replicas: int
    references: tuple[Reference, ...]

    def point(self, micro_batches: int, micro_batch_size: int) -> Point | None:
        """The simulated point; None when the schedule cannot run with so many micro-batches."""
        plan = runnable(self.maker, self.stages, micro_batches)
        if plan is None:
            return None
        one = at_size(self.references, micro_batch_size)
        timeline = plan.simulate(one.costs)
        held = timeline.measures.peak_in_flight() / plan.chunks
        bubble, step = timeline.bubble, timeline.step_time
        if one.update is not None and step > 0:  # a rank that waits for the others is not working
            waits = max(0.0, float(one.costs.updates(self.stages).sum()) - one.update)
            bubble += waits / (step * self.stages)
        return Point(
            micro_batches=micro_batches,
            micro_batch_size=micro_batch_size,
            replicas=self.replicas,
            step_time=step,
            bubble=bubble,
            in_flight=tuple(held.tolist()),
            memory=tuple((held * np.array(one.activation)).tolist()) if one.activation else (),
        )

    def throughput(self, micro_batches: int, micro_batch_size: int) -> float | None:
        """Samples per second; None when it cannot run."""
        if 2 * micro_batches * self.stages > OPERATIONS:
            return None
        found = self.point(micro_batches, micro_batch_size)
        return found.throughput if found else None


def runnable(maker: ScheduleMaker, stages: int, micro_batches: int) -> Schedule | None:
    """The schedule, or None when it does not exist for these numbers."""
    try:
        plan = maker(stages=stages, micro_batches=micro_batches)
    except ValueError:
        return None
    return None if plan.problems else plan


def reference_of(run: Run) -> Reference:
    """What a run tells about others like it.

    Costs are those of the typical step, whose time is the run's point of the sweep. The gaps
    between operations are means, not medians as in ``Run.costs``: a long step adds up the rare long
    ones as well (measured: the curve of the small GPT is 5 points closer).
    """
    timeline = run.timeline.typical
    overhead, latency = (max(0.0, gap) for gap in gaps(timeline.only(kinds="FBWU"), np.mean))
    counted = [rank.get("activation_bytes") for rank in run.memory]
    known = all(value is not None for value in counted)
    return Reference(
        run.job.micro_batches,
        run.job.micro_batch_size,
        replace(measured_costs(timeline), overhead=overhead, latency=latency),
        by_stage([float(value) for value in counted if value], run.job.stages) if known else (),
        float(update_times(timeline.where(timeline.micro_batch == WHOLE_STEP)).sum()),
    )


def by_stage(values: Sequence[float], stages: int) -> tuple[float, ...]:
    """The largest of each stage's ranks; ranks of a stage are numbered one after the other."""
    if not values or len(values) % stages:
        return ()
    return tuple(np.array(values).reshape(stages, -1).max(axis=1).tolist())


def at_size(references: Sequence[Reference], size: int) -> Reference:
    """What a run with micro-batches of `size` samples should cost.

    Of one reference its own costs whatever the size, and its activations in proportion; of two a
    straight line through both, never below 0.
    """
    one = references[0]
    if len(references) == 1:
        scaled = tuple(value * size / one.micro_batch_size for value in one.activation)
        return replace(one, micro_batch_size=size, activation=scaled)
    two = references[1]
    share = (size - one.micro_batch_size) / (two.micro_batch_size - one.micro_batch_size)
    return Reference(
        one.micro_batches,
        size,
        _between(one.costs, two.costs, share),
        tuple(
            max(0.0, a + share * (b - a))
            for a, b in zip(one.activation, two.activation, strict=False)
        ),
        None
        if one.update is None or two.update is None
        else max(0.0, one.update + share * (two.update - one.update)),
    )


def _between(one: Costs, two: Costs, share: float) -> Costs:
    mixed: dict[str, Any] = {}
    for field in fields(Costs):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if field.name in ("unit", "bandwidth") or a is None or b is None:
            mixed[field.name] = a
            continue
        a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        value = np.maximum(0.0, a + share * (b - a))
        mixed[field.name] = value if value.ndim else float(value)
    if mixed["weight"] is not None:
        mixed["weight"] = np.minimum(mixed["weight"], mixed["backward"])
    return Costs(**mixed)


def curve(predictor: Predictor, sizes: dict[int, int]) -> tuple[Point, ...]:
    """Predicted points, ascending; `sizes`: micro-batch size by number of micro-batches. Those
    that cannot run are left out."""
    found = (predictor.point(m, size) for m, size in sorted(sizes.items()))
    return tuple(point for point in found if point is not None)


def every(least: int, most: int, always: Sequence[int] = ()) -> list[int]:
    """Numbers of micro-batches to draw a curve through: all from `least` to `most`, or so many of
    them, evenly spread on a log scale; `always` are kept."""
    if most - least < POINTS:
        chosen = range(least, most + 1)
    else:
        chosen = np.unique(np.geomspace(least, most, POINTS).round().astype(int)).tolist()
    return sorted({*chosen, *always})
