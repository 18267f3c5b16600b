"""When the GPU worked on a range of the CPU: the kernels that were launched while it was open.

The CPU only queues the work, so the times of its ranges say little. A kernel belongs to the range
in which it was launched, from whatever thread: autograd launches the backward pass from a thread
of its own, which is why neither Kineto nor Nsight Systems shows a GPU range for it (kineto #1132,
pytorch #144778, NVTX #101). The time of a range is that of its kernels on the stream that worked
most, from the first to the last. Kernels of NCCL wait for other ranks: they count only for ranges
that launched nothing else, which are the sends and receives.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.traces.names import Vocabulary
from pplab.traces.rows import RankTrace

Times = list[tuple[int, int] | None]


class Kernels:
    """Kernels of one process, and when the CPU launched them; nanoseconds.

    Numbers are kept in arrays: a trace of a minute has millions.
    """

    def __init__(self) -> None:
        self._kernels = array("q")  # correlation, start, end, stream, NCCL's or not; and again
        self._launches = array("q")  # correlation, time; and again
        self._streams: dict[Any, int] = {}

    def __bool__(self) -> bool:
        return bool(self._kernels and self._launches)

    def kernel(self, correlation: int, start: int, end: int, stream: Any, name: str) -> None:
        """Take in a kernel; OverflowError when a number is none of 64 bits."""
        number = self._streams.setdefault(stream, len(self._streams))
        _add(self._kernels, (correlation, start, end, number, "nccl" in name or "NCCL" in name))

    def launch(self, correlation: int, at: int) -> None:
        """Take in a call that may have launched kernels."""
        _add(self._launches, (correlation, at))

    def times(self, ranges: list[tuple[int, int]]) -> Times:
        """For each range of the CPU the time of its kernels, None when it launched none."""
        if not self:
            return [None] * len(ranges)
        launched, start, end, stream, nccl = self._joined()
        inside = [
            slice(np.searchsorted(launched, a, "left"), np.searchsorted(launched, b, "right"))
            for a, b in ranges
        ]
        work = np.where(nccl, 0, end - start)
        most = np.zeros(len(self._streams) + 1)
        for part in inside:
            most += np.bincount(stream[part], work[part], len(most))
        main = ~nccl & (stream == int(most.argmax()))
        result: Times = []
        for part in inside:
            for chosen in (main[part], nccl[part]):
                if chosen.any():
                    first, last = start[part][chosen].min(), end[part][chosen].max()
                    result.append((int(first), int(last)))
                    break
            else:
                result.append(None)
        return result

    def _joined(self) -> tuple[NDArray[Any], ...]:
        """(launched, start, end, stream, nccl) of all kernels whose launch was recorded, in the
        order of their launches (a CUDA graph launches many kernels at once)."""
        kernels = np.array(self._kernels, dtype=np.int64).reshape(-1, 5).T
        calls, at = np.array(self._launches, dtype=np.int64).reshape(-1, 2).T
        order = np.argsort(calls, kind="stable")
        calls, at = calls[order], at[order]
        found = np.minimum(np.searchsorted(calls, kernels[0]), len(calls) - 1)
        known = calls[found] == kernels[0]
        launched = at[found[known]]
        order = np.argsort(launched, kind="stable")
        start, end, stream, nccl = (column[known][order] for column in kernels[1:])
        return launched[order], start, end, stream, nccl.astype(bool)


def _add(table: array[int], row: tuple[int, ...]) -> None:
    if max(row) >= 1 << 63 or min(row) < -(1 << 63):
        raise OverflowError("more than 64 bits")
    table.extend(row)


def believe(trace: RankTrace, times: Times, vocabulary: Vocabulary) -> None:
    """Give the ranges of a rank the times of the GPU, and note it when some passes launched no
    kernel although others did. Nothing without any such time."""
    if not any(times):
        return
    missing = 0
    for number, (item, found) in enumerate(zip(trace.ranges, times, strict=True)):
        if found is None:
            missing += vocabulary.computes(item.name)
        else:
            trace.ranges[number] = item._replace(start=found[0], end=found[1])
    if missing:
        trace.notes.append(
            f"{trace.label}: {missing} of {len(times)} ranges have no counterpart on the GPU and "
            "keep the times of the CPU, which only queues the work"
        )
