"""The quiz as a widget: what the page gets, and what it must not get."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

import pplab
from pplab.teach.question import Choice
from pplab.teach.quizzes import CHAPTERS, questions
from pplab.view.quiz import marked, plain

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path))


def everything(view) -> str:
    """All that a page or a stored notebook could hold of a quiz."""
    state = {name: getattr(view, name) for name in view.keys if name not in ("layout", "comm")}
    bundle = view._repr_mimebundle_()
    return json.dumps([bundle["text/plain"], bundle["text/html"], state], default=str)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_nothing_gives_the_answer_away(chapter):
    shown = everything(pplab.quiz(chapter))
    for question in questions(chapter):
        assert json.dumps(plain(question.text)[:30], ensure_ascii=True)[1:-1] in shown
        if isinstance(question, Choice):
            for option in question.options:
                assert json.dumps(option.why)[1:-1] not in shown, option.why
        else:
            assert json.dumps(question.why)[1:-1] not in shown
    assert "misconception" not in shown and '"right": true' not in shown.lower()


def test_an_answer_is_judged_kept_and_shown():
    view = pplab.quiz("01")
    view._asked(None, {"card": 0, "answer": "87.5"}, [])
    assert view.cards[0]["said"]["state"] == "wrong"
    assert view.cards[0]["said"]["head"] == "wrong, because"
    view._asked(None, {"card": 1, "answer": 2}, [])
    assert view.cards[1]["said"]["state"] == "right" and view.rev == 2
    again = pplab.quiz(1)
    assert [bool(card["said"]) for card in again.cards] == [True, True, False, False, False]
    assert again.cards[0]["answer"] == "87.5"


def test_other_messages_are_left_alone():
    view = pplab.quiz("01")
    view._asked(None, {"nudge": 10}, [])
    assert view.rev == 0


def test_the_words_without_a_kernel_do_not_depend_on_progress():
    before = pplab.quiz("01")._repr_mimebundle_()
    view = pplab.quiz("01")
    view._asked(None, {"card": 1, "answer": 2}, [])
    after = pplab.quiz("01")._repr_mimebundle_()
    assert before["text/plain"] == after["text/plain"]
    assert before["text/html"] == after["text/html"]


def test_marks_of_a_text():
    assert marked("a `b < c` and *d*") == "a <code>b &lt; c</code> and <em>d</em>"
    assert plain("a `b` and *d*") == "a b and d"
    assert plain("2 * 3 * 4") == "2 * 3 * 4"


@pytest.mark.parametrize("path", sorted((ROOT / "chapters").glob("*.ipynb")), ids=lambda p: p.stem)
def test_every_chapter_ends_with_its_quiz(path):
    cells = nbformat.read(path, as_version=4).cells
    asked = [cell.source for cell in cells if cell.cell_type == "code"]
    assert asked[-1] == f'pplab.quiz("{path.stem[:2]}")'
