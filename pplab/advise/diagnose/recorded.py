"""The network of a timeline: what its operations waited for, and how long its messages took.

The order of the operations on a rank is the recorded one; no schedule is needed. How long a message
took is seen only where its receiver was waiting before it was made: from the end of the operation
that made it to the moment it was there. A receiver that came later may have found it waiting: then
it gets the median of its link, as far as that fits; where nobody was ever early, what the quickest
quarter of the link's messages took at most.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from pplab.advise.diagnose.network import Builder, Network
from pplab.core.ops import CODE, KINDS
from pplab.core.timeline import Timeline


class Row(NamedTuple):
    """A span of a timeline, and the slice it worked on."""

    kind: str
    micro_batch: int
    piece: int
    start: float
    end: float


Where = tuple[int, int, int]  # step, replica, rank
Key = tuple[str, int, int, int, int]  # kind, step, replica, piece, micro-batch


class _Recorded:
    """Puts a network together from the spans of a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.layout = timeline, timeline.layout
        self.build = Builder()
        self.rows: dict[Where, list[Row]] = defaultdict(list)
        table = self.layout.table()
        for step, replica, rank, op, start, end in timeline:
            piece = int(table[rank, op.chunk])
            self.rows[step, replica, rank].append(Row(op.kind, op.micro_batch, piece, start, end))
        self.made: dict[Key, int] = {}
        #: What ended before an operation on its own rank: (time, node or None).
        self.before: dict[Key, tuple[float, int | None]] = {}
        self.waits: dict[Key, Row] = {}
        self.sends: dict[Key, tuple[Row, int | None]] = {}
        self.held_up: dict[Key, int] = {}  # by a message that it had to send first

    def network(self, notes: tuple[str, ...]) -> Network:
        ends = self._ends()
        for where, rows in self.rows.items():
            self._chain(where, rows, ends)
        self._messages()
        return self.build.network(self.layout.slices, self.layout.stages, notes)

    # -- the end of a step ------------------------------------------------------------------------

    def _ends(self) -> dict[tuple[Where, int], tuple[int, float]]:
        """Where ranks meet: (rank, number of its G or U) -> (node of the meeting, its time)."""
        found: dict[tuple[Where, int], tuple[int, float]] = {}
        for step in self.timeline.steps:
            mine = [where for where in self.rows if where[0] == step]
            for kind in "GU":
                lists = {w: [r for r in self.rows[w] if r.kind == kind] for w in mine}
                for number in range(max(map(len, lists.values()))):
                    members = {w: rows[number] for w, rows in lists.items() if number < len(rows)}
                    if kind == "U" and any(r.micro_batch >= 0 for r in members.values()):
                        continue  # in the middle of a step: each rank for itself
                    self._meet(kind, number, members, mine, found)
        return found

    def _meet(
        self,
        kind: str,
        number: int,
        members: dict[Where, Row],
        everyone: list[Where],
        found: dict[tuple[Where, int], tuple[int, float]],
    ) -> None:
        groups = [members]
        if not self._together(kind, members, everyone):
            by_rank: dict[int, dict[Where, Row]] = defaultdict(dict)
            for where, row in members.items():
                by_rank[where[2]][where] = row
            groups = [g for g in by_rank.values() if len(g) > 1 and self._together("G", g, [])]
        for group in groups:
            at = max(row.start for row in group.values())
            first = next(iter(group))
            node = self.build.node("JOIN", first, at, at, label=f"join {kind}{number}")
            for where in group:
                found[where, number + (1000 if kind == "U" else 0)] = (node, at)

    def _together(self, kind: str, members: dict[Where, Row], everyone: list[Where]) -> bool:
        """Whether all of these ended (G) or began (U) only when the last one was there."""
        if len(members) < 2:
            return False
        if kind == "G":
            last = max(row.start for row in members.values())
            return min(row.end for row in members.values()) >= last
        if len(members) < len(everyone):
            return False
        done = max(r.end for w in everyone for r in self.rows[w] if r.kind in "FBW")
        return min(row.start for row in members.values()) >= done

    # -- one rank ---------------------------------------------------------------------------------

    def _chain(
        self, where: Where, rows: list[Row], ends: dict[tuple[Where, int], tuple[int, float]]
    ) -> None:
        step, replica, _ = where
        last: int | None = None
        until = -np.inf
        count: Counter[str] = Counter()
        waiting: Row | None = None
        blocked: Key | None = None
        for row in rows:
            key = (row.kind, step, replica, row.piece, row.micro_batch)
            if row.kind == "R":
                waiting = row
                continue
            if row.kind == "S":
                way = next(
                    (k for k in "BF" if (k, *key[1:]) in self.made), None
                )  # B after F: the latest of the two is what is being sent
                if way is not None and (way, *key[1:]) not in self.sends:
                    sent: Key = (way, step, replica, row.piece, row.micro_batch)
                    self.sends[sent] = (row, last)
                    blocked = sent if row.start >= until else None
                continue
            if row.kind in "GU":
                number = count[row.kind]
                count[row.kind] += 1
                met = ends.get((where, number + (1000 if row.kind == "U" else 0)))
                if met is None:
                    last = self.build.node(
                        row.kind, where, row.start, row.end, label=row.kind, waits_for=(last,)
                    )
                else:
                    join, at = met
                    # (between its last operation and G a rank waits for its sends to be received)
                    if last is not None:
                        self.build.edge(last, join)
                    last = self.build.node(
                        row.kind, where, min(max(at, row.start), row.end), row.end,
                        label=row.kind, waits_for=(join,),
                    )  # fmt: skip
                until = row.end
                continue
            before = last
            last = self.build.node(
                row.kind, where, row.start, row.end, piece=row.piece,
                micro_batch=row.micro_batch, label=row.kind, waits_for=(before,),
            )  # fmt: skip
            if row.kind in "FBW":
                self.made[key] = last
                self.before[key] = (until, before)
                if waiting is not None and waiting[1:3] == row[1:3]:
                    self.waits[key] = waiting
                waiting = None
            if blocked is not None:
                self.held_up[blocked] = last
                blocked = None
            until = row.end

    # -- messages ---------------------------------------------------------------------------------

    def _messages(self) -> None:
        """A node for every message between ranks, with the time it took."""
        links: dict[tuple[str, int], list[float]] = defaultdict(list)
        open_: list[tuple[Key, Key, float, float]] = []  # producer, consumer, least, most
        for used in self.made:
            kind, step, replica, piece, m = used
            if kind == "W":
                continue
            other = piece - 1 if kind == "F" else piece + 1
            producer: Key = (kind, step, replica, other, m)
            if producer not in self.made:
                continue
            if self.layout.place_of(other)[0] == self.layout.place_of(piece)[0]:
                self.build.edge(self.made[producer], self.made[used])
                continue
            made = self.build.rows[self.made[producer]][9]
            begins = self.build.rows[self.made[used]][8]
            arrived, awaited = self._arrival(used, made, begins)
            if awaited:
                took = max(0.0, arrived - made)
                links[kind, other].append(took)
                open_.append((producer, used, took, took))
            else:
                open_.append((producer, used, -1.0, max(0.0, arrived - made)))
        typical = {link: float(np.median(times)) for link, times in links.items()}
        bounds: dict[tuple[str, int], list[float]] = defaultdict(list)
        for producer, _, _, most in open_:
            bounds[producer[0], producer[3]].append(most)
        for link, times in bounds.items():
            typical.setdefault(link, float(np.quantile(times, 0.25)))
        for producer, used, took, most in open_:
            if took < 0:
                took = min(typical[producer[0], producer[3]], most)
            self._message(producer, used, took)

    def _arrival(self, used: Key, made: float, begins: float) -> tuple[float, bool]:
        """(when a message was there at the latest, whether its receiver waited before `made`)."""
        wait = self.waits.get(used)
        if wait is not None:
            return wait.end, wait.start <= made <= wait.end
        before, _ = self.before[used]
        return begins, made >= before

    def _message(self, producer: Key, used: Key, took: float) -> None:
        kind, step, replica, piece, m = producer
        rank, _ = self.layout.place_of(piece)
        number = self.made[producer]
        made = self.build.rows[number][9]
        start, end, waits_for = made, made + took, [number]
        sent, wait = self.sends.get(producer), self.waits.get(used)
        # A send that was still going on when a late receiver came blocked its rank until then
        meets = (
            sent is not None
            and wait is not None
            and wait.start > made
            and sent[0].end >= wait.start
        )
        if meets and sent is not None and wait is not None:
            start, end = max(sent[0].start, wait.start), wait.end
            waits_for += [n for n in (sent[1], self.before[used][1]) if n is not None]
        node = self.build.node(
            "FORWARD" if kind == "F" else "BACKWARD", (step, replica, rank), start, end,
            piece=piece, micro_batch=m, label="message", waits_for=tuple(waits_for),
        )  # fmt: skip
        self.build.edge(node, self.made[used])
        held = self.held_up.get(producer)
        if meets and held is not None and self.build.rows[held][8] >= end:
            self.build.edge(node, held)


