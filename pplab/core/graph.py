"""Who waits for whom: a schedule as arrays.

Every operation waits for at most two others: the one before it on its own rank, and the one that
produces its input: F(m) of a slice needs F(m) of the slice before it, B(m) needs B(m) of the slice
after it. (B after its own F, and W after its own B, follow from the order on the rank.)

Operations are numbered in *waves*: a wave holds at most one operation of each rank, and everything
it waits for lies in earlier waves. Simulating a wave is a handful of numpy calls whatever the
number of ranks, which is what makes a schedule of 65,536 operations cost milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pplab.core.ops import CODE, KINDS, Op

if TYPE_CHECKING:
    from pplab.core.schedule import Schedule

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Graph:
    """Operations of a schedule, rank by rank (row-major), and their two predecessors.

    Arrays of length N = number of operations: `rank`, `kind` (code in KINDS), `micro_batch`,
    `chunk`, `piece` (slice of the model), `before` (previous operation of the rank or -1),
    `needs` (operation that produces the input or -1), `remote` (that one is on another rank),
    `split` (a B whose W is a separate operation). `order` numbers the operations wave by wave;
    wave w is ``order[waves[w]:waves[w + 1]]``. When the schedule deadlocks, `order` is shorter
    than N and `complete` is False.
    """

    rank: Ints
    kind: Ints
    micro_batch: Ints
    chunk: Ints
    piece: Ints
    before: Ints
    needs: Ints
    remote: NDArray[np.bool_]
    split: NDArray[np.bool_]
    order: Ints
    waves: Ints

    @classmethod
    def of(cls, schedule: Schedule) -> Graph:
        """The graph of a schedule whose operations are in range and run once each."""
        lengths = np.array([len(row) for row in schedule.ops])
        flat = [op for row in schedule.ops for op in row]
        rank = np.repeat(np.arange(schedule.stages), lengths)
        kinds, numbers, chunks = zip(*flat, strict=True) if flat else ((), (), ())
        code = np.full(128, -1)
        code[[ord(letter) for letter in CODE]] = list(CODE.values())
        kind = code[np.frombuffer("".join(kinds).encode(), dtype=np.uint8)]
        micro_batch = np.array(numbers, dtype=np.int64)
        chunk = np.array(chunks, dtype=np.int64)
        piece = schedule.layout.table()[rank, chunk] if flat else rank

        number = np.arange(len(flat))
        starts = np.concatenate(([0], np.cumsum(lengths)))
        before = number - 1
        before[starts[:-1][lengths > 0]] = -1

        # where[kind, slice + 1, micro-batch]: the margins of -1 stand for "no such neighbour"
        slices, M = schedule.layout.slices, schedule.micro_batches
        where = np.full((3, slices + 2, M), -1)
        timed = kind < 3
        where[kind[timed], piece[timed] + 1, micro_batch[timed]] = number[timed]
        needs = np.full(len(flat), -1)
        for letter, step in (("F", -1), ("B", +1)):
            mine = kind == CODE[letter]
            needs[mine] = where[CODE[letter], piece[mine] + 1 + step, micro_batch[mine]]
        remote = (needs >= 0) & (rank[needs] != rank)
        split = kind == CODE["B"]
        split[split] = where[CODE["W"], piece[split] + 1, micro_batch[split]] >= 0

        order, waves = _waves(starts, needs)
        return cls(
            rank, kind, micro_batch, chunk, piece, before, needs, remote, split, order, waves
        )

    @cached_property
    def place(self) -> Ints:
        """Place of each operation in wave order: ``order[place[n]] == n``."""
        place = np.empty(len(self.order), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        return place

    @cached_property
    def in_wave_order(self) -> tuple[Ints, Ints]:
        """`before` and `needs` with both sides numbered in wave order; N for "nothing"."""
        place = np.append(self.place, len(self.place))  # -1 picks the last one
        return place[self.before[self.order]], place[self.needs[self.order]]

    @cached_property
    def cut(self) -> Ints:
        """Which cut the awaited message crosses, -1 for none: cut c lies behind slice c, and F of
        slice c waits for c - 1, B for c + 1."""
        return np.where(self.remote, self.piece - (self.kind == CODE["F"]), -1)

    @property
    def complete(self) -> bool:
        """False when the schedule deadlocks: some operations can never start."""
        return len(self.order) == len(self.rank)

    def op(self, number: int) -> Op:
        """Operation `number` as an ``Op``."""
        letter = KINDS[self.kind[number]]
        return Op(letter, int(self.micro_batch[number]), int(self.chunk[number]))

    def cycle(self) -> list[tuple[int, Op]]:
        """A circle of (rank, operation) in which each waits for the next; [] when there is none."""
        if self.complete:
            return []
        done = np.zeros(len(self.rank), dtype=bool)
        done[self.order] = True
        here = int(np.flatnonzero(~done)[0])
        path: list[int] = []
        while here not in path:
            path.append(here)
            needed = int(self.needs[here])
            here = needed if needed >= 0 and not done[needed] else int(self.before[here])
        circle = path[path.index(here) :]
        # The links along one rank say little: keep the operations at which ranks meet.
        ends = [
            n
            for i, n in enumerate(circle)
            if self.rank[circle[i - 1]] != self.rank[n]
            or self.rank[circle[(i + 1) % len(circle)]] != self.rank[n]
        ]
        return [(int(self.rank[n]), self.op(n)) for n in ends or circle]


def _waves(starts: Ints, needs: Ints) -> tuple[Ints, Ints]:
    """Let every rank run its next operation as soon as its input exists, wave after wave."""
    done = np.zeros(len(needs) + 1, dtype=bool)
    done[-1] = True  # needs == -1 reads this: nothing to wait for
    head, stop = starts[:-1].copy(), starts[1:]
    alive = np.flatnonzero(head < stop)
    order, sizes = [], []
    while len(alive):
        heads = head[alive]
        ready = done[needs[heads]]
        wave = heads[ready]
        if not len(wave):
            break
        done[wave] = True
        head[alive[ready]] += 1
        if not np.all(head[alive] < stop[alive]):
            alive = alive[head[alive] < stop[alive]]
        order.append(wave)
        sizes.append(len(wave))
    everything = np.concatenate(order) if order else np.empty(0, dtype=np.int64)
    return everything, np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
