"""What can be read off a timeline: bubble, busy and idle time, phases, critical path, memory.

**Bubble fraction = idle / total = 1 - useful / total**, over ranks x (first operation's start to
last operation's end of the step). Useful is F, B, W and U. For equal stages and free messages this
is (P-1)/(M+P-1) (GPipe, arXiv 1811.06965). The other ratio in use, idle / useful = (P-1)/M
(Megatron-LM, arXiv 2104.04473), is called *bubble overhead* here and never just "the bubble".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pplab.core.ops import CODE, KINDS, USEFUL, WHOLE_STEP, Op
from pplab.core.timeline import Timeline, useful
from pplab.core.words import duration

Floats = NDArray[np.float64]


class Phase(NamedTuple):
    """Part of a rank's step: warm-up (before its first B), steady, drain (after its last F)."""

    name: str
    start: float
    end: float


class Link(NamedTuple):
    """One operation of the critical path and what it waited for last."""

    rank: int
    op: Op
    start: float
    end: float
    waited_for: str  # "start of the step", "rank" (own previous operation) or "message"


@dataclass(frozen=True, eq=False)
class Measures:
    """Numbers of one timeline; times are in its unit. Several steps are averaged."""

    timeline: Timeline

    # -- time -----------------------------------------------------------------------------------

    @cached_property
    def _windows(self) -> Floats:
        """First start and last end of the useful work of each step; shape (steps, 2)."""
        t = self.timeline
        work = useful(t)
        rows = [t.step[work] == s for s in t.steps]
        starts, ends = t.start[work], t.end[work]
        return np.array([[starts[r].min(), ends[r].max()] for r in rows if r.any()]).reshape(-1, 2)

    @property
    def _first_step(self) -> int:
        return min(self.timeline.steps, default=0)

    @cached_property
    def window(self) -> float:
        """Total length of the steps, first operation's start to last operation's end of each."""
        return float(np.sum(self._windows[:, 1] - self._windows[:, 0]))

    @property
    def step_time(self) -> float:
        """Mean length of a step."""
        return self.window / max(1, len(self._windows))

    @cached_property
    def busy(self) -> Floats:
        """Useful time per rank and step, the mean over replicas; shape (ranks,)."""
        t = self.timeline
        work = useful(t)
        total = np.bincount(
            t.rank[work], weights=(t.end - t.start)[work], minlength=t.layout.stages
        )
        return total / max(1, len(self._windows)) / max(1, len(t.replicas))

    @property
    def idle(self) -> Floats:
        """Time per rank and step without useful work; shape (ranks,)."""
        return self.step_time - self.busy

    @property
    def bubble(self) -> float:
        """Idle / total; 0 for an empty timeline."""
        total = self.step_time * self.timeline.layout.stages
        return float(np.sum(self.idle)) / total if total else 0.0

    @property
    def bubble_overhead(self) -> float:
        """Idle / useful: how much longer than without any idle time; (P-1)/M in the ideal case."""
        work = float(np.sum(self.busy))
        return float(np.sum(self.idle)) / work if work else 0.0

    @property
    def useful_span(self) -> Floats:
        """First start to last end of each rank's own useful work, mean over steps; (ranks,).

        The largest of these is the cost in the Zero Bubble paper's bubble rate.
        """
        t = self.timeline
        work = useful(t)
        spans = np.zeros((max(1, len(t.steps)), t.layout.stages))
        for row, step in enumerate(t.steps):
            for rank in range(t.layout.stages):
                mine = work & (t.step == step) & (t.rank == rank)
                if mine.any():
                    spans[row, rank] = t.end[mine].max() - t.start[mine].min()
        return spans.mean(axis=0)

    @property
    def steady_bubble(self) -> float:
        """Idle / total while every rank is in its steady phase; nan when there is no such time.

        Of a stream of micro-batches without a flush (PipeDream), the first step only: what is
        left of the bubble once the pipeline is full.
        """
        t = self.timeline.only(step=self._first_step, kinds=USEFUL)
        every = [self.phases(rank, r) for r in t.replicas for rank in range(t.layout.stages)]
        if not every or not all(every):
            return float("nan")
        begin = max(phases[1].start for phases in every)
        end = min(phases[1].end for phases in every)
        if end <= begin:
            return float("nan")
        inside = np.minimum(t.end, end) - np.maximum(t.start, begin)
        return 1 - float(inside.clip(0).sum()) / (len(every) * (end - begin))

    def phases(self, rank: int, replica: int = 0) -> tuple[Phase, ...]:
        """Warm-up, steady and drain of one rank in the first recorded step."""
        t = self.timeline
        mine = (t.rank == rank) & (t.replica == replica) & (t.step == self._first_step)
        forward, backward = mine & t.is_kind("F"), mine & t.is_kind("B")
        if not forward.any() or not backward.any():
            return ()
        begin, first_b = float(t.start[forward].min()), float(t.start[backward].min())
        last_f, end = float(t.end[forward].max()), float(t.end[mine & t.is_kind("FBW")].max())
        drain = max(last_f, first_b)
        return (
            Phase("warm-up", begin, first_b),
            Phase("steady", first_b, drain),
            Phase("drain", drain, end),
        )

    # -- who waits for whom ------------------------------------------------------------------------

    def critical_path(self, replica: int = 0) -> list[Link]:
        """The chain of operations that sets the length of the (first) step, first to last.

        Walks back from the operation that ends last: before each one stands whichever of its two
        predecessors (previous on the rank, producer of its input) released it last. A predecessor
        releases at its end plus the least delay that its kind shows anywhere in the step, which
        is the launch overhead for the rank and the message time for a message.
        """
        t = self.timeline.only(step=self._first_step, replica=replica, kinds="FBWU")
        if not len(t):
            return []
        previous, producer = _predecessors(t)
        overhead, message = _least_delay(t, previous), _least_delay(t, producer)
        here, chain = int(np.argmax(t.end)), []
        while here >= 0:
            best, why, released = -1, "start of the step", -np.inf
            for before, delay, word in (
                (int(previous[here]), overhead, "rank"),
                (int(producer[here]), message, "message"),
            ):
                if before >= 0 and t.end[before] + delay > released:
                    best, why, released = before, word, float(t.end[before] + delay)
            op = Op(KINDS[t.kind[here]], int(t.micro_batch[here]), int(t.chunk[here]))
            chain.append(Link(int(t.rank[here]), op, float(t.start[here]), float(t.end[here]), why))
            here = best
        return chain[::-1]

    # -- memory ---------------------------------------------------------------------------------

    def in_flight(self, rank: int, replica: int = 0) -> tuple[Floats, NDArray[np.int64]]:
        """Activations a rank holds over time: (times, counts), counts[i] from times[i] on.

        One activation is what F of one micro-batch through one chunk keeps for its backward pass:
        from the start of that F to the end of its B, or of its W where the backward is split.
        """
        t = self.timeline
        mine = (t.rank == rank) & (t.replica == replica) & (t.step == self._first_step)
        keys = t.micro_batch.astype(np.int64) * t.layout.chunks + t.chunk
        forward = mine & (t.kind == CODE["F"])
        weight = mine & (t.kind == CODE["W"])
        backward = mine & (t.kind == CODE["B"]) & ~np.isin(keys, keys[weight])
        times = np.concatenate([t.start[forward], t.end[backward | weight]])
        change = np.concatenate(
            [np.ones(forward.sum(), dtype=np.int64), -np.ones((backward | weight).sum(), np.int64)]
        )
        order = np.lexsort((change, times))  # at equal times free first
        return times[order], np.cumsum(change[order])

    def peak_in_flight(self, replica: int = 0) -> NDArray[np.int64]:
        """Largest number of activations each rank holds at once; shape (ranks,)."""
        ranks = range(self.timeline.layout.stages)
        return np.array([self.in_flight(r, replica)[1].max(initial=0) for r in ranks])

    # -- words ------------------------------------------------------------------------------------

    def sentence(self) -> str:
        """One sentence that says what a picture of the timeline shows."""
        t = self.timeline
        if not len(t):
            return "an empty timeline"
        length = duration(self.step_time, t.unit)
        who = f"{t.layout.stages} ranks" if t.layout.stages > 1 else "1 rank"
        if len(t.replicas) > 1:
            who = f"{len(t.replicas)} replicas of {who}"
        name = f", {t.schedule}" if t.schedule else ""
        most = int(np.argmax(self.idle))
        even = np.ptp(self.idle) <= 0.005 * max(self.step_time, 1e-12)
        which = "all ranks alike" if even else f"rank {most} idle most"
        batches = f"{t.micro_batches} micro-batch{'es' * (t.micro_batches != 1)}"
        return f"{who}, {batches}{name}: step {length}, {self.bubble:.0%} idle, {which}"


