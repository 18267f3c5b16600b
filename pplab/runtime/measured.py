"""From a measured timeline back to costs: what the simulator needs to predict the run.

Means over micro-batches and steps (the first step left out: it also warms up): a step is a sum of
operations, and a median would leave out the slow ones that it has to wait for. Two small costs
matter besides the operations themselves: the time between two operations of a rank that has
nothing to wait for (overhead), and the time from the end of an operation to the start of the one
on another rank that was waiting for it (latency).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pplab.core.costs import Costs
from pplab.core.gaps import gaps
from pplab.core.ops import CODE, WHOLE_STEP
from pplab.core.timeline import Timeline


def measured_costs(timeline: Timeline) -> Costs:
    """Costs per slice of the model, in seconds. Raises ValueError when nothing was recorded."""
    later = (
        timeline.where(timeline.step > timeline.steps[0]) if len(timeline.steps) > 1 else timeline
    )
    work = later.only(kinds="FBWU")
    if not len(work.only(kinds="FB")):
        raise ValueError("the timeline has no F or B to measure (was it run with record=False?)")
    layout = timeline.layout
    table = np.zeros((3, layout.slices))
    lasts = work.end - work.start
    pieces = layout.table()[work.rank, work.chunk]
    for kind in range(3):
        for piece in range(layout.slices):
            mine = (work.kind == kind) & (pieces == piece)
            table[kind, piece] = lasts[mine].mean() if mine.any() else 0.0
    forward, backward, weight = table
    overhead, latency = gaps(work)
    return Costs(
        forward=forward,
        backward=backward + weight,
        weight=weight,
        update=step_ends(work),
        latency=max(0.0, latency),
        overhead=max(0.0, overhead),
        unit=timeline.unit,
    )


def step_ends(work: Timeline) -> NDArray[np.float64]:
    """Mean time by rank from the last F, B or W of any rank to the end of the rank's own U.

    Gradient reduction and the wait for it are inside: the simulator starts U when all ranks are
    done. Shape (ranks,); 0 where no U of the whole step was recorded.
    """
    found: list[list[float]] = [[] for _ in range(work.layout.stages)]
    whole = (work.kind == CODE["U"]) & (work.micro_batch == WHOLE_STEP)
    for step in work.steps:
        mine = work.step == step
        done = work.end[mine & work.is_kind("FBW")].max()
        for row in np.flatnonzero(mine & whole):
            found[work.rank[row]].append(work.end[row] - done)
    return np.array([np.mean(times) if times else 0.0 for times in found])
