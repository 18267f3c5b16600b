"""Traces as the PyTorch profiler writes them, one file per rank, made from a timeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pplab.core.timeline import Span, Timeline

BASE = 1790857026000000000


def event(name: str, start: float, end: float, cat: str = "user_annotation", **more: Any) -> dict:
    """A complete event; times in seconds. Process and thread as on a CPU."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 4037, "tid": 4037,
        "ts": round(start * 1e6, 3), "dur": round((end - start) * 1e6, 3),
        "args": {"External id": 1}, **more,
    }  # fmt: skip


def noise(start: float) -> list[dict]:
    """What a file is full of besides."""
    return [
        event("aten::addmm", start, start + 1e-5, "cpu_op"),
        event("cudaLaunchKernel", start, start + 1e-6, "cuda_runtime"),
        event("ampere_gemm", start, start + 1e-5, "kernel", pid=0, tid=7),
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": start * 1e6, "cat": "ac2g", "name": "ac2g"},
        {"ph": "M", "name": "process_name", "pid": 4037, "tid": 0, "args": {"name": "python"}},
    ]


def document(events: list[dict], rank: int | None = 0, world: int = 1, **more: Any) -> dict:
    """A whole file."""
    about = {} if rank is None else {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}
    }  # fmt: skip
    return {
        "schemaVersion": 1, "deviceProperties": [], **about, "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE, **more, "traceEvents": events,
    }  # fmt: skip


def as_pplab(span: Span) -> str:
    """F3, B3.1, U: the names our own ranks use."""
    return str(span.op)


def write_ranks(
    folder: Path,
    timeline: Timeline,
    *,
    name: Callable[[Span], str | None] = as_pplab,
    late: Sequence[float] | None = None,
    hosts: Sequence[str] | None = None,
    marks: bool = False,
    about: Callable[[int, int], dict[str, Any]] | None = None,
    after: Callable[[int], list[dict]] | None = None,
) -> list[Path]:
    """One file for every rank of every replica, numbered as DeepSpeed does.

    late: seconds by which the clock of each file is ahead; marks: ranges around the steps;
    after: further events of a rank.
    """
    replicas = timeline.replicas or (0,)
    paths = []
    for stage in range(timeline.stages):
        for replica in replicas:
            rank = stage * len(replicas) + replicas.index(replica)
            ahead = 100.0 + (late[rank] if late else 0.0)
            mine = [s for s in timeline.only(replica=replica) if s.rank == stage]
            events = []
            for span in mine:
                text = name(span)
                if text is not None:
                    events.append(event(text, span.start + ahead, span.end + ahead))
                events += noise(span.start + ahead)
            if marks:
                for step in timeline.steps:
                    window = [s for s in mine if s.step == step]
                    begin = min(s.start for s in window) + ahead
                    end = max(s.end for s in window) + ahead
                    events.insert(0, event(f"ProfilerStep#{step}", begin, end))
            events += after(rank) if after else []
            more: dict[str, Any] = {"pplab": about(stage, replica)} if about else {}
            if hosts:
                more["host_name"] = hosts[rank]
            world = timeline.stages * len(replicas)
            path = folder / f"trace-rank-{rank}.json"
            path.write_text(json.dumps(document(events, rank, world, **more)))
            paths.append(path)
    return paths
