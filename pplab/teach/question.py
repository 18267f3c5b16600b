"""Questions of a quiz: choose an answer, or give a number. Each wrong one has its own reason.

The questions of the labs measure what they are given (see ``lab``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pplab.teach.verdict import Verdict, not_attempted, right, unanswered, wrong


@dataclass(frozen=True)
class Option:
    """One answer to choose: its text, and what is said to who chooses it."""

    text: str
    why: str
    right: bool = False
    misconception: str = ""


@dataclass(frozen=True)
class Choice:
    """A question with one right option; the answer is the number of an option, from 0."""

    text: str
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        if sum(option.right for option in self.options) != 1:
            raise ValueError(f"one option is right, not more and not fewer: {self.text!r}")

    def judge(self, answer: Any) -> Verdict:
        """Right, or wrong with the reason of that option."""
        if unanswered(answer) or answer == "":
            return not_attempted()
        try:
            option = self.options[_place(answer, len(self.options))]
        except (TypeError, ValueError, IndexError):
            return wrong(f"{answer!r} is none of the {len(self.options)} options.")
        if option.right:
            return right(option.why)
        return wrong(option.why, option.misconception)


def _place(answer: Any, count: int) -> int:
    if isinstance(answer, bool) or int(answer) != float(answer) or not 0 <= int(answer) < count:
        raise ValueError
    return int(answer)


@dataclass(frozen=True)
class Mistake:
    """A wrong number that says how it came about."""

    value: float
    why: str
    misconception: str = ""


@dataclass(frozen=True)
class Number:
    """A question whose answer is a number.

    unit:      shown behind the field; with "%" values are per cent, and 0.27 is taken for 27 %
    tolerance: how far off a right answer may be, in the unit
    mistakes:  wrong numbers that are recognised, within the same tolerance, the first one first
    """

    text: str
    value: float
    why: str
    mistakes: tuple[Mistake, ...] = ()
    unit: str = ""
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        for mistake in self.mistakes:
            if abs(mistake.value - self.value) <= 2 * self.tolerance:
                raise ValueError(f"{mistake.value} cannot be told from the right {self.value}")

    def judge(self, answer: Any) -> Verdict:
        """Right, wrong with the reason of a recognised number, or wrong with the direction."""
        if unanswered(answer) or (isinstance(answer, str) and not answer.strip()):
            return not_attempted()
        number = number_of(answer)
        if number is None:
            return wrong(f"{answer!r} is not a number.")
        for value in (number, 100 * number) if self.unit == "%" and number < 1 else (number,):
            if abs(value - self.value) <= self.tolerance:
                return right(self.why)
            for mistake in self.mistakes:
                if abs(value - mistake.value) <= self.tolerance:
                    return wrong(mistake.why, mistake.misconception)
        return wrong("it is " + ("smaller." if number > self.value else "larger."))


def number_of(answer: Any) -> float | None:
    """The number that somebody means: 3, "27.3 %", "1,5"; None when it is none."""
    if isinstance(answer, bool):
        return None
    if isinstance(answer, str):
        answer = answer.strip().rstrip("%").strip().replace(",", ".").replace("−", "-")
        if "/" in answer:
            above, _, below = answer.partition("/")
            try:
                return float(above) / float(below)
            except (ValueError, ZeroDivisionError):
                return None
    try:
        number = float(answer)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
