"""What a check says of an answer: not attempted, wrong, right or blocked, and why."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

#: The states of a question, and the sign that stands before each where it is shown.
STATES = {"not attempted": "○", "wrong": "✗", "right": "✓", "blocked": "◇"}
#: What stands for "no answer yet" in the cell of a lab.
UNANSWERED = (None, ...)


class NotRight(AssertionError):
    """An answer that is not right, where that has to stop the notebook (see ``require``)."""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one answer.

    state: a key of STATES; reason: sentences that fit this very answer, "" when there is none to
    give; misconception: id of the recognised mistake (see ``misconceptions``), "" when none was;
    measured: what was measured to find out, which differs from run to run
    """

    state: str
    reason: str = ""
    misconception: str = ""
    measured: str = ""

    @property
    def ok(self) -> bool:
        """True when the answer is right."""
        return self.state == "right"

    def require(self) -> None:
        """Raise NotRight unless the answer is right, or this machine cannot judge it."""
        if self.state not in ("right", "blocked"):
            raise NotRight(str(self))

    def __str__(self) -> str:
        link = {"wrong": ", because ", "right": ": ", "blocked": ": ", "not attempted": ": "}
        words = f"{self.state}{link[self.state]}{self.reason}" if self.reason else self.state
        more = f"\n[measured] {self.measured}" if self.measured else ""
        return f"{STATES[self.state]} {words}{more}"

    __repr__ = __str__

    def as_json(self) -> dict[str, Any]:
        """What the page needs to show it."""
        return {"state": self.state, "sign": STATES[self.state], "reason": self.reason}

    def _repr_html_(self) -> str:
        because = ", because" if self.state == "wrong" and self.reason else ""
        head = escape(f"{STATES[self.state]} {self.state}{because}")
        more = f"<br>\n[measured] {escape(self.measured)}" if self.measured else ""
        return f"<p><b>{head}</b> {escape(self.reason)}{more}\n</p>"


def right(reason: str = "", measured: str = "") -> Verdict:
    """The answer is right."""
    return Verdict("right", reason, measured=measured)


def wrong(reason: str, misconception: str = "", measured: str = "") -> Verdict:
    """The answer is wrong; `reason` goes on after "because"."""
    return Verdict("wrong", reason, misconception, measured)


def not_attempted(reason: str = "") -> Verdict:
    """There is no answer yet."""
    return Verdict("not attempted", reason)


def blocked(reason: str) -> Verdict:
    """This machine lacks what judging the answer takes."""
    return Verdict("blocked", reason)


def unanswered(answer: Any) -> bool:
    """True when an answer, or one of several, still is what the notebook came with."""
    parts = answer if isinstance(answer, list | tuple) else (answer,)
    return any(part is nothing for part in parts for nothing in UNANSWERED)
