"""What every rank did, from when to when: one span per operation.

On a CPU a span is two readings of the monotonic clock, which all processes of a machine share, so
the ranks of one machine need no alignment. On a GPU operations are queued and finish later: a span
there is a pair of CUDA events, turned into clock readings once the step is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pplab.core.ops import CODE

#: Columns of a span as it travels to the notebook; times in nanoseconds of the monotonic clock.
SPAN_COLUMNS = ("step", "kind", "micro_batch", "chunk", "start", "end")


class Recorder:
    """Collects spans of one rank on a CPU."""

    def __init__(self) -> None:
        self.step = 0
        self._rows: list[tuple[int, int, int, int, Any, Any]] = []

    #: A mark for the present moment. The clock itself: a function of ours around it would be code
    #: that a rank has to fetch from memory after it slept.
    now: Callable[[], Any] = staticmethod(time.perf_counter_ns)

    def add(self, kind: str, micro_batch: int, chunk: int, start: Any, end: Any) -> None:
        """Note that the rank did something between two marks."""
        self._rows.append((self.step, CODE[kind], micro_batch, chunk, start, end))

    def end_step(self) -> None:
        """Called when all ranks have finished a step."""

    def spans(self) -> NDArray[np.int64]:
        """Everything recorded; shape (n, 6), columns as in SPAN_COLUMNS."""
        return np.array(self._rows, dtype=np.int64).reshape(-1, len(SPAN_COLUMNS))


class Silent(Recorder):
    """Records nothing: to measure what recording costs."""

    now = staticmethod(lambda: 0)

    def add(self, kind: str, micro_batch: int, chunk: int, start: Any, end: Any) -> None:
        return None


def cuda_event() -> Any:
    """A mark on the stream that runs the operations."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class CudaRecorder(Recorder):
    """Spans of a rank on a GPU, timed by CUDA events on the stream that runs the operations.

    The events of a step are read once it is over, against one event whose clock reading is known
    because the GPU was idle when it was recorded (error: the launch time of an event, about 10 us).
    """

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[tuple[int, int, int, int, Any, Any]] = []
        self._set_zero()

    def _set_zero(self) -> None:
        torch.cuda.synchronize()
        self._zero = self.now()
        self._zero.synchronize()
        self._zero_ns = time.perf_counter_ns()

    now = staticmethod(cuda_event)

    def add(self, kind: str, micro_batch: int, chunk: int, start: Any, end: Any) -> None:
        self._pending.append((self.step, CODE[kind], micro_batch, chunk, start, end))

    def end_step(self) -> None:
        torch.cuda.synchronize()
        for step, kind, micro_batch, chunk, start, end in self._pending:
            first, last = (
                self._zero_ns + round(self._zero.elapsed_time(mark) * 1e6) for mark in (start, end)
            )
            self._rows.append((step, kind, micro_batch, chunk, first, last))
        self._pending.clear()
        self._set_zero()  # float32 milliseconds: keep the distance to zero short


def recorder(record: bool, device: str) -> Recorder:
    """The recorder for a device ("cpu" or "cuda")."""
    if not record:
        return Silent()
    return CudaRecorder() if device == "cuda" else Recorder()
