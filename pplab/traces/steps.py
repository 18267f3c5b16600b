"""Which step and micro-batch the operations of a rank belong to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import replace
from typing import Any

from pplab.core.ops import WHOLE_STEP
from pplab.traces.rows import RankTrace, Row


def in_steps(rows: list[Row], trace: RankTrace) -> tuple[list[Row], list[str]]:
    """The step of every row: from ranges around steps, else from what comes again and again."""
    if trace.steps:
        return _in_marked_steps(rows, trace)
    numbered = [r for r in rows if r.named.kind in "FB" and r.named.micro_batch is not None]
    if len(numbered) == sum(r.named.kind in "FB" for r in rows):
        return _in_counted_steps(rows), []
    ends = [r.end for r in rows if r.named.kind == "U"]
    if ends:
        last = sum(r.at >= ends[-1] for r in rows if r.named.kind in "FB")
        said = [f"{trace.label}: {last} operations after its last update form a step of their own"]
        cut = [replace(r, step=bisect_right(ends[:-1], r.at)) for r in rows if not last]
        if last:
            cut = [replace(r, step=bisect_right(ends, r.at)) for r in rows]
        return cut, said if last else []
    said = [
        f"{trace.label}: neither steps nor updates are marked and the passes have no numbers, so "
        "all of it is taken as one step"
    ]
    return rows, said


def _in_marked_steps(rows: list[Row], trace: RankTrace) -> tuple[list[Row], list[str]]:
    marks = sorted(trace.steps, key=lambda mark: mark[1])
    starts = [mark[1] for mark in marks]
    kept, outside = [], 0
    for row in rows:
        at = bisect_right(starts, row.at) - 1
        if at < 0 or row.at > marks[at][2]:
            outside += 1
            continue
        kept.append(replace(row, step=marks[at][0]))
    said = []
    if outside:
        said.append(f"{trace.label}: {outside} operations outside every marked step were left out")
    return kept, said


def _in_counted_steps(rows: list[Row]) -> list[Row]:
    """The k-th F3 of a rank belongs to step k; what receives a message, to the step of the next
    pass (that of an activation and of a gradient may have one name), the rest to the step it runs
    in."""
    seen: Counter[tuple[Any, ...]] = Counter()
    steps: list[int | None] = []
    for row in rows:
        if row.named.kind not in "FBW" or row.named.micro_batch in (None, WHOLE_STEP):
            steps.append(None)
            continue
        key = row.named[:5]
        steps.append(seen[key])
        seen[key] += 1
    passes = [(row.start, step) for row, step in zip(rows, steps, strict=True) if step is not None]
    begins: dict[int, int] = {}
    for start, step in passes:
        begins.setdefault(step, start)
    order = sorted(begins.values())
    starts = [start for start, _ in passes]
    result = []
    for row, counted in zip(rows, steps, strict=True):
        step = max(0, bisect_right(order, row.start) - 1) if counted is None else counted
        following = bisect_left(starts, row.start)
        if counted is None and row.named.kind == "R" and following < len(passes):
            step = passes[following][1]
        result.append(replace(row, step=step))
    return result


def cleared(rows: list[Row]) -> list[Row]:
    """Weight gradients that were left for the end of a step and done at once (Zero Bubble), shared
    out evenly among the micro-batches that had none of their own."""
    done: dict[tuple[int, int | None], set[int]] = {}
    for row in rows:
        if row.named.kind in "BW" and row.micro_batch != WHOLE_STEP:
            mine = done.setdefault((row.step, row.named.chunk), set())
            (mine.add if row.named.kind == "B" else mine.discard)(row.micro_batch)
    result = []
    for row in rows:
        left = sorted(done.get((row.step, row.named.chunk), ()))
        if row.named.kind != "W" or row.micro_batch != WHOLE_STEP or not left:
            result.append(row)
            continue
        long = (row.end - row.start) / len(left)
        for i, m in enumerate(left):
            start, end = (round(row.start + n * long) for n in (i, i + 1))
            result.append(replace(row, micro_batch=m, start=start, end=end))
    return result


def numbered(rows: list[Row]) -> list[Row]:
    """The rows with their micro-batches: those without a number counted in the order of time."""
    count: Counter[tuple[Any, ...]] = Counter()
    done = []
    for row in sorted(rows, key=lambda r: (r.step, r.at)):
        m = row.named.micro_batch
        if m is None:
            key = (row.step, row.named.kind, row.named.chunk, row.named.stage, row.named.of)
            m = count[key]
            count[key] += 1
        done.append(replace(row, micro_batch=m))
    return done
