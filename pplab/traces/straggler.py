"""Multi-rank pipeline traces in the layout of ByteDance's straggler study.

The data set of "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv
2505.05713; github.com/ByteDance-Seed/StragglerAnalysis) holds Chrome traces of Megatron jobs:
one process a data-parallel replica, one thread a pipeline rank and stream ("PP rank 1, TP rank 0,
pp-comm"), complete events named forward-compute, forward-send, ..., optimizer, with the step, the
model chunk, the micro-batch and a sequence number in their `args`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pplab.core.layout import Layout
from pplab.core.ops import CODE, WHOLE_STEP
from pplab.core.timeline import Timeline
from pplab.traces.files import TraceError, read_json

#: Name of an event -> kind of a span in a timeline.
KINDS = {
    "forward-compute": "F",
    "backward-compute": "B",
    "forward-send": "S",
    "backward-send": "S",
    "forward-recv": "R",
    "backward-recv": "R",
    "params-all-gather": "G",
    "layernorm-grads-all-reduce": "G",
    "embedding-grads-all-reduce": "G",
    "grads-reduce-scatter": "G",
    "optimizer-clip-main-grad": "G",
    "optimizer": "U",
}
#: Events without a part in a timeline: garbage collection, recorded with no duration.
LEFT_OUT = {"gc"}
_THREAD = re.compile(r"PP rank (\d+)")


@dataclass(frozen=True)
class Event:
    """One event: its name, where it ran, the chunk, its place among those of its name (and step
    and rank), and its start and end in seconds. `micro_batch` is -1 for what has none."""

    name: str
    step: int
    replica: int
    rank: int
    chunk: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class StragglerTrace:
    """The events of a file in the order of time, and the numbers of ranks and chunks."""

    events: tuple[Event, ...]
    stages: int
    chunks: int
    name: str

    @property
    def timeline(self) -> Timeline:
        """The trace as a timeline: collectives and clipping as G, the optimizer as U."""
        rows = self.events
        columns: dict[str, Any] = {
            "step": [e.step for e in rows],
            "replica": [e.replica for e in rows],
            "rank": [e.rank for e in rows],
            "kind": [CODE[KINDS[e.name]] for e in rows],
            "micro_batch": [e.micro_batch for e in rows],
            "chunk": [e.chunk for e in rows],
            "start": [e.start for e in rows],
            "end": [e.end for e in rows],
        }
        source = f"measured: {self.name}, imported"
        layout = Layout(self.stages, self.chunks)
        return Timeline.of(columns, layout, source=source, schedule="", unit="s")


def is_straggler(trace: Any) -> bool:
    """Whether a JSON value looks like such a trace: threads of "PP rank ..." with computations."""
    if not isinstance(trace, list) or not trace or not all(isinstance(e, dict) for e in trace):
        return False
    names = {e.get("name") for e in trace if e.get("ph") == "X"}
    return {"forward-compute", "backward-compute"} <= names


def read_straggler(path: str | Path) -> Timeline:
    """The timeline of a trace of the straggler study; gzipped or not.

    Raises TraceError when the file is damaged or something else, OSError as ``open`` does.
    """
    return read_events(path).timeline


def read_events(path: str | Path) -> StragglerTrace:
    """The events of such a file, with their own names; raises what ``read_straggler`` raises."""
    trace = read_json(path)
    if not is_straggler(trace):
        raise TraceError(
            f"{path} is no trace of the straggler study: it has no forward-compute and "
            "backward-compute events in threads of pipeline ranks"
        )
    return events_of(trace, Path(path).name.split(".")[0])


def events_of(trace: list[dict[str, Any]], name: str) -> StragglerTrace:
    """The events of a trace that was read already."""
    ranks = _ranks(trace)
    found = []
    for event in trace:
        kind = event.get("name")
        if event.get("ph") != "X" or kind in LEFT_OUT:
            continue
        if kind not in KINDS:
            raise TraceError(f"{name}: {kind!r} is not an event of the straggler study")
        try:
            args, place = event["args"], (event["pid"], event["tid"])
            start, lasts = float(event["ts"]) / 1e6, float(event["dur"]) / 1e6
            if place not in ranks or not (np.isfinite(start) and lasts >= 0):
                raise ValueError(f"in thread {place}")
            chunk, sequence = max(0, int(args["model_chunk"])), int(args["seq_id"])
            m = int(args["mb_id"]) if KINDS[kind] in "FB" else WHOLE_STEP
            if KINDS[kind] in "SR":
                m = sequence  # becomes the micro-batch below
            found.append(
                Event(
                    kind,
                    int(args["step"]),
                    int(event["pid"]),
                    ranks[place],
                    chunk,
                    m,
                    start,
                    start + lasts,
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(
                f"{name}: the event {kind} lacks what it should have: {type(error).__name__} "
                f"{error}"
            ) from None
    stages = max(e.rank for e in found) + 1
    chunks = max(e.chunk for e in found) + 1
    found = _numbered(found, stages, chunks)
    first = min(e.start for e in found)
    shifted = [
        Event(e.name, e.step, e.replica, e.rank, e.chunk, e.micro_batch, e.start - first,
              e.end - first)
        for e in found
    ]  # fmt: skip
    shifted.sort(key=lambda e: (e.step, e.replica, e.rank, e.start, e.end))
    return StragglerTrace(tuple(shifted), stages, chunks, name)


def _ranks(trace: list[dict[str, Any]]) -> dict[tuple[Any, Any], int]:
    """Pipeline rank by (process, thread), from the names of the threads."""
    ranks = {}
    for event in trace:
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            match = _THREAD.match(str(event.get("args", {}).get("name", "")))
            if match:
                ranks[event.get("pid"), event.get("tid")] = int(match[1])
    return ranks


def _numbered(events: list[Event], stages: int, chunks: int) -> list[Event]:
    """Give every send and receive the micro-batch and chunk of the computation it belongs to.

    The k-th forward-send of a rank follows its k-th forward computation whose result leaves the
    rank, the k-th forward-recv comes before its k-th forward computation that needs one; likewise
    for gradients.
    """
    layout = Layout(stages, chunks)
    by_name: dict[tuple[str, int, int, int], list[Event]] = defaultdict(list)
    for e in events:
        by_name[e.name, e.step, e.replica, e.rank].append(e)
    result = []
    for (name, step, replica, rank), rows in by_name.items():
        way, _, what = name.partition("-")
        if what not in ("send", "recv"):
            result += rows
            continue
        # the last slice sends no activation and receives no gradient, the first one the reverse
        end = layout.slices - 1 if (way == "forward") == (what == "send") else 0
        work = [
            e
            for e in by_name[f"{way}-compute", step, replica, rank]
            if layout.slice_of(rank, e.chunk) != end
        ]
        if len(work) != len(rows):
            raise TraceError(
                f"step {step}, replica {replica}, rank {rank}: {len(rows)} {name} events for "
                f"{len(work)} computations that need one: the trace is not whole"
            )
        work.sort(key=lambda e: e.start)
        for message, op in zip(sorted(rows, key=lambda e: e.micro_batch), work, strict=True):
            result.append(
                Event(name, step, replica, rank, op.chunk, op.micro_batch, message.start,
                      message.end)
            )  # fmt: skip
    return result
