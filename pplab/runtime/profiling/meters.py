"""What holds the watch: torch.profiler's ranges on a CPU, CUDA events on a GPU.

A meter is open for a block of repeats. ``range(name)`` goes around one layer's pass, and
``close()`` gives, for each repeat, the seconds of every range, and how many operations it saw in
each (1 where none can be seen).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

Ranges = list[dict[str, float]]


class ProfilerMeter:
    """``record_function`` ranges under ``torch.profiler`` (CPU)."""

    mark = "pplab "

    def __init__(self) -> None:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self.profile.__enter__()

    def range(self, name: str) -> Any:
        """A context around one pass of one layer."""
        return torch.profiler.record_function(self.mark + name)

    def close(self) -> tuple[Ranges, dict[str, int]]:
        """Seconds by range, a dictionary a repeat, and the operations seen in each range."""
        self.profile.__exit__(None, None, None)
        events = self.profile.events()
        starts = np.sort([event.time_range.start for event in events])
        repeats: Ranges = []
        counts: dict[str, int] = {}
        mine = [event for event in events if event.name.startswith(self.mark)]
        for event in sorted(mine, key=lambda e: e.time_range.start):
            name = event.name.removeprefix(self.mark)
            if not repeats or name in repeats[-1]:
                repeats.append({})
            repeats[-1][name] = event.time_range.elapsed_us() / 1e6
            span = (event.time_range.start, event.time_range.end)
            counts[name] = int(np.diff(np.searchsorted(starts, span))[0])
        return repeats, counts


class CudaMeter:
    """A pair of CUDA events a range, on the stream the layers run on."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, Any, Any]] = []

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A context around one pass of one layer."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        yield
        last.record()
        self.marks.append((name, first, last))

    def close(self) -> tuple[Ranges, dict[str, int]]:
        """Seconds by range, a dictionary a repeat, and 1 for each range."""
        torch.cuda.synchronize()
        repeats: Ranges = []
        for name, first, last in self.marks:
            if not repeats or name in repeats[-1]:
                repeats.append({})
            repeats[-1][name] = first.elapsed_time(last) / 1e3
        return repeats, {name: 1 for repeat in repeats for name in repeat}


def clock_for(device: str) -> Callable[[], float]:
    """Seconds; on a GPU when everything queued so far is done."""

    def gpu() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return gpu if device == "cuda" else time.perf_counter


def meter_for(device: str) -> ProfilerMeter | CudaMeter:
    """A meter, open."""
    return CudaMeter() if device == "cuda" else ProfilerMeter()
