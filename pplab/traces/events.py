"""A timeline as trace events: a bar for every span, an arrow for every message.

What the Trace Event Format and Perfetto's importer (``src/trace_processor/importers/json``) ask
for:

- bars of a track nest or follow each other; Perfetto sets aside one that crosses another. So start
  and end are rounded, not start and duration: neighbours still touch, and never overlap. A span
  that does cross another one of its rank gets a second track.
- negative times are dropped: the trace starts at 0, at the first span's start.
- an arrow starts and ends *inside* the bars it joins: a nanosecond before the end of the producer,
  since the instant of the end belongs to the next bar, and tied to the bar around its head
  (``bp: e``).
- process 0 and thread 0 mean "idle": numbers start at 1, and no two tracks share one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pplab.core.layout import Layout
from pplab.core.ops import WORDS
from pplab.core.timeline import Span, Timeline
from pplab.traces.files import TraceError

#: Nanoseconds of one unit of time. A thought experiment has no seconds: 1 unit is shown as 1 ms.
SECOND, UNIT = 1e9, 1e6
#: Nanoseconds up to which a float of microseconds still tells one from the next: 13 days.
LONGEST = 2.0**50
#: Names of chrome://tracing's fixed palette nearest to our colours (Perfetto picks its own).
COLOURS = {
    "F": "rail_response",
    "B": "bad",
    "W": "good",
    "U": "detailed_memory_dump",
    "S": "generic_work",
    "R": "grey",
    "G": "olive",
    "L": "thread_state_unknown",
}

Event = dict[str, Any]


@dataclass
class Bar:
    """A span with its row in the timeline and its place in the trace, in whole nanoseconds."""

    row: int
    span: Span
    piece: int  # slice of the model
    start: int
    end: int
    place: int = 0  # among all bars in the order of time, outer before inner
    lane: int = 0  # track of its rank: 0, or more when it crosses a bar of the tracks before

    @property
    def track(self) -> tuple[int, int, int]:
        return self.span.replica, self.span.rank, self.lane


def events(timeline: Timeline) -> list[Event]:
    """Names of the tracks, then bars and arrows in the order of time.

    Messages whose producer takes no time, or starts after its consumer, get no arrow.
    Raises TraceError when a time is not finite or the trace would last longer than 13 days.
    """
    bars = _bars(timeline)
    tracks = {bar.track for bar in bars}
    # Empty ranks show as empty tracks: a rank that never worked is worth seeing.
    tracks |= {(r, rank, 0) for r in timeline.replicas for rank in range(timeline.stages)}
    numbers = _numbers(tracks)
    timed: list[tuple[tuple[int, int, int], Event]] = []
    for bar in bars:
        timed.append(((bar.start, bar.place, 0), _complete(bar, numbers)))
    for number, (made, used) in enumerate(_messages(bars)):
        leaves = min(made.end - 1, used.start)
        timed.append(((leaves, made.place, 1), _arrow("s", made, leaves, number, numbers)))
        timed.append(((used.start, used.place, 2), _arrow("f", used, used.start, number, numbers)))
    timed.sort(key=lambda item: item[0])
    return [*_names(timeline.layout, tracks, numbers), *(event for _, event in timed)]


def _bars(timeline: Timeline) -> list[Bar]:
    if not (np.all(np.isfinite(timeline.start)) and np.all(np.isfinite(timeline.end))):
        raise TraceError("a span starts or ends at a time that is not finite: nothing can draw it")
    origin = timeline.start.min(initial=np.inf)
    scale = SECOND if timeline.unit == "s" else UNIT
    with np.errstate(over="ignore"):
        starts, ends = (timeline.start - origin) * scale, (timeline.end - origin) * scale
    if not ends.max(initial=0.0) < LONGEST:
        raise TraceError("the timeline lasts more than 13 days: viewers do not count that far")
    rounded = np.rint(starts).astype(np.int64).tolist(), np.rint(ends).astype(np.int64).tolist()
    slice_of = timeline.layout.slice_of
    bars = [
        Bar(row, span, slice_of(span.rank, span.op.chunk), start, end)
        for row, (span, start, end) in enumerate(zip(timeline, *rounded, strict=True))
    ]
    bars.sort(key=lambda bar: (bar.start, -bar.end, bar.row))
    ends_of_open: dict[tuple[int, int, int], list[int]] = defaultdict(list)  # innermost last
    for place, bar in enumerate(bars):
        bar.place = place
        while not _fits(bar, ends_of_open[bar.track]):
            bar.lane += 1
        ends_of_open[bar.track].append(bar.end)
    return bars


def _fits(bar: Bar, ends: list[int]) -> bool:
    """Whether a bar follows, or nests in, the bars that end at `ends`; forgets those it follows."""
    while ends and ends[-1] <= bar.start:
        ends.pop()
    return not ends or bar.end <= ends[-1]


def _numbers(tracks: set[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
    """Thread number of every track: 2003 is rank 3 of replica 1. Spare tracks come after those."""
    most = max((max(replica + 2, rank + 1) for replica, rank, _ in tracks), default=1)
    thousand = 10 ** max(3, len(str(most)))
    numbers: dict[tuple[int, int, int], int] = {}
    spare = thousand * thousand
    for track in sorted(tracks):
        replica, rank, lane = track
        spare += lane > 0
        numbers[track] = spare if lane else thousand * (replica + 1) + rank
    return numbers


def _names(
    layout: Layout, tracks: set[tuple[int, int, int]], numbers: dict[tuple[int, int, int], int]
) -> Iterator[Event]:
    for replica in sorted({track[0] for track in tracks}):
        process = {"ph": "M", "pid": replica + 1}
        yield {**process, "name": "process_name", "args": {"name": f"replica {replica}"}}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": replica}}
    for order, track in enumerate(sorted(tracks)):
        replica, rank, lane = track
        pieces = ", ".join(str(layout.slice_of(rank, chunk)) for chunk in range(layout.chunks))
        name = f"rank {rank} (stage{'s' if layout.chunks > 1 else ''} {pieces})"
        if lane:
            name += ", overlapping"
        thread = {"ph": "M", "pid": replica + 1, "tid": numbers[track]}
        yield {**thread, "name": "thread_name", "args": {"name": name}}
        yield {**thread, "name": "thread_sort_index", "args": {"sort_index": order}}


def _complete(bar: Bar, numbers: dict[tuple[int, int, int], int]) -> Event:
    span = bar.span
    return {
        "ph": "X",
        "name": str(span.op),
        "cat": WORDS[span.op.kind],
        "ts": bar.start / 1000,
        "dur": (bar.end - bar.start) / 1000,
        "pid": span.replica + 1,
        "tid": numbers[bar.track],
        "cname": COLOURS[span.op.kind],
        "args": {
            "kind": span.op.kind,
            "micro_batch": span.op.micro_batch,
            "chunk": span.op.chunk,
            "slice": bar.piece,
            "step": span.step,
            "replica": span.replica,
            "rank": span.rank,
            "start": span.start,
            "end": span.end,
            "row": bar.row,
        },
    }


def _arrow(
    phase: str, bar: Bar, at: int, number: int, numbers: dict[tuple[int, int, int], int]
) -> Event:
    event = {
        "ph": phase,
        "name": "activation" if bar.span.op.kind == "F" else "gradient",
        "cat": "message",
        "id": number + 1,
        "ts": at / 1000,
        "pid": bar.span.replica + 1,
        "tid": numbers[bar.track],
    }
    return event if phase == "s" else {**event, "bp": "e"}


def _messages(bars: list[Bar]) -> Iterator[tuple[Bar, Bar]]:
    """(producer, consumer) of every message: F goes to the next slice, B to the one before."""
    found: dict[tuple[int, int, str, int, int], Bar] = {}
    for bar in bars:
        step, replica, _, op, *_ = bar.span
        if op.kind in "FB":
            found.setdefault((step, replica, op.kind, op.micro_batch, bar.piece), bar)
    for (step, replica, kind, micro_batch, piece), used in found.items():
        before = piece - 1 if kind == "F" else piece + 1
        made = found.get((step, replica, kind, micro_batch, before))
        if made is None or made.span.rank == used.span.rank:
            continue
        if made.end > made.start and made.start <= used.start:
            yield made, used
