"""The small times between operations, read off a timeline: overhead and message latency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pplab.core.timeline import Timeline


def gaps(work: Timeline, typical: Callable[[list[float]], Any] = np.median) -> tuple[float, float]:
    """(overhead, latency): medians of the gaps after the own and after the awaited operation.

    Each F and B follows two operations: the one before it on its rank and, perhaps, its producer
    on another. Whichever ended later is the one it had to wait for. `typical`: what is made of all
    gaps of a kind; np.mean counts the rare long ones, too.
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
    middle = [float(typical(values)) if values else 0.0 for values in (own, message)]
    return middle[0], middle[1]