def network_of_timeline(timeline: Timeline) -> Network:
    """The network of the complete steps of a timeline.

    The first of several measured steps is left out: it also warms up. Raises ValueError when no
    step is complete, with the first operation that is missing.
    """
    steps = timeline.steps
    if not len(timeline) or not np.any(timeline.is_kind("FB")):
        raise ValueError("the timeline holds no forward or backward passes: nothing to diagnose")
    if (
        len(steps) > 1
        and timeline.source.startswith("measured")
        and "imported" not in (timeline.source)
    ):
        steps = steps[1:]
    notes, kept = [], []
    for step in steps:
        missing = _missing(timeline, step)
        if missing:
            notes.append(f"step {step} is left out: {missing}")
        else:
            kept.append(step)
    if not kept:
        raise ValueError(f"no step is complete: {notes[0].split(': ', 1)[1]}{_never(timeline)}")
    chosen = timeline.where(np.isin(timeline.step, kept))
    return _Recorded(chosen).network(tuple(notes))


def _never(timeline: Timeline) -> str:
    """Ranks of which no backward pass has a name, and what follows, as the end of a sentence."""
    without = [
        str(rank)
        for rank in range(timeline.stages)
        if not np.any(timeline.is_kind("B") & (timeline.rank == rank))
    ]
    if not without:
        return ""
    ranks = f"rank{'s' * (len(without) > 1)} {', '.join(without)}"
    return (
        f" ({ranks}: no backward pass was recorded at all; DeepSpeed's own ranges name them on the "
        "last stage only). Record torch.profiler.profile(with_stack=True), or put ranges around "
        "the backward passes of every rank"
    )


def _missing(timeline: Timeline, step: int) -> str:
    """What a step lacks; "" when every slice ran every micro-batch forward and backward."""
    layout, M = timeline.layout, timeline.micro_batches
    replicas = timeline.replicas
    count = np.zeros((2, len(replicas), layout.slices, M), dtype=int)
    rows = (timeline.step == step) & timeline.is_kind("FB")
    pieces = layout.table()[timeline.rank[rows], timeline.chunk[rows]]
    places = np.searchsorted(replicas, timeline.replica[rows])
    kinds = np.where(timeline.kind[rows] == CODE["F"], 0, 1)
    np.add.at(count, (kinds, places, pieces, timeline.micro_batch[rows]), 1)
    for number, what in ((0, "no"), (2, "more than one")):
        bad = np.argwhere(count == number) if number == 0 else np.argwhere(count >= number)
        if len(bad):
            kind, place, piece, m = bad[0]
            rank, _ = layout.place_of(int(piece))
            return f"{what} {KINDS[kind]}{m} on rank {rank} of replica {replicas[place]}"
    return ""
