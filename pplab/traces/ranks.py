"""From the named ranges of every rank to one timeline.

Readers of profiler traces (``kineto``, ``nsys``) give a ``RankTrace`` per rank; what is the same
for all of them is here: which names are operations, which step and micro-batch they belong to,
which place in the pipeline a rank has, and whose file is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pplab.core.ops import CODE, WHOLE_STEP
from pplab.core.timeline import Timeline
from pplab.traces.clocks import align
from pplab.traces.doubts import doubts, refusal
from pplab.traces.files import TraceError
from pplab.traces.frameworks import FUNCTIONS
from pplab.traces.imported import Imported, Options
from pplab.traces.named import Convention, Named
from pplab.traces.names import conventions, is_optimizer
from pplab.traces.places import places
from pplab.traces.rows import RankTrace, Row, whole
from pplab.traces.steps import cleared, in_steps, numbered
from pplab.traces.waits import received, sent


def assemble(
    traces: list[RankTrace], options: Options, title: str, files: Iterable[Path]
) -> Imported:
    """One timeline from all ranks; raises TraceError when no range is an operation."""
    convention = _convention(traces, options, title)
    notes = [note for trace in traces for note in trace.notes]
    everyone: list[list[Row]] = []
    for trace in traces:
        everyone.append(_outermost(_rows(trace, convention)))
    unsure = doubts(traces, everyone)
    pieces = 1 + max((row.named.part for rows in everyone for row in rows), default=0)
    if pieces > 1:
        notes.append(f"each micro-batch is cut into {pieces} sequences, counted as micro-batches")
    for number, trace in enumerate(traces):
        rows = [whole(row, pieces) for row in everyone[number]]
        if convention.within:
            rows = sent(received(rows, trace), trace)
        rows, said = in_steps(rows, trace)
        everyone[number] = cleared(numbered(rows))
        notes += said
    if convention.title == FUNCTIONS:
        unsure.append(
            "no ranges name the passes: they are told from the functions that the profiler "
            "recorded (with_stack=True), which slows Python down"
        )
    loose = convention.within and not any(trace.receipts for trace in traces)
    where = places(traces, everyone, options, within=loose)
    notes += where.notes
    if any(row.named.double for rows in everyone for row in rows):
        notes.append(
            "ranges named OVERLAP_F_B hold a forward and a backward pass at once: each is drawn "
            "as the backward pass, and its forward pass as an instant at its beginning"
        )
    keyed = [
        [(r.named.kind, r.step, r.micro_batch, where.piece(i, r.named), r.start, r.end)
         for r in rows]
        for i, rows in enumerate(everyone)
    ]  # fmt: skip
    clocks = align(
        traces,
        where.place,
        keyed,
        options,
        at_end=loose,
        sent_within=convention.within,
        assumed=where.assumed,
    )
    notes += [*clocks.notes, *unsure]
    columns: dict[str, Any] = defaultdict(list)
    origin = min((row.start for rows in everyone for row in rows), default=0)
    for i, rows in enumerate(everyone):
        replica, rank = where.place[i]
        shift = clocks.shift[i] - origin
        for row in rows:
            values = (
                row.step, replica, rank, CODE[row.named.kind], row.micro_batch,
                where.chunk(i, row.named), (row.start + shift) / 1e9, (row.end + shift) / 1e9,
            )  # fmt: skip
            for name, value in zip(
                ("step", "replica", "rank", "kind", "micro_batch", "chunk", "start", "end"),
                values, strict=True,
            ):  # fmt: skip
                columns[name].append(value)
    about = traces[0].about
    if about.get("engine") in ("deepspeed", "dualpipev"):
        columns = _as_recorded(columns)
    try:
        timeline = Timeline.of(
            columns,
            where.layout,
            source=str(about.get("source") or f"measured: {title}, imported"),
            schedule=str(about.get("schedule") or ""),
            unit="s",
        ).shifted()
    except (ValueError, OverflowError) as error:
        raise TraceError(f"{traces[0].label}: numbers in it make no sense: {error}") from None
    return Imported(
        timeline,
        title,
        tuple(files),
        tuple(dict.fromkeys(notes)),
        where.missing,
        clocks.residual,
        {"convention": convention.title, "clock_shifts": [s / 1e9 for s in clocks.shift]},
    )


def _as_recorded(columns: dict[str, list[float]]) -> dict[str, Any]:
    """DeepSpeed's own step begins with a wait: cut off, as in the timelines of its runs."""
    from pplab.runtime.collect import waits_taken_out

    arrays = {name: np.array(values) for name, values in columns.items()}
    return waits_taken_out(arrays)


# -- which ranges are operations ------------------------------------------------------------------


def _convention(traces: list[RankTrace], options: Options, title: str) -> Convention:
    """The convention that names the most forward and backward passes; of equals, one of ranges,
    and the one that names most."""
    counts = Counter(r.name for trace in traces for r in trace.ranges)
    best, most = None, (0, False, 0)
    for convention in conventions(options.names):
        found = [(part.kind in "FB", n) for name, n in counts.items()
                 for part in convention.parse(name)]  # fmt: skip
        ranges = convention.title != FUNCTIONS
        score = sum(n for is_pass, n in found if is_pass), ranges, sum(n for _, n in found)
        if score[0] and score > most:
            best, most = convention, score
    if best is None:
        raise TraceError(refusal(traces, options, title))
    return best


def _rows(trace: RankTrace, convention: Convention) -> list[Row]:
    rows = []
    for item in sorted(trace.ranges, key=lambda r: (r.start, -r.end)):
        for named in convention.parse(item.name):
            end = item.start if named.double and named.kind == "F" else item.end
            rows.append(Row(named, item.start, end, item.at))
    if convention.optimizer and not any(row.named.kind == "U" for row in rows):
        rows += [
            Row(Named("U", WHOLE_STEP), r.start, r.end, r.at)
            for r in trace.ranges
            if is_optimizer(r.name)
        ]
    return sorted(rows, key=lambda row: (row.start, -row.end))


def _outermost(rows: list[Row]) -> list[Row]:
    """Without ranges that lie inside another one for the same operation."""
    kept: list[Row] = []
    last: dict[Named, int] = {}
    for row in rows:
        if row.end <= last.get(row.named, -1):
            continue
        last[row.named] = row.end
        kept.append(row)
    return kept