def _predecessors(t: Timeline) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row of one step and replica: previous row of its rank, producer on another rank.

    -1 where there is none. An optimizer step that starts only after all ranks are done waits for
    the F, B or W that ends last, and for nothing else.
    """
    rows = np.arange(len(t))
    previous = np.where((rows > 0) & (t.rank == np.roll(t.rank, 1)), rows - 1, -1)
    producer = np.full(len(t), -1)
    piece = t.layout.table()[t.rank, t.chunk] + 1
    where = np.full((len(KINDS), t.layout.slices + 2, t.micro_batches + 1), -1)
    where[t.kind, piece, t.micro_batch] = rows
    for letter, step in (("F", -1), ("B", +1)):
        mine = t.is_kind(letter)
        producer[mine] = where[CODE[letter], piece[mine] + step, t.micro_batch[mine]]
    producer[t.rank[producer] == t.rank] = -1  # its order on the rank says more
    work = np.flatnonzero(t.is_kind("FBW"))
    if len(work):
        last = work[np.argmax(t.end[work])]
        after_all = t.is_kind("U") & (t.micro_batch == WHOLE_STEP) & (t.start >= t.end[last])
        previous[after_all], producer[after_all] = -1, last
    return previous, producer


def _least_delay(t: Timeline, before: NDArray[np.int64]) -> float:
    """Least time from the end of a predecessor to the start of its row; 0 when there is none."""
    rows = np.flatnonzero((before >= 0) & t.is_kind("FBW"))
    if not len(rows):
        return 0.0
    return max(0.0, float(np.min(t.start[rows] - t.end[before[rows]])))
