"""One moment of a timeline: what every rank runs, waits for and holds, and what comes next.

The player shows this in the browser (player.js computes the same from the same columns); here it
is for the picture and the words of a page without a kernel, and for anyone who asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pplab.core.ops import CODE, KINDS, USEFUL, Op
from pplab.core.timeline import Timeline
from pplab.view import words
from pplab.view.columns import Arrays, columns, rows_of

#: What a rank does while a bookkeeping span of a recorded run lasts.
_OTHER = {"S": "sends", "R": "waits for a message", "G": "reduces gradients", "L": "loads data"}
#: Micro-batches listed one by one; more of them are listed in runs, as 0–15.
LISTED = 8


@dataclass(frozen=True)
class RankNow:
    """One rank at one moment.

    `doing` says it in words: "runs F3", "waits for B0 of rank 1 (not started)", "idle", "done".
    `running` is the operation it runs, `awaited` the (operation, rank) it waits for. `held` are
    the forward passes whose activations it keeps, `pending` those of them whose B is over and
    whose W is still to come. `next` is its next operation.
    """

    replica: int
    rank: int
    doing: str
    running: Op | None
    awaited: tuple[Op, int] | None
    held: tuple[Op, ...]
    pending: tuple[Op, ...]
    next: Op | None

    def holds(self) -> str:
        """What it holds, in words: ``4 activations: 0 1 2 3``."""
        count = len(self.held)
        text = f"{count} activation" + ("" if count == 1 else "s")
        if count:
            text += ": " + _listed(self.held)
        if self.pending:
            text += f"; W pending: {_listed(self.pending)}"
        return text

    def cells(self) -> tuple[str, str, str]:
        """Now, in memory, next: the columns of the player's table."""
        return self.doing, self.holds(), str(self.next) if self.next else "nothing"

    def __str__(self) -> str:
        now, held, then = self.cells()
        return f"rank {self.rank} {now}; holds {held}; next {then}"


class Moment(list[RankNow]):
    """All ranks at one moment; prints one line a rank."""

    def __init__(self, rows: list[RankNow], time: float, unit: str, source: str) -> None:
        super().__init__(rows)
        self.time, self.unit, self.source = time, unit, source

    @property
    def clock(self) -> str:
        """The time in words."""
        return words.duration(self.time, self.unit)

    def table(self) -> list[tuple[str, ...]]:
        """A heading and a row a rank: rank, now, in memory, next."""
        several = len({row.replica for row in self}) > 1
        names = [(f"replica {r.replica}, " if several else "") + f"rank {r.rank}" for r in self]
        rows = ((name, *row.cells()) for name, row in zip(names, self, strict=True))
        return [("", f"At {self.clock}", "In memory", "Next"), *rows]

    def __str__(self) -> str:
        mark = f"[{self.source}] "
        lines = [f"{mark}{name} {now}; holds {held}; next {then}."
                 for name, now, held, then in self.table()[1:]]  # fmt: skip
        return "\n".join([f"{mark}At {self.clock}:", *lines])

    __repr__ = __str__


def moment(timeline: Timeline, time: float) -> Moment:
    """Every rank at `time`, counted from the first operation of the typical step."""
    t = timeline.typical
    rows = rows_of([t])
    table = columns([t], rows)
    # What ends at this very moment, by any way of rounding, has ended.
    now = time + 1e-9 * float(table["end"].max(initial=0.0))
    found = [_rank_now(table, lane, now, rows) for lane in range(len(rows))]
    origin = t.source.partition(":")[0]
    return Moment(found, time, t.unit, origin)


def middle(timeline: Timeline) -> float:
    """Start of the first operation in the second half of the step: where a player begins."""
    t = timeline.typical.shifted()
    starts = np.sort(t.start[t.is_kind(USEFUL)])
    if not len(starts):
        return 0.0
    half = float(starts[0] + starts[-1]) / 2
    return float(starts[min(int(np.searchsorted(starts, half)), len(starts) - 1)])


