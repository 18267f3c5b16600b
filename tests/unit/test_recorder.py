"""Spans of a rank: on the CPU's clock, and on a GPU's events (made up here: no GPU is needed)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from pplab.runtime.recorder import SPAN_COLUMNS, CudaRecorder, Recorder, recorder


def test_a_cpu_rank_reads_the_monotonic_clock() -> None:
    record = recorder(True, "cpu")
    before = time.perf_counter_ns()
    start, end = record.now(), record.now()
    record.add("B", 3, 1, start, end)
    assert before <= start <= end <= time.perf_counter_ns()
    row = dict(zip(SPAN_COLUMNS, record.spans()[0].tolist(), strict=True))
    assert row == {
        "step": 0, "kind": 1, "micro_batch": 3, "chunk": 1, "start": start, "end": end,
    }  # fmt: skip


def test_nothing_is_recorded_when_nobody_asks() -> None:
    silent = recorder(False, "cuda")
    silent.add("F", 0, 0, silent.now(), silent.now())
    assert silent.spans().shape == (0, len(SPAN_COLUMNS))


class Clock:
    """A GPU's own: every event comes 10 ms after the one before."""

    seconds = 5.0


class Event:
    """As much of a CUDA event as is used."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timed, self.at = enable_timing, -1.0

    def record(self) -> None:
        Clock.seconds += 0.01
        self.at = Clock.seconds

    def synchronize(self) -> None:
        assert self.at > 0

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds, as torch's."""
        assert self.timed and other.timed
        return (other.at - self.at) * 1e3


def test_a_gpu_rank_turns_its_events_into_clock_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    readings = iter([7_000_000_000, 9_000_000_000, 11_000_000_000])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(readings))
    record: Any = recorder(True, "cuda")
    assert isinstance(record, CudaRecorder)
    for step in (0, 1):
        record.step = step
        start = record.now()
        record.add("F", step, 0, start, record.now())
        assert len(record.spans()) == step  # read when the step is over, not before
        record.end_step()
    # zero was an event at a known reading; the span's marks came 10 and 20 ms after it
    assert record.spans()[:, -2:].tolist() == [
        [7_010_000_000, 7_020_000_000],
        [9_010_000_000, 9_020_000_000],
    ]
    assert record.spans().dtype == np.int64


def test_the_clock_itself_is_called() -> None:
    """A function of ours around it would be fetched from memory between two operations."""
    assert Recorder().now is time.perf_counter_ns
