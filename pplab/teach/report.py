"""What a learner has done, chapter by chapter and lab by lab: ``pplab progress``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pplab.teach.lab import LABS, open_lab
from pplab.teach.misconceptions import MISCONCEPTIONS
from pplab.teach.progress import Progress
from pplab.teach.quizzes import CHAPTERS, questions
from pplab.teach.verdict import STATES

#: What stands for a question in a row of marks.
_OPEN = "·"


def report(progress: Progress | None = None) -> str:
    """Progress as text: a line a quiz and a lab, predictions, and what was believed on the way."""
    progress = progress or Progress()
    items = progress.items()
    lines = [f"Progress of {progress.name} ({progress.path})", ""]
    for chapter, title in CHAPTERS.items():
        keys = [f"quiz {chapter}.{i}" for i in range(1, len(questions(chapter)) + 1)]
        lines.append(_line(f"chapter {chapter}", title, [items.get(key, {}) for key in keys]))
    for number in LABS:
        lab = open_lab(number)
        found = [items.get(f"lab {number}.{name}", {}) for name in lab.questions]
        lines.append(_line(f"lab {number}", lab.title, found))
    predicted = [item for key, item in items.items() if key.startswith("predict ")]
    given = [item for item in predicted if item.get("answer") is not None]
    first = sum(not item.get("after") for item in given)
    lines += ["", f"predictions: {len(given)} given, {first} of them before the result was seen"]
    met = _met(items)
    if met:
        lines += ["", "beliefs met on the way, and what is true:"]
        for name, _ in met.most_common():
            lines += [f'  "{MISCONCEPTIONS[name].belief}"', f"      {MISCONCEPTIONS[name].fact}"]
    return "\n".join(lines)


def _line(name: str, title: str, items: list[dict[str, Any]]) -> str:
    states = [item.get("state", "not attempted") for item in items]
    marks = "".join(_OPEN if s == "not attempted" else STATES[s] for s in states)
    return f"{name:11} {title:32} {marks:8} {states.count('right')} of {len(items)}"


def _met(items: dict[str, dict[str, Any]]) -> Counter[str]:
    met: Counter[str] = Counter()
    for item in items.values():
        for name, times in item.get("misconceptions", {}).items():
            if name in MISCONCEPTIONS:
                met[name] += times
    return met