def _rank_now(table: Arrays, lane: int, time: float, rows: list[tuple[int, int]]) -> RankNow:
    mine = np.flatnonzero(table["lane"] == lane)
    kind, start, end = (table[name][mine].tolist() for name in ("kind", "start", "end"))
    work = [i for i in range(len(mine)) if kind[i] < len(USEFUL)]

    def op(i: int) -> Op:  # of a row of the whole table
        names = ("kind", "micro_batch", "chunk")
        letter, micro_batch, chunk = (int(table[name][i]) for name in names)
        return Op(KINDS[letter], micro_batch, chunk)

    def maker_of(i: int) -> tuple[Op, int] | None:
        j = int(table["needs"][i])
        return (op(j), rows[int(table["lane"][j])][1]) if j >= 0 else None

    running = next((i for i in reversed(work) if start[i] <= time < end[i]), None)
    follows = next((i for i in work if start[i] > time), None)
    awaited, doing = None, "done"
    other = [i for i in range(len(mine)) if kind[i] >= len(USEFUL) and start[i] <= time < end[i]]
    if running is not None:
        doing = f"runs {op(mine[running])}"
    elif other:
        doing = _OTHER[KINDS[kind[other[-1]]]]
        target = int(table["needs"][mine[other[-1]]])
        if kind[other[-1]] == CODE["R"] and target >= 0:
            awaited = maker_of(target)
            doing = _waits(table, target, awaited, time) if awaited else f"waits for {op(target)}"
    elif follows is not None:
        doing, j = "idle", int(mine[follows])
        awaited = maker_of(j) if table["wait"][j] > 0 else None
        # A little more than the wait: the page has it as a float32.
        if awaited and time >= start[follows] - table["wait"][j] * 1.000001:
            doing = _waits(table, j, awaited, time)
        else:
            awaited = None
    held, pending = _held([op(i) for i in mine[work]], *_times(start, end, work), time)
    return RankNow(
        *rows[lane],
        doing,
        op(mine[running]) if running is not None else None,
        awaited,
        held,
        pending,
        op(mine[follows]) if follows is not None else None,
    )


def _times(start: list[float], end: list[float], work: list[int]) -> tuple[list, list]:
    return [start[i] for i in work], [end[i] for i in work]


def _waits(table: Arrays, i: int, awaited: tuple[Op, int], time: float) -> str:
    """That span `i` waits for its producer, and how far that one is."""
    j = int(table["needs"][i])
    state = "not started"
    if table["end"][j] <= time:
        state = "on its way"
    elif table["start"][j] <= time:
        state = "running"
    return f"waits for {awaited[0]} of rank {awaited[1]} ({state})"


def _held(
    ops: list[Op], start: list[float], end: list[float], time: float
) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Activations held at `time`, and those of them that only W still needs."""
    split = {op[1:] for op in ops if op.kind == "W"}
    held: dict[tuple[int, int], Op] = {}
    pending: dict[tuple[int, int], Op] = {}
    for op, begin, stop in zip(ops, start, end, strict=True):
        name = (op.micro_batch, op.chunk)
        if op.kind == "F" and begin <= time:
            held[name] = op
        elif op.kind == "B" and stop <= time and name in split:
            pending[name] = held[name]
        elif op.kind in "BW" and stop <= time:
            held.pop(name, None)
            pending.pop(name, None)
    return tuple(held.values()), tuple(pending.values())


def _listed(ops: tuple[Op, ...]) -> str:
    """Micro-batches by number, with their chunk where it is not the first: ``0 1 0.1``."""
    runs: list[list[Op]] = []
    for op in ops:
        follows = runs and (op.micro_batch - 1, op.chunk) == runs[-1][-1][1:]
        if len(ops) > LISTED and follows:
            runs[-1].append(op)
        else:
            runs.append([op])
    return " ".join("–".join(str(op)[1:] for op in (run[0], run[-1])[: len(run)]) for run in runs)
