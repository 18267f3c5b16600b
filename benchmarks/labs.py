"""Labs and quizzes: misconceptions recognised, of those listed in shared/course.md.

The table of answers that give each of them away is in tests/unit/test_teach_misconceptions.py.
"""

from __future__ import annotations

from typing import Any

from benchmarks.report import entry
from pplab.teach.misconceptions import MISCONCEPTIONS
from tests.unit.test_teach_misconceptions import GIVEN_AWAY, recognised


def run() -> list[dict[str, Any]]:
    """All figures."""
    found = recognised()
    missed = sorted(set(MISCONCEPTIONS) - found)
    how = (
        f"listed misconceptions that a question recognises by name, of {len(MISCONCEPTIONS)}, from "
        f"{len(GIVEN_AWAY)} wrong answers" + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    share = 100 * len(found) / len(MISCONCEPTIONS)
    return [entry("labs.misconceptions", share, "%", 100, "higher", how)]
