"""How far each rank of a schedule gets when the schedule cannot run to its end, and why it stops.

A rank stops at the first operation that is wrong, or that waits for something which never comes.
What runs before that is simulated like any schedule; what each rank stands before becomes a
*ghost*, and in a deadlock arrows lead from each waiting operation to the one it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import NamedTuple

import numpy as np

from pplab.core.costs import Costs
from pplab.core.graph import Graph
from pplab.core.ops import CODE, Op
from pplab.core.schedule import Schedule
from pplab.core.simulate import times
from pplab.core.timeline import Timeline

#: What of a note the picture says already.
_BRIEF = re.compile(
    r"^(meets \S+|is(?! sending)|is sending the result of its \S+"
    r"|waits to receive the input of its \S+) "
)


class Ghost(NamedTuple):
    """An operation that never starts: on which rank, at which place of its list, and its role."""

    rank: int
    place: int
    op: Op
    label: str
    wrong: bool = False  # it is itself what is wrong, not only waiting


class Arrow(NamedTuple):
    """From the ghost that waits to the ghost it waits for, numbered as in the sentences."""

    number: int
    start: Ghost
    end: Ghost


@dataclass(frozen=True)
class Reach:
    """What can run of a schedule, and where it ends.

    timeline: the operations that run; ghosts: what the ranks stand before, in order of rank and
    place; arrows: the circle of a deadlock; notes: per rank in a few words why it goes no further;
    sentences: what is wrong, each with the number of its arrow or None.
    """

    headline: str
    caption: str
    timeline: Timeline
    ghosts: tuple[Ghost, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    notes: tuple[str, ...] = ()
    sentences: tuple[tuple[int | None, str], ...] = ()
    #: Kind of the operation each rank waits for when it stops, "" when it does not wait.
    awaited: tuple[str, ...] = field(default=())

    @property
    def stuck(self) -> bool:
        """True when something keeps the schedule from running to its end, or from running well."""
        return self.headline != "Runs"

    def columns(self) -> list[tuple[Ghost, int, int]]:
        """(ghost, column, operations left out before it): ghosts of a rank stand side by side."""
        found: list[tuple[Ghost, int, int]] = []
        for ghost in self.ghosts:
            before = found[-1] if found and found[-1][0].rank == ghost.rank else None
            column = before[1] + 1 if before else 0
            left_out = ghost.place - before[0].place - 1 if before else 0
            found.append((ghost, column, left_out))
        return found

    def briefs(self) -> list[str]:
        """The notes in the fewest words, "" for ranks whose arrows say it."""
        circle = {ghost.rank for arrow in self.arrows for ghost in (arrow.start, arrow.end)}
        return [
            "" if rank in circle else _BRIEF.sub("", note) for rank, note in enumerate(self.notes)
        ]

    def text(self) -> str:
        """Headline, sentences, and how far each rank gets."""
        says = [f"{number}. {text}" if number else text for number, text in self.sentences]
        ran = [int(np.sum(self.timeline.rank == rank)) for rank in range(len(self.notes))]
        ends = [
            f"rank {rank} runs {count} operation{'s' if count != 1 else ''}, then {note}"
            for rank, (count, note) in enumerate(zip(ran, self.notes, strict=True))
        ]
        return "\n".join([f"{self.headline}: {self.caption}.", *says, *ends])


def reach(schedule: Schedule, costs: Costs | None = None) -> Reach:
    """How far each rank of a schedule gets, under `costs` (default: F 1, B 2)."""
    stops = _run(schedule)
    done = [stop.place for stop in stops]
    timeline = _timeline(schedule, done, costs if costs is not None else Costs())
    problems = schedule.problems
    cycle = problems[0].cycle if problems else ()
    ghosts = {
        (stop.rank, stop.op): Ghost(stop.rank, stop.place, stop.op, str(stop.op), stop.wrong)
        for stop in stops
        if stop.op is not None
    }
    for rank, op in cycle:
        place = schedule.ops[rank].index(op)
        ghosts.setdefault((rank, op), Ghost(rank, place, op, str(op)))
    arrows, sentences = _circle(cycle, ghosts)
    if not cycle:
        sentences = [(None, f"{problem}.") for problem in problems[:5]]
        if len(problems) > len(sentences):
            sentences.append((None, f"And {len(problems) - len(sentences)} more."))
    total = sum(map(len, schedule.ops))
    invalid = "Cannot run" if sum(done) < total else "Not valid"
    return Reach(
        headline="Deadlock" if cycle else invalid if problems else "Runs",
        caption=f"{sum(done)} of {total} operations run",
        timeline=timeline,
        ghosts=tuple(sorted(ghosts.values(), key=lambda g: (g.rank, g.place))),
        arrows=tuple(arrows),
        notes=tuple(stop.note for stop in stops),
        sentences=tuple(sentences),
        awaited=tuple(stop.awaits.kind if stop.awaits else "" for stop in stops),
    )


@dataclass
class _Stop:
    """Where a rank ends: the place in its list, and the operation there (None: it has finished)."""

    rank: int
    place: int
    op: Op | None = None
    note: str = "is done"
    wrong: bool = False
    awaits: Op | None = None


def _circle(
    cycle: tuple[tuple[int, Op], ...], ghosts: dict[tuple[int, Op], Ghost]
) -> tuple[list[Arrow], list[tuple[int | None, str]]]:
    """Arrows and sentences of a deadlock, in the words of its Problem."""
    arrows: list[Arrow] = []
    sentences: list[tuple[int | None, str]] = []
    for (rank, op), (other, awaited) in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        if rank == other:
            sentences.append((None, f"rank {rank} runs {op} only after {awaited},"))
            continue
        number = len(arrows) + 1
        arrows.append(Arrow(number, ghosts[rank, op], ghosts[other, awaited]))
        sentences.append((number, f"rank {rank} waits in {op} for {awaited} of rank {other},"))
    if cycle:
        sentences.append((None, "each waits for the next, so none can start."))
    return arrows, sentences


def _run(schedule: Schedule) -> list[_Stop]:
    """Let every rank run until it meets something wrong, or something that never comes."""
    layout, rows = schedule.layout, schedule.ops
    stops = [_Stop(rank, 0) for rank in range(schedule.stages)]
    blamed = {(p.rank, p.op) for p in schedule.problems if p.code in ("order", "early-update")}
    done: set[tuple[str, int, int]] = set()
    ran: list[set[Op]] = [set() for _ in rows]
    to_try, asleep = list(range(len(rows))), {}
    while to_try:
        rank = to_try.pop()
        stop = stops[rank]
        while stop.place < len(rows[rank]):
            op = rows[rank][stop.place]
            stop.op, stop.awaits = op, None
            if note := _fault(schedule, op, ran[rank], (rank, op) in blamed):
                stop.note, stop.wrong = note, True
                break
            if op.kind in "FB":
                piece = layout.slice_of(rank, op.chunk)
                source = piece + (-1 if op.kind == "F" else 1)
                needed = (op.kind, source, op.micro_batch)
                if 0 <= source < layout.slices and needed not in done:
                    other, chunk = layout.place_of(source)
                    stop.awaits = Op(op.kind, op.micro_batch, chunk)
                    never = stop.awaits not in rows[other]
                    stop.note = f"waits for {stop.awaits} of rank {other}"
                    stop.note += ", which never runs it" if never else ""
                    asleep[needed] = rank
                    break
                done.add((op.kind, piece, op.micro_batch))
                if (op.kind, piece, op.micro_batch) in asleep:
                    to_try.append(asleep.pop((op.kind, piece, op.micro_batch)))
            ran[rank].add(op)
            stop.place += 1
        else:
            stop.op, stop.note = None, "is done"
    for problem in schedule.build_problems:  # a generator that went wrong ends its rank's list
        if problem.rank is not None and stops[problem.rank].op is None:
            stops[problem.rank].note = "stops: " + problem.sentence.partition(":")[0]
    return stops


def _fault(schedule: Schedule, op: Op, ran: set[Op], blamed: bool) -> str:
    """What is wrong with an operation by itself, after those its rank `ran`; "" for nothing."""
    numbers = isinstance(op.micro_batch, Integral) and isinstance(op.chunk, Integral)
    if op.kind not in "FBWU" or not numbers:
        return f"meets {op}, which is no operation of a schedule"
    known = op.kind == "U" or op.micro_batch >= 0
    if not (known and op.micro_batch < schedule.micro_batches and 0 <= op.chunk < schedule.chunks):
        return f"meets {op}, which does not exist"
    if op in ran:
        return f"meets {op} a second time"
    before = {"B": "F", "W": "B"}.get(op.kind)
    if before and (needed := Op(before, op.micro_batch, op.chunk)) not in ran:
        return f"meets {op} before its own {needed}"
    return f"meets {op} too early" if blamed else ""


def _timeline(schedule: Schedule, done: list[int], costs: Costs) -> Timeline:
    """The simulation of the first `done` operations of each rank."""
    ops = tuple(row[:count] for row, count in zip(schedule.ops, done, strict=True))
    part = replace(schedule, ops=ops, build_problems=())
    graph = Graph.of(part)
    # A backward pass is split when its W stands in the schedule, whether or not it gets that far.
    whole = [{op[1:] for op in row if op.kind == "W"} for row in schedule.ops]
    names = zip(graph.rank.tolist(), graph.micro_batch.tolist(), graph.chunk.tolist(), strict=True)
    split = np.array([(m, chunk) in whole[rank] for rank, m, chunk in names], dtype=bool)
    graph = replace(graph, split=split & (graph.kind == CODE["B"]))
    start, end = times(part, costs, graph)
    return timeline_of(schedule, ops, start, end, costs.unit)


def timeline_of(
    schedule: Schedule, ops: Iterable[Iterable[Op]], start: object, end: object, unit: str
) -> Timeline:
    """A timeline of some operations of each rank; times in the order of ranks and places."""
    flat = [(rank, *op) for rank, row in enumerate(ops) for op in row]
    columns = {
        "rank": [row[0] for row in flat],
        "kind": [CODE[row[1]] for row in flat],
        "micro_batch": [row[2] for row in flat],
        "chunk": [row[3] for row in flat],
        "start": start,
        "end": end,
    }
    about = {"source": "simulated", "schedule": schedule.name, "unit": unit}
    return Timeline.of(columns, layout=schedule.layout, **about)  # type: ignore[arg-type]
