"""The quizzes of the chapters: one file each, five questions each. Add one by copying another."""

from __future__ import annotations

from importlib import import_module

from pplab.teach.question import Choice, Number

#: Chapter -> module of this folder and title of the quiz.
CHAPTERS = {
    "00": "Start here",
    "01": "Bubbles",
    "02": "How many micro-batches?",
    "03": "Where to cut?",
    "04": "ZeRO and memory",
    "05": "Schedules",
    "06": "Tuning",
    "07": "Two articles, audited",
}


def questions(chapter: str) -> tuple[Choice | Number, ...]:
    """The questions of a chapter ("01" or 1); LookupError when there is no such chapter."""
    name = number(chapter)
    return tuple(import_module(f"pplab.teach.quizzes.chapter_{name}").QUESTIONS)


def number(chapter: str | int) -> str:
    """The chapter's two digits, whatever it was called."""
    name = f"{chapter:02d}" if isinstance(chapter, int) else chapter.strip()[:2].zfill(2)
    if name not in CHAPTERS:
        raise LookupError(f"there is no quiz {chapter!r}; there are {', '.join(CHAPTERS)}")
    return name
