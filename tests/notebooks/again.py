"""Which cells to run again when a check of measured values fails.

A learner whose machine was busy with something else runs the cells again; so does the test. A
claim that is false stays false however often it is measured, and every repetition is a warning in
pytest's summary: it can be seen when a claim begins to hold only now and then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

#: How often a check may be tried, the first time included.
TIMES = 3
#: A cell that checks: a sentence of a chapter, or a question of a lab.
CHECKS = re.compile(r"^\s*(holds\(|lab\.check\()", re.MULTILINE)


class MeasuredAgain(pytest.PytestWarning):
    """What failed before the cells were run again."""

    def __init__(self, traceback: str) -> None:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", traceback).strip().splitlines()
        super().__init__(f"measured again, because the first time: {lines[-1]}")


def window(number: int, cells: Sequence[Any]) -> list[int]:
    """Numbers of the code cells to run again when cell `number` fails: those since the last check
    before it, and itself.

    Empty when it checks nothing, or when nothing in them is measured: no repetition would change
    the result.
    """
    if not CHECKS.search(cells[number].source):
        return []
    first = number
    while first > 0 and not CHECKS.search(cells[first - 1].source):
        first -= 1
    found = list(range(first, number + 1))
    return found if any(is_measured(cells[n]) for n in found) else []


def is_measured(cell: Any) -> bool:
    """Whether what a cell prints differs from run to run."""
    if "nbval-ignore-output" in cell.metadata.get("tags", []):
        return True
    return any("[measured]" in str(output) for output in cell.outputs)
