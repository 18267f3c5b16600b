"""Clocks of ranks that ran on different machines, laid over each other by the messages they sent.

A message cannot arrive before it was sent. The forward messages from rank a to rank b bound the
difference of their clocks from one side, the backward messages from b to a from the other; the
middle is the estimate, half the distance its largest error. That is how NTP (RFC 5905) sets clocks
by four timestamps; here every micro-batch is another exchange, and the quickest ones count. Where
no messages bound it from both sides, collective operations of all ranks do: they end together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from pplab.core.words import duration
from pplab.traces.imported import Options

if TYPE_CHECKING:
    from pplab.traces.rows import RankTrace

#: Nanoseconds by which a message may arrive too early before clocks are called wrong: profilers
#: turn CPU counters into time, and that is not exact to the microsecond.
TOLERANCE = 50_000

#: kind, step, micro-batch, slice of the model, start, end
Keyed = tuple[str, int, int, int, int, int]


class Bounds(NamedTuple):
    """What messages say about clock b minus clock a, in nanoseconds; None: nothing.

    forward: least time from an end on a to the start on b that needs it; backward: the same from
    b to a. The correction of b against a lies from -forward to +backward.
    """

    forward: int | None
    backward: int | None

    @property
    def wrong(self) -> bool:
        """Whether some message arrived before it was sent."""
        return any(g is not None and g < -TOLERANCE for g in self)

    @property
    def correction(self) -> int:
        """The estimate of what has to be added to b."""
        if self.forward is None or self.backward is None:
            return -min(0, self.forward or 0) + min(0, self.backward or 0)
        return (self.backward - self.forward) // 2

    def error_of(self, correction: int) -> int | None:
        """Largest error of a correction; None when it has no bound."""
        if self.forward is None or self.backward is None:
            return None
        return max(abs(correction + self.forward), abs(self.backward - correction))


@dataclass
class Clocks:
    """Nanoseconds to add to the times of each trace, and what is left, in seconds."""

    shift: list[int]
    residual: float | None = None
    notes: list[str] = field(default_factory=list)


def align(
    traces: list[RankTrace],
    place: list[tuple[int, int]],
    keyed: list[list[Keyed]],
    options: Options,
    *,
    at_end: bool = False,
    sent_within: bool = False,
    assumed: bool = False,
) -> Clocks:
    """Shifts for all traces, along each pipeline from its first rank.

    at_end: a range holds the wait for its message, so only its end comes after the message.
    sent_within: a message leaves somewhere within the range of its operation (and what gloo calls
    its sending may begin after it has gone): only one that arrives before that range begins shows
    that a clock is wrong.
    assumed: nothing says that the ranks form a pipeline: no clock is moved unless asked for.
    """
    if assumed and options.align == "auto":
        return Clocks([0] * len(traces))
    clocks = Clocks([0] * len(traces))
    chains: dict[int, list[int]] = {}
    for number in sorted(range(len(traces)), key=lambda i: place[i]):
        chains.setdefault(place[number][0], []).append(number)
    errors: list[int] = []
    unbounded = False
    for chain in chains.values():
        for a, b in pairwise(chain):
            bounds = bounds_of(keyed[a], keyed[b], at_end)
            sure = bounds_of(keyed[a], keyed[b], at_end, from_start=sent_within)
            wrong = sure.wrong
            apart = bool(traces[a].host and traces[b].host and traces[a].host != traces[b].host)
            met = meetings(traces[a], traces[b])
            clocks.shift[b] = clocks.shift[a]
            if options.align is False or not (options.align is True or wrong or apart):
                left = sure.error_of(0)
                errors += [] if left is None else [left]
                if options.align is False and wrong:
                    clocks.notes.append(_complaint(place[a][1], place[b][1], sure))
                continue
            correction = bounds.correction
            error = sure.error_of(correction)
            if error is None and met is not None:
                correction, error = met
            clocks.shift[b] += correction
            errors += [] if error is None else [error]
            unbounded = unbounded or error is None
            clocks.notes.append(_told(place[a][1], place[b][1], sure, correction, error))
    if errors and not unbounded:
        clocks.residual = max(errors) / 1e9
    return clocks


def bounds_of(
    a: list[Keyed], b: list[Keyed], at_end: bool = False, *, from_start: bool = False
) -> Bounds:
    """What the messages between two ranks say about their clocks.

    from_start: a message may leave as soon as its operation begins.
    """
    sides = at_end, from_start
    return Bounds(_least(a, b, "F", 1, *sides), _least(b, a, "B", -1, *sides))


def _least(
    source: list[Keyed], target: list[Keyed], kind: str, way: int, at_end: bool, from_start: bool
) -> int | None:
    made = {row[1:4]: (row[4] if from_start else row[5]) for row in source if row[0] == kind}
    gaps = []
    for row in target:
        if row[0] == kind:
            end = made.get((row[1], row[2], row[3] - way))
            if end is not None:
                gaps.append((row[5] if at_end else row[4]) - end)
    return min(gaps, default=None)


def meetings(a: RankTrace, b: RankTrace) -> tuple[int, int] | None:
    """(correction of b, error) from collective operations of all ranks; None without any."""
    if not a.meetings or [name for name, _ in a.meetings] != [name for name, _ in b.meetings]:
        return None
    apart = [mine - theirs for (_, mine), (_, theirs) in zip(a.meetings, b.meetings, strict=True)]
    return int(median(apart)), (max(apart) - min(apart)) // 2


def _complaint(a: int, b: int, bounds: Bounds) -> str:
    worst = min(g for g in bounds if g is not None)
    return (
        f"the clocks of rank {a} and rank {b} disagree: a message arrives "
        f"{duration(-worst / 1e9, 's')} before it was sent"
    )


def _told(a: int, b: int, bounds: Bounds, correction: int, error: int | None) -> str:
    if bounds.wrong:
        text = _complaint(a, b, bounds)
    else:
        text = f"rank {a} and rank {b} read different clocks"
    ways = "earlier" if correction < 0 else "later"
    text += f"; rank {b} was moved {duration(abs(correction) / 1e9, 's')} {ways}"
    if error is None:
        return text + ", the least that puts this right: nothing says how much is still wrong"
    text += f", and may still be {duration(error / 1e9, 's')} off"
    if sum(gap or 0 for gap in bounds) < -TOLERANCE and None not in bounds:
        text += (
            " (no fixed shift puts every message right: did a clock drift, or are these no "
            "neighbours in a pipeline? stages=... or --stages says how many form one)"
        )
    return text
