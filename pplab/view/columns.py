"""Timelines as the widget gets them: a small dictionary of words and one block of binary columns.

The spans of all timelines of a picture lie in one table, in *lanes*: lane ``row * T + t`` shows row
(replica and rank) `row` of timeline `t` of T. Within a lane spans are in order of time. The block
is, for n spans and h points of the memory strip, little-endian and without gaps:

    start, end  float64[n]   time since the first span of all timelines
    held        float64[h]   times at which the activations in flight change, lane by lane
    lane, micro_batch, needs, twin  int32[n]   needs: span that produces the input, twin: the same
                             operation in the first timeline; -1 for none
    count       int32[h]     activations in flight from that time on
    wait        float32[n]   how long the rank waited for a message right before
    kind, chunk uint8[n]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.ops import CODE, USEFUL
from pplab.core.timeline import Timeline, useful
from pplab.view import colours, words
from pplab.view.waits import Waits

Arrays = dict[str, NDArray[Any]]
Row = tuple[int, int]  # replica, rank
#: Columns in the order of the block, with their types.
BLOCK = (
    ("start", "<f8"),
    ("end", "<f8"),
    ("held", "<f8"),
    ("lane", "<i4"),
    ("micro_batch", "<i4"),
    ("needs", "<i4"),
    ("twin", "<i4"),
    ("count", "<i4"),
    ("wait", "<f4"),
    ("kind", "u1"),
    ("chunk", "u1"),
)


def check(timelines: Sequence[Timeline]) -> None:
    """Raise ValueError, in a sentence, when timelines cannot share one picture."""
    if not timelines:
        raise ValueError("a picture needs at least one timeline")
    units = [t.unit for t in timelines]
    if len(set(units)) > 1:
        raise ValueError(
            f"these timelines have different units ({' and '.join(map(repr, units))}): simulate "
            "with costs in seconds, for instance those of the run: plan.simulate(run.costs)"
        )
    sizes = [t.stages for t in timelines]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"these timelines have {' and '.join(map(str, sizes))} ranks: only pipelines with the "
            "same number of ranks can be laid over each other rank by rank"
        )


def pack(
    timelines: Sequence[Timeline], *, memory: bool = False, cap: float | None = None
) -> tuple[dict[str, Any], bytes]:
    """(words, binary block) of one picture; raises ValueError as ``check``."""
    check(timelines)
    rows = rows_of(timelines)
    table = columns(timelines, rows)
    held, at = _held(timelines, rows) if memory else _held([], [])
    meta = _about(timelines, rows) | {"n": len(table["start"]), "heldAt": at, "cap": cap}
    table |= held
    block = b"".join(np.ascontiguousarray(table[name], dtype).tobytes() for name, dtype in BLOCK)
    return meta, block


def rows_of(timelines: Sequence[Timeline]) -> list[Row]:
    """(replica, rank) of every row of a picture, top to bottom."""
    return sorted({(r, k) for t in timelines for r in t.replicas or (0,) for k in range(t.stages)})


def zero_of(timelines: Sequence[Timeline]) -> float:
    """Start of the first span: time 0 of a picture."""
    return min((float(t.start.min()) for t in timelines if len(t)), default=0.0)


def columns(timelines: Sequence[Timeline], rows: list[Row]) -> Arrays:
    """The table of spans of a picture, without the memory strip."""
    zero, of = zero_of(timelines), len(timelines)
    table = joined([columns_of(t, rows, index, of, zero) for index, t in enumerate(timelines)])
    table["twin"] = _twins(table, of)
    return table


def columns_of(t: Timeline, rows: list[Row], index: int, of: int, zero: float) -> Arrays:
    """The columns of timeline `index`."""
    number = {row: i for i, row in enumerate(rows)}
    replicas = np.array(t.replicas, dtype=int)
    place = np.array([[number[r, k] for k in range(t.stages)] for r in t.replicas], dtype=int)
    row = place[np.searchsorted(replicas, t.replica), t.rank] if len(t) else t.rank.astype(int)
    lane = row * of + index
    order = np.lexsort((t.start, lane))
    back = np.append(np.empty(len(t), dtype=int), -1)
    back[order] = np.arange(len(t))
    w = Waits(t)
    # A recorded wait (R) points at the operation it makes wait, the others at their producer.
    needs = np.where(t.is_kind("R"), w.following, w.producers)
    table = {
        "start": t.start - zero,
        "end": t.end - zero,
        "lane": lane,
        "micro_batch": t.micro_batch,
        "needs": back[needs],
        "wait": w.waits,
        "kind": t.kind,
        "chunk": np.minimum(t.chunk, 255),
    }
    return {name: column[order] for name, column in table.items()}


def joined(parts: list[Arrays]) -> Arrays:
    """Columns of several timelines below each other, in order of lanes, `needs` renumbered."""
    offset = 0
    for part in parts:
        part["needs"] = np.where(part["needs"] >= 0, part["needs"] + offset, -1)
        offset += len(part["start"])
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(table["lane"], kind="stable")
    back = np.append(np.empty(offset, dtype=int), -1)
    back[order] = np.arange(offset)
    table = {name: column[order] for name, column in table.items()}
    table["needs"] = back[table["needs"]]
    return table


def _twins(table: Arrays, of: int) -> NDArray[np.int64]:
    """For each span of a later timeline the same operation in the first one, -1 for none."""
    twin = np.full(len(table["start"]), -1)
    rows = np.flatnonzero(table["kind"] < len(USEFUL))
    if of < 2 or not len(rows):
        return twin
    row, line = np.divmod(table["lane"][rows], of)
    width = int(table["micro_batch"][rows].max()) + 2
    name = (row * 4 + table["kind"][rows]) * width + table["micro_batch"][rows] + 1
    name = name.astype(np.int64) * 256 + table["chunk"][rows]
    first = np.flatnonzero(line == 0)
    names, place = np.unique(name[first], return_index=True)  # of several steps the first one
    if not len(names):
        return twin
    hit = np.minimum(np.searchsorted(names, name), len(names) - 1)
    found = (names[hit] == name) & (line > 0)
    twin[rows[found]] = rows[first[place[hit[found]]]]
    return twin


def _held(timelines: Sequence[Timeline], rows: list[Row]) -> tuple[Arrays, list[int]]:
    """Activations in flight of all lanes in one array, and where each lane begins in it."""
    zero = zero_of(timelines)
    lanes = [in_flight(t, row, zero) for row in rows for t in timelines]
    if not lanes:
        return {"held": np.empty(0), "count": np.empty(0, dtype=int)}, []
    table = {
        "held": np.concatenate([times for times, _ in lanes]),
        "count": np.concatenate([counts for _, counts in lanes]),
    }
    return table, np.cumsum([0, *(len(times) for times, _ in lanes)]).tolist()


def in_flight(t: Timeline, row: Row, zero: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Activations a rank holds in all steps: (times since `zero`, counts from then on)."""
    replica, rank = row
    steps = [t] if len(t.steps) <= 1 else [t.only(step=step) for step in t.steps]
    parts = [settled(*one.measures.in_flight(rank, replica)) for one in steps if len(one)]
    times = np.concatenate([np.empty(0), *(times for times, _ in parts)])
    return times - zero, np.concatenate([np.empty(0, dtype=int), *(c for _, c in parts)])


