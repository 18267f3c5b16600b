"""From a measured timeline back to costs: what the simulator needs to predict the run.

Medians over micro-batches and steps (the first step left out: it also warms up). Two small costs
matter besides the operations themselves: the time between two operations of a rank that has
nothing to wait for (overhead), and the time from the end of an operation to the start of the one
on another rank that was waiting for it (latency).
"""

from __future__ import annotations

import numpy as np

from pplab.core.costs import Costs
from pplab.core.ops import CODE
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
            table[kind, piece] = np.median(lasts[mine]) if mine.any() else 0.0
    forward, backward, weight = table
    updates = [
        np.median(lasts[(work.kind == CODE["U"]) & (work.rank == rank)] if rank >= 0 else 0)
        for rank in range(layout.stages)
    ]
    overhead, latency = gaps(work)
    return Costs(
        forward=forward,
        backward=backward + weight,
        weight=weight,
        update=np.nan_to_num(np.array(updates)),
        latency=max(0.0, latency),
        overhead=max(0.0, overhead),
        unit=timeline.unit,
    )


def gaps(work: Timeline) -> tuple[float, float]:
    """(overhead, latency): medians of the gaps after the own and after the awaited operation.

    Each F and B follows two operations: the one before it on its rank and, perhaps, its producer
    on another. Whichever ended later is the one it had to wait for.
    """
    layout = work.layout
    end_of = {
        (step, replica, rank, op): end
        for step, replica, rank, op, _, end in work
        if op.kind in "FB"
    }
    own: list[float] = []
    message: list[float] = []
    before: dict[tuple[int, int, int], float] = {}
    for step, replica, rank, op, start, end in work:
        previous = before.get((step, replica, rank))
        before[step, replica, rank] = end
        if op.kind not in "FB" or previous is None:
            continue
        piece = layout.slice_of(rank, op.chunk) + (-1 if op.kind == "F" else 1)
        produced = None
        if 0 <= piece < layout.slices:
            other, chunk = layout.place_of(piece)
            if other != rank:
                produced = end_of.get((step, replica, other, op._replace(chunk=chunk)))
        if produced is None or produced < previous:
            own.append(start - previous)
        else:
            message.append(start - produced)
    middle = [float(np.median(values)) if values else 0.0 for values in (own, message)]
    return middle[0], middle[1]
