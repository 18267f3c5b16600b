"""What the checks of several labs have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pplab.core.ops import USEFUL
from pplab.core.schedule import Schedule, ScheduleMaker
from pplab.core.timeline import Timeline
from pplab.teach.question import Mistake, number_of
from pplab.teach.verdict import Verdict, right, wrong

AS_SHARE = "a share lies between 0 and 1: write 0.25 for 25 %."


def near(answer: float, value: float, within: float) -> bool:
    """Whether a number is a value, `within` a share of it (0.05: to 5 %)."""
    return abs(answer - value) <= within * abs(value)


def numbers_of(answer: Any, count: int) -> list[float] | None:
    """That many numbers, however they are written (see ``number_of``); None when it is not that."""
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        return None
    given = [number_of(one) for one in answer]
    found = [one for one in given if one is not None]
    return found if len(given) == len(found) == count else None


def number(
    answer: Any,
    value: float,
    why: str,
    *mistakes: Mistake,
    also: Iterable[float] = (),
    within: float = 0.02,
    measured: str = "",
) -> Verdict:
    """Judge a number against a measured value; wrong ones that are known say how they come about.

    also: what other right ways give; a busy machine sets them apart from `value`.
    Where an answer is near several, the nearest one counts.
    """
    given = number_of(answer)
    if given is None:
        return wrong(f"{answer!r} is not a number.")
    value = min((value, *also), key=lambda one: abs(one - given))
    known = [m for m in mistakes if near(given, m.value, within)]
    best = min(known, key=lambda m: abs(m.value - given), default=None)
    if near(given, value, within) and (
        best is None or abs(value - given) <= abs(best.value - given)
    ):
        return right(why, measured)
    if best is not None:
        return wrong(best.why, best.misconception, measured)
    return wrong("it is " + ("smaller." if given > value else "larger."), measured=measured)


def is_per_cent(given: float | None) -> bool:
    """Whether a number is 25 where 0.25 is meant."""
    return given is not None and 1 < given <= 100


def share(answer: Any, value: float, why: str, *mistakes: Mistake, **options: Any) -> Verdict:
    """``number`` for a share: 25 where 0.25 is meant is told so."""
    if is_per_cent(number_of(answer)):
        return wrong(AS_SHARE)
    return number(answer, value, why, *mistakes, **options)


def lengths(step: Timeline) -> list[float]:
    """Seconds from the first span to the last: of the useful ones, and of all kinds.

    The second one is longer on a busy machine: ranks wait in a receive until rank 0 gets to F0.
    """
    spans = (step.only(kinds=USEFUL), step)
    return [float(some.end.max() - some.start.min()) for some in spans]


def bubbles(step: Timeline) -> list[float]:
    """The bubble of one step for each of its lengths; the first one is ``step.bubble``."""
    useful = float(step.measures.busy.sum()) / step.stages
    return [1 - useful / length for length in lengths(step)]


def plan_of(answer: Any, stages: int, micro_batches: int) -> Schedule | Verdict:
    """The schedule an answer makes; a verdict where it makes none that can run."""
    if isinstance(answer, ScheduleMaker):
        plan = answer(stages=stages, micro_batches=micro_batches)
    elif isinstance(answer, Schedule):
        plan = answer
    else:
        return wrong(
            f"{type(answer).__name__} is no schedule: put @pplab.schedule above a generator."
        )
    if any("gets None instead of" in str(problem) for problem in plan.problems):
        return Verdict("not attempted", "your schedule yields nothing yet.")
    if plan.problems:
        return wrong(f"with P = {stages} and M = {micro_batches}, {plan.problems[0]}.")
    return plan


def listing(values: Iterable[Any]) -> str:
    """Numbers with commas between them."""
    return ", ".join(f"{value:g}" for value in values)
