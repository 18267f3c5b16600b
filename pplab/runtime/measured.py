"""From a measured timeline back to costs: what the simulator needs to predict the run.

Means over micro-batches and steps (the first step left out: it also warms up): a step is a sum of
operations, and a median would leave out the slow ones that it has to wait for. Two small costs
matter besides the operations themselves: the time between two operations of a rank that has
nothing to wait for (overhead), and the time from the end of an operation to the start of the one
on another rank that was waiting for it (latency).
"""

from __future__ import annotations

import numpy as np

from pplab.core.costs import Costs, Floats
from pplab.core.gaps import gaps
from pplab.core.ops import CODE, WHOLE_STEP
from pplab.core.timeline import Timeline


def measured_costs(timeline: Timeline) -> Costs:
    """Costs per slice of the model, in seconds. Raises ValueError when nothing was recorded.

    A backward pass that was split counts as a whole one, B + W, with W's part in `weight`. Where
    none was, `weight` is left open: the simulator takes half.
    """
    later = (
        timeline.where(timeline.step > timeline.steps[0]) if len(timeline.steps) > 1 else timeline
    )
    work = later.only(kinds="FBWU")
    if not len(work.only(kinds="FB")):
        raise ValueError("the timeline has no F or B to measure (was it run with record=False?)")
    forward, forwards = _totals(work, "F")
    backward, backwards = _totals(work, "B")
    weight, weights = _totals(work, "W")
    overhead, latency = gaps(work)
    return Costs(
        forward=forward / np.maximum(forwards, 1),
        backward=(backward + weight) / np.maximum(backwards, 1),
        weight=weight / np.maximum(weights, 1) if weights.any() else None,
        update=step_ends(work) if WHOLE_STEP in work.micro_batch else update_times(work),
        latency=max(0.0, latency),
        overhead=max(0.0, overhead),
        unit=timeline.unit,
    )


def _totals(work: Timeline, kind: str) -> tuple[Floats, Floats]:
    """Time spent in operations of a kind, and how many there were, by slice; (slices,) twice."""
    layout, mine = work.layout, work.is_kind(kind)
    pieces = layout.table()[work.rank, work.chunk][mine]
    lasts = (work.end - work.start)[mine]
    total = np.bincount(pieces, weights=lasts, minlength=layout.slices)
    count = np.bincount(pieces, minlength=layout.slices)
    return total.astype(np.float64), count.astype(np.float64)


def update_times(work: Timeline) -> Floats:
    """Mean time of an optimizer step by rank, of schedules that update within a step; (ranks,)."""
    mine = work.is_kind("U")
    ranks, lasts = work.rank[mine], (work.end - work.start)[mine]
    total = np.bincount(ranks, weights=lasts, minlength=work.layout.stages)
    return total / np.maximum(np.bincount(ranks, minlength=work.layout.stages), 1)


def step_ends(work: Timeline) -> Floats:
    """Mean time by rank from the last F, B or W of any rank to the end of the rank's own U.

    Gradient reduction and the wait for it are inside: the simulator starts U when all ranks are
    done. Shape (ranks,); 0 where no U of the whole step was recorded, and where a rank that has
    nobody to wait for (ZeRO-0, no replicas, no clipping) ends its U before another its last B.
    """
    found: list[list[float]] = [[] for _ in range(work.layout.stages)]
    whole = (work.kind == CODE["U"]) & (work.micro_batch == WHOLE_STEP)
    for step in work.steps:
        mine = work.step == step
        done = work.end[mine & work.is_kind("FBW")].max()
        for row in np.flatnonzero(mine & whole):
            found[work.rank[row]].append(max(0.0, work.end[row] - done))
    return np.array([np.mean(times) if times else 0.0 for times in found])
