"""One time scale for ranks on several machines.

Each machine counts its own nanoseconds. Rank 0 and another rank throw a small message back and
forth: the reply was written at some moment between sending and receiving, so half the shortest
round trip is the most by which the middle can be wrong (Cristian 1989). Done before and after the
training, so that clocks that drift apart are followed by a line through both.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

ROUNDS = 40


class Reading(NamedTuple):
    """This rank's clock against rank 0's: when (own nanoseconds), how far ahead, and the error."""

    at: int
    ahead: int
    error: int


def compare_clocks(place: dict[str, Any]) -> Reading:
    """This rank's clock minus rank 0's, from the quickest of `ROUNDS` round trips.

    Every rank calls it; they take turns. `place`: {"rank", "world", "backend"}. NCCL sends no
    tensors of the CPU, so there a gloo group is made for it.
    """
    rank, world = place["rank"], place["world"]
    gloo = place["backend"] == "gloo"
    group = dist.group.WORLD if gloo else dist.new_group(backend="gloo")
    mine = Reading(time.perf_counter_ns(), 0, 0)
    for other in range(1, world):
        dist.barrier(group)  # an idle network for each in turn
        if rank == 0:
            for _ in range(ROUNDS):
                _throw(group, other)
        elif rank == other:
            mine = min((_answered(group) for _ in range(ROUNDS)), key=lambda found: found.error)
    return mine


def _throw(group: Any, other: int) -> None:
    """Rank 0: answer a question with the present moment."""
    box = torch.zeros(1, dtype=torch.int64)
    dist.recv(box, other, group=group)
    box[0] = time.perf_counter_ns()
    dist.send(box, other, group=group)


def _answered(group: Any) -> Reading:
    """Another rank: ask, and see between which two own moments the answer was written."""
    box = torch.zeros(1, dtype=torch.int64)
    before = time.perf_counter_ns()
    dist.send(box, 0, group=group)
    dist.recv(box, 0, group=group)
    after = time.perf_counter_ns()
    return Reading(after, (before + after) // 2 - int(box[0]), (after - before) // 2)


def aligned(spans: NDArray[np.int64], times: list[int], readings: list[Reading]) -> Any:
    """Spans on rank 0's clock. `times`: the columns that are moments; (n, columns) -> the same.

    Between the two readings the difference is taken to change evenly.
    """
    first, last = readings
    spans = spans.copy()
    for column in times:
        at = spans[:, column]
        part = np.clip((at - first.at) / max(1, last.at - first.at), 0.0, 1.0)
        spans[:, column] = at - first.ahead - np.rint(part * (last.ahead - first.ahead)).astype(int)
    return spans
