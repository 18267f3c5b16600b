"""Ranges take the times of the kernels that were launched in them, from whatever thread."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from pplab.core.schedules import one_f_one_b
from pplab.core.timeline import Timeline
from pplab.traces import load
from pplab.traces.gpu import Kernels
from tests.unit.kineto_files import document, event
from tests.unit.nsys_files import Kernel, Nvtx, build
from tests.unit.test_traces_kineto import same, simulated

QUEUED = 0.2  # of the time of a pass: the CPU has queued it by then


def launches(timeline: Timeline, rank: int):
    """(name, begin and end on the CPU, [(launched, start, end)] on the GPU, launching thread).

    Autograd launches backward passes from a thread of its own.
    """
    for span in timeline:
        if span.rank != rank:
            continue
        start, long = span.start, span.end - span.start
        begin = start - 2e-4
        kernels = [
            (begin + QUEUED * long * (0.2 + 0.4 * i), start + long * i / 2,
             start + long * (i + 1) / 2)
            for i in range(2)
        ]  # fmt: skip
        yield str(span.op), begin, begin + QUEUED * long, kernels, 2 if span.op.kind == "B" else 1


def kineto(timeline: Timeline, rank: int, *, annotate: bool) -> list[dict]:
    """What Kineto writes; as it does, it shows no backward pass as a range of the GPU."""
    events, number = [], rank * 1000
    for name, begin, end, kernels, thread in launches(timeline, rank):
        events.append(event(name, 100 + begin, 100 + end))
        if annotate and thread == 1:
            events.append(event(name, 100 + kernels[0][1], 100 + kernels[-1][2],
                                "gpu_user_annotation", pid=0, tid=7))  # fmt: skip
        for at, start, stop in kernels:
            number += 1
            args = {"correlation": number}
            events.append(event("cudaLaunchKernel", 100 + at, 100 + at + 1e-6, "cuda_runtime",
                                tid=thread, args=args))  # fmt: skip
            events.append(event("ampere_gemm", 100 + start, 100 + stop, "kernel", pid=0, tid=7,
                                args=args))  # fmt: skip
    return events


@pytest.mark.parametrize("annotate", [True, False])
def test_backward_passes_have_kernels_of_autograds_thread(tmp_path, annotate):
    timeline = simulated(one_f_one_b(2, 4))
    for rank in range(2):
        about = document(kineto(timeline, rank, annotate=annotate), rank, 2)
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(about))
    found = load(tmp_path)
    assert found.notes == ()
    same(found.timeline, timeline)


@pytest.mark.parametrize("change", [
    "",
    # graphs of kernels as a whole; exports that do not say whose kernels they are
    "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL",
])  # fmt: skip
def test_nsight_knows_them_by_process_too(tmp_path, change):
    timeline = simulated(one_f_one_b(2, 4))
    ranges, kernels = [], []
    for rank in range(2):
        for name, begin, end, work, thread in launches(timeline, rank):
            ns = [round(t * 1e9) + 10**9 for t in (begin, end)]
            ranges.append(Nvtx(name, *ns, 200 + rank, 300))
            for times in work:
                at, start, stop = (round(t * 1e9) + 10**9 for t in times)
                kernels.append(Kernel(at, start, stop, pid=200 + rank, tid=299 + thread))
    path = build(tmp_path / "report.sqlite", ranges, kernels)
    if change:
        with closing(sqlite3.connect(path)) as base:
            base.execute(change)
            base.commit()
    found = load(path)
    assert found.notes == ()
    same(found.timeline, timeline, within=1e-8)


def test_a_message_has_the_time_of_its_kernel_and_a_pass_that_launched_nothing_is_told(tmp_path):
    def kernel(number: int, name: str, start: float, end: float, stream: int) -> list[dict]:
        args = {"correlation": number}
        return [
            event("cudaLaunchKernel", number, number + 0.1, "cuda_runtime", args=args),
            event(name, start, end, "kernel", pid=0, tid=stream, args=args),
        ]

    events = [
        event("PP:1RECV_F0", 1, 1.5), *kernel(1, "ncclDevKernel_SendRecv(...)", 5, 9, 20),
        event("PP:1F0", 2, 2.5), *kernel(2, "gemm", 9, 12, 7), event("PP:1B0", 3, 3.5),
    ]  # fmt: skip
    (tmp_path / "rank1.json").write_text(json.dumps(document(events, 1, 2)))
    found = load(tmp_path / "rank1.json")
    spans = {str(s.op): (s.start, s.end) for s in found.timeline}
    assert spans == {"B0": (0, 0.5), "R0": (2, 6), "F0": (6, 9)}
    assert any("1 of 3 ranges have no counterpart on the GPU" in note for note in found.notes)


def test_kernels_without_a_launch_and_absurd_numbers_are_left_out():
    kernels = Kernels()
    assert kernels.times([(0, 5)]) == [None]
    kernels.kernel(1, 10, 20, "main", "gemm")
    kernels.kernel(2, 20, 30, "side", "gemm")
    kernels.kernel(9, 0, 99, "main", "launched before recording began")
    kernels.launch(1, 2)
    kernels.launch(2, 3)
    with pytest.raises(OverflowError):
        kernels.kernel(3, 1, 2**70, "main", "gemm")
    with pytest.raises(OverflowError):
        kernels.launch(3, 2**70)
    assert kernels.times([(0, 5), (5, 9)]) == [(10, 20), None]
