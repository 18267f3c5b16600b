"""Labs and quizzes: misconceptions recognised, of those listed in shared/course.md; a class of
thirty at once (see ``learners``); how long all notebooks take under nbval.

The table of answers that give each misconception away is in
tests/unit/test_teach_misconceptions.py; the seconds of the notebooks are those `make live` noted.
"""

from __future__ import annotations

from typing import Any

from benchmarks import learners
from benchmarks.report import entry
from pplab.teach.misconceptions import MISCONCEPTIONS
from tests.notebooks import timing
from tests.unit.test_teach_misconceptions import GIVEN_AWAY, recognised


def run() -> list[dict[str, Any]]:
    """All figures."""
    return [misconceptions(), nbval(), *learners.run()]


def nbval() -> dict[str, Any]:
    """Minutes of all notebooks under nbval, as the last `make live` noted them."""
    minutes, how = timing.minutes()
    return entry("labs.nbval_min", minutes, "min", 12, "lower", how)


def misconceptions() -> dict[str, Any]:
    """The share of the listed misconceptions that some question recognises."""
    found = recognised()
    missed = sorted(set(MISCONCEPTIONS) - found)
    how = (
        f"listed misconceptions that a question recognises by name, of {len(MISCONCEPTIONS)}, from "
        f"{len(GIVEN_AWAY)} wrong answers" + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    share = 100 * len(found) / len(MISCONCEPTIONS)
    return entry("labs.misconceptions", share, "%", 100, "higher", how)
