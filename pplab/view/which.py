"""Which schedule when: for each case the fastest one that is allowed, with the reason, computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pplab.core.words import aligned
from pplab.view import words
from pplab.view.scoreboard import html_table
from pplab.view.scores import Makers, Numbers, Score, named, score


@dataclass(frozen=True)
class Case(Numbers):
    """Numbers of a pipeline, and what one is ready to accept.

    cap: most activations of a stage that a rank may hold, None for as many as it likes
    split: the framework can run B and W apart; chunks: a rank may hold several chunks
    old: gradients of older weights are fine; sync: all ranks wait for each other at the end of a
    step (DeepSpeed's optimizer step does), so that its length counts and not each rank's part
    """

    stages: int = 8
    micro_batches: int = 32
    cap: float | None = None
    split: bool = False
    chunks: bool = True
    old: bool = False
    sync: bool = True

    def time(self, one: Score) -> float:
        """What a step takes in this case."""
        return one.step if self.sync else one.span

    def forbids(self, one: Score) -> str:
        """Why a schedule that runs is out of the question here, "" when it is not."""
        if one.split and not self.split:
            return "needs B and W apart"
        if one.stream and not self.old:
            return "older weights"
        if one.chunks > 1 and not self.chunks:
            return f"needs {one.chunks} chunks a rank"
        if not one.fits(self.cap):
            return f"holds {words.number(one.peak)}"
        return ""


#: The cases of the default table, chosen so that each schedule is the answer to one of them, if
#: it is the answer to anything. The answers are computed.
CASES = (
    Case(),
    Case(cap=8),
    Case(micro_batches=30),
    Case(link=0.5),
    Case(link=0.5, chunks=False),
    Case(link=0.5, cap=8),
    Case(split=True),
    Case(split=True, micro_batches=8),
    Case(split=True, cap=8),
    Case(split=True, sync=False),
    Case(old=True, cap=8),
    Case(cap=4),
)
#: How a field of a case is said; "" for what goes without saying.
_WORDS: dict[str, Callable[[Any], str]] = {
    "stages": lambda value: f"P = {value}",
    "micro_batches": lambda value: f"M = {value}",
    "forward": lambda value: f"F = {value:g}",
    "backward": lambda value: f"B + W = {value:g}",
    "weight": lambda value: f"W = {value:g}",
    "link": lambda value: f"a message takes {value:g}" if value else "",
    "cap": lambda value: "no cap" if value is None else f"cap {value:g}",
    "split": lambda value: "B and W apart" if value else "",
    "chunks": lambda value: "" if value else "one chunk a rank",
    "old": lambda value: "older weights accepted" if value else "",
    "sync": lambda value: "" if value else "no wait after a step",
}


@dataclass(frozen=True)
class Choice:
    """The best schedule of a case; `best` is None when none is allowed. `scores` has them all."""

    case: Case
    scores: tuple[Score, ...]

    @cached_property
    def allowed(self) -> list[Score]:
        """What may be used, best first: by time, then activations, weight versions, messages."""
        case = self.case
        found = [one for one in self.scores if one.runs and not case.forbids(one)]
        return sorted(
            found,
            key=lambda one: (round(case.time(one), 9), one.peak, one.versions, one.messages),
        )

    @property
    def best(self) -> Score | None:
        """The fastest that is allowed."""
        return self.allowed[0] if self.allowed else None

    @property
    def reason(self) -> str:
        """Why this one: what the next best would cost, and why faster ones are out."""
        best = self.best
        if best is None:
            return self._nothing()
        time, parts = self.case.time, []
        if len(self.allowed) > 1:
            parts.append(_against(best, self.allowed[1], time(best), time(self.allowed[1])))
        out: dict[str, list[str]] = {}
        for one in self.scores:
            if one.runs and time(one) < time(best) * (1 - 1e-9):
                out.setdefault(self.case.forbids(one), []).append(one.name)
        if out:
            faster = (f"{reason} ({', '.join(names)})" for reason, names in out.items())
            parts.append("faster, but out: " + ", ".join(faster))
        broken = [one.name for one in self.scores if not one.runs]
        if broken:
            parts.append("cannot run with these numbers: " + ", ".join(broken))
        return "; ".join(parts)

    def _nothing(self) -> str:
        able = [one for one in self.scores if one.runs]
        if not able:
            return "none can run with these numbers"
        least = min(able, key=lambda one: one.peak)
        return (
            f"none fits: {least.name} needs least, {words.number(least.peak)} activations a rank; "
            "recompute activations, or make micro-batches smaller"
        )


def _against(best: Score, other: Score, own: float, theirs: float) -> str:
    """The best one beside the next best."""
    if theirs > own * (1 + 1e-9):
        return f"{other.name} takes {theirs / own - 1:.1%} longer"
    pairs = (
        (best.peak, other.peak, "activations"),
        (best.versions, other.versions, "weight versions"),
        (best.messages, other.messages, "messages"),
    )
    for mine, its, what in pairs:
        if mine != its:
            numbers = f"{words.number(mine)} {what} instead of {words.number(its)}"
            return f"as fast as {other.name}, with {numbers}"
    return f"no better and no worse than {other.name}"


class Choices(list[Choice]):
    """One choice a case, printed as a table: what differs between the cases, and the answer."""

    def table(self) -> list[list[str]]:
        """Head and rows as text."""
        rows = [["Case", "Best", "Step", "Peak", "Why"]]
        differs = [name for name in _WORDS if len({_say(c.case, name) for c in self}) > 1]
        for choice in self:
            said = filter(None, (_say(choice.case, name) for name in differs))
            best = choice.best
            numbers = [choice.case.time(best), best.peak] if best else []
            cells = [words.number(value) for value in numbers] or ["-", "-"]
            name = best.name if best else "none"
            rows.append([", ".join(said) or "this case", name, *cells, choice.reason])
        return rows

    def caption(self) -> str:
        """What all cases have in common."""
        texts = ({_say(c.case, name) for c in self} for name in _WORDS)
        shared = ", ".join(filter(None, (said.pop() for said in texts if len(said) == 1)))
        start = "The fastest schedule under the cap, by simulation"
        return f"{start} ({shared})." if shared else f"{start}."

    def __str__(self) -> str:
        return f"[simulated] {self.caption()}\n{aligned(self.table())}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.table(), self.caption())


def _say(case: Case, name: str) -> str:
    return _WORDS[name](getattr(case, name))


def which_schedule(
    cases: Iterable[Case] | None = None, *, schedules: Makers | None = None
) -> Choices:
    """For each case the fastest schedule that is allowed, and why: a table that computes itself.

    `cases` default to a dozen that bring out what each schedule is for; `schedules` (makers or
    short names) default to all published ones. Ties go to the one with fewer activations, then
    fewer weight versions, then fewer messages.
    """
    makers = named(schedules)
    chosen = list(CASES if cases is None else cases)
    if not chosen:
        raise ValueError("give at least one case")
    return Choices(
        Choice(case, tuple(score(maker, case, name) for name, maker in makers.items()))
        for case in chosen
    )
