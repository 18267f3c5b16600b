"""Which cells to run again when a check of measured values fails (see ``tests.measuring``)."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

#: A cell that checks: a sentence of a chapter, or a question of a lab.
CHECKS = re.compile(r"^\s*(holds\(|lab\.check\()", re.MULTILINE)


def window(number: int, cells: Sequence[Any]) -> list[int]:
    """Numbers of the code cells to run again when cell `number` fails, itself the last of them:
    those that made the names it uses, and theirs.

    Empty when it checks nothing, or when nothing in them is measured: no repetition would change
    the result.
    """
    if not CHECKS.search(cells[number].source):
        return []
    found, used = {number}, names(cells[number].source)[1]
    for earlier in reversed(range(number)):
        made, needed = names(cells[earlier].source)
        if made & used:
            found.add(earlier)
            used = (used - made) | needed
    return sorted(found) if any(is_measured(cells[n]) for n in found) else []


def names(source: str) -> tuple[set[str], set[str]]:
    """What a cell makes, and what it uses; nothing when it is not plain Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set(), set()
    made, used = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            made |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return made, used


def is_measured(cell: Any) -> bool:
    """Whether what a cell prints differs from run to run."""
    if "nbval-ignore-output" in cell.metadata.get("tags", []):
        return True
    return any("[measured]" in str(output) for output in cell.outputs)
