"""What waits for what in recorded steps, as a network that can be replayed with other times.

Every recorded operation is a node, and so is every message and every collective operation:

    start = latest end of everything it waits for + delay,    end = start + work

`delay` is what was lost between the two in the record (launching, bookkeeping). Replayed with its
own works and delays the network gives the recorded step again; replayed with others it says what
the step would have been. Several steps and replicas are replayed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: What a node can be. FORWARD and BACKWARD are messages, named by the operation that makes them;
#: JOIN takes no time: the moment at which the last member of a collective operation is there.
ROLES = ("F", "B", "W", "L", "FORWARD", "BACKWARD", "S", "G", "U", "JOIN")
ROLE = {name: code for code, name in enumerate(ROLES)}


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes as columns of length N, and edges.

    step, replica, rank, piece, micro_batch: int64 (a message has those of the operation that makes
    it); role: index into ROLES; label: the node's own name where several share a role ("" mostly);
    work, delay: seconds; start, end: as recorded, seconds. before[i] must end before after[i]
    starts. `steps` holds the numbers of the steps, in order.
    """

    step: Ints
    replica: Ints
    rank: Ints
    piece: Ints
    micro_batch: Ints
    role: Ints
    label: NDArray[np.str_]
    work: Floats
    delay: Floats
    start: Floats
    end: Floats
    before: Ints
    after: Ints
    layout_slices: int
    ranks: int
    notes: tuple[str, ...] = ()

    def is_role(self, *names: str) -> Bools:
        """Which nodes have one of these roles."""
        return np.isin(self.role, [ROLE[name] for name in names])

    @cached_property
    def steps(self) -> Ints:
        """Numbers of the steps."""
        return np.unique(self.step)

    @cached_property
    def replicas(self) -> Ints:
        """Numbers of the replicas."""
        return np.unique(self.replica)

    @cached_property
    def row(self) -> Ints:
        """Place of each node's step in `steps`."""
        return np.searchsorted(self.steps, self.step)

    @cached_property
    def _levels(self) -> list[tuple[Ints, Ints, Ints]]:
        """(nodes, sources of their edges, where each node's edges begin), in order of replay."""
        count = len(self.step)
        missing = np.bincount(self.after, minlength=count)
        by_source = np.argsort(self.before, kind="stable")
        begin = np.searchsorted(self.before[by_source], np.arange(count + 1))
        by_target = np.argsort(self.after, kind="stable")
        sources = self.before[by_target]
        first = np.searchsorted(self.after[by_target], np.arange(count + 1))
        ready, levels, done = np.flatnonzero(missing == 0), [], 0
        while len(ready):
            edges = _ranges(first[ready], first[ready + 1])
            lengths = first[ready + 1] - first[ready]
            starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
            levels.append((ready, sources[edges], starts))
            done += len(ready)
            outgoing = self.after[by_source[_ranges(begin[ready], begin[ready + 1])]]
            np.subtract.at(missing, outgoing, 1)
            touched = np.unique(outgoing)
            ready = touched[missing[touched] == 0]
        if done < count:
            raise ValueError(
                "the record contradicts itself: operations wait for each other in a circle "
                "(clocks of different machines that are not aligned look like this, and ranks "
                "that are no stages of one pipeline: stages=... or --stages says how many form one)"
            )
        return levels

    def replay(self, work: Floats | None = None, delay: Floats | float | None = None) -> Floats:
        """End of every node when they take `work` and lose `delay` (default: as recorded); (N,).

        Every step starts at 0.
        """
        work = self.work if work is None else work
        lost = np.broadcast_to(self.delay if delay is None else delay, work.shape)
        end = np.zeros(len(work))
        for nodes, sources, starts in self._levels:
            begin = np.zeros(len(nodes))
            if len(sources):
                begin = np.maximum.reduceat(end[sources], starts)
            end[nodes] = begin + lost[nodes] + work[nodes]
        return end

    def step_times(self, work: Floats | None = None, delay: Floats | float | None = None) -> Floats:
        """Length of every step in a replay; shape (steps,)."""
        return self.longest(self.replay(work, delay))

    def longest(self, end: Floats, nodes: Bools | None = None) -> Floats:
        """Latest of `end` in every step, over some nodes; shape (steps,)."""
        found = np.zeros(len(self.steps))
        rows = self.row if nodes is None else self.row[nodes]
        np.maximum.at(found, rows, end if nodes is None else end[nodes])
        return found

    @cached_property
    def recorded(self) -> Floats:
        """Length of every step as recorded, first start to last end; shape (steps,)."""
        first = np.full(len(self.steps), np.inf)
        np.minimum.at(first, self.row, self.start)
        return self.longest(self.end - first[self.row])

    def with_delays(self) -> Network:
        """The same network with `delay` such that a replay gives the recorded times.

        Only where it is NaN: the others are known already. A node that started before what it
        waits for had ended (clocks that differ a little) has no delay.
        """
        first = np.full(len(self.steps), np.inf)
        np.minimum.at(first, self.row, self.start)
        start, end = self.start - first[self.row], self.end - first[self.row]
        delay = np.zeros(len(self.work))
        for nodes, sources, starts in self._levels:
            begin = np.zeros(len(nodes))
            if len(sources):
                begin = np.maximum.reduceat(end[sources], starts)
            delay[nodes] = np.maximum(start[nodes] - begin, 0.0)
        return replace(self, delay=np.where(np.isnan(self.delay), delay, self.delay))


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _ranges(first: Ints, last: Ints) -> Ints:
    """first[0]..last[0], first[1]..last[1], ... as one array."""
    lengths = last - first
    total = int(lengths.sum())
    if not total:
        return np.empty(0, dtype=np.int64)
    shift = np.repeat(first - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return np.arange(total) + shift


@dataclass
class Builder:
    """Collects nodes and edges one after the other."""

    rows: list[tuple[int, int, int, int, int, int, str, float, float, float, float]] = field(
        default_factory=list
    )
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def node(
        self,
        role: str,
        where: tuple[int, int, int],
        start: float,
        end: float,
        *,
        piece: int = -1,
        micro_batch: int = -1,
        work: float | None = None,
        delay: float = float("nan"),
        label: str = "",
        waits_for: tuple[int | None, ...] = (),
    ) -> int:
        """Add a node; `where` is (step, replica, rank). Returns its number.

        A `delay` that is not given is read off the record in the end.
        """
        number = len(self.rows)
        lasts = max(0.0, end - start) if work is None else max(0.0, work)
        self.rows.append((*where, piece, micro_batch, ROLE[role], label, lasts, start, end, delay))
        for other in waits_for:
            if other is not None:
                self.edge(other, number)
        return number

    def edge(self, before: int, after: int) -> None:
        """`after` starts once `before` has ended."""
        self.before.append(before)
        self.after.append(after)

    def network(self, slices: int, ranks: int, notes: tuple[str, ...] = ()) -> Network:
        """The network, with the delays that the record shows."""
        columns = zip(*self.rows, strict=True)
        step, replica, rank, piece, m, role, label, work, start, end, delay = columns
        return Network(
            step=_ints(step),
            replica=_ints(replica),
            rank=_ints(rank),
            piece=_ints(piece),
            micro_batch=_ints(m),
            role=_ints(role),
            label=np.array(label),
            work=np.array(work),
            delay=np.array(delay),
            start=np.array(start),
            end=np.array(end),
            before=_ints(self.before),
            after=_ints(self.after),
            layout_slices=slices,
            ranks=ranks,
            notes=notes,
        ).with_delays()