def settled(times: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A step function without the values it holds for no time at all."""
    last = np.append(times[1:] > times[:-1], True) if len(times) else np.empty(0, dtype=bool)
    return times[last], counts[last]


def windows(timeline: Timeline, zero: float) -> list[tuple[float, float]]:
    """First start and last end of useful work of each step: where a rank can be idle."""
    found = []
    for step in timeline.steps:
        part = timeline.only(step=step)
        part = part.where(useful(part))
        if len(part):
            found.append((float(part.start.min()) - zero, float(part.end.max()) - zero))
    return found


def _about(timelines: Sequence[Timeline], rows: list[Row]) -> dict[str, Any]:
    """Every word and number the widget prints, so that it and the PNG say the same."""
    names = words.short_names(timelines) if len(timelines) > 1 else [""]
    lines = []
    for t, name in zip(timelines, names, strict=True):
        lines.append(
            {
                "name": name,
                "label": words.label(t),
                "hardware": words.hardware(t),
                "outlined": words.is_simulated(t),
                "bubble": words.percent(t.bubble),
                "step": words.duration(t.step_time, t.unit),
                "windows": windows(t, zero_of(timelines)),
            }
        )
    ratio = None
    if len(timelines) == 2 and timelines[0].step_time > 0:
        ratio = words.ratio(timelines)
    kinds = [k for k in "FBWUSRGL" if any(np.any(t.kind == CODE[k]) for t in timelines)]
    return {
        "lines": lines,
        "rows": rows,
        "ratio": ratio,
        "kinds": "".join(kinds),
        "split": "W" in kinds,
        "chunks": max(t.layout.chunks for t in timelines),
        "unit": timelines[0].unit,
        "work": colours.WORK,
        "piled": words.PILED,
    }
