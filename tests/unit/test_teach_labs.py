"""Labs without processes: verdicts, hints, solutions, progress."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pplab.runtime import hardware
from pplab.teach import lab as lab_module
from pplab.teach.lab import LABS, Lab, Question, open_lab
from pplab.teach.labs import judging
from pplab.teach.question import Mistake
from pplab.teach.verdict import NotRight, right
from tests.unit.lab_cases import opened, somewhere

__all__ = ["somewhere"]  # a fixture
pytestmark = pytest.mark.usefixtures("somewhere")

HINTS = ("look.", "think.", "write.")


def small(measure, gpus: int = 0) -> Lab:
    question = Question("a question", 3, "easy", measure, HINTS, "because.", gpus)
    return Lab(9, "small", {"q1": question})


# -- what every lab has ---------------------------------------------------------------------------


@pytest.mark.parametrize("number", LABS)
def test_a_lab_is_of_a_size_that_can_be_done(number):
    lab = open_lab(number)
    assert 30 <= sum(q.minutes for q in lab.questions.values()) <= 60
    assert 4 <= len(lab.questions) <= 8
    assert list(lab.questions)[-1] == "own" and lab.questions["own"].difficulty == "open"


@pytest.mark.parametrize("number", LABS)
def test_every_question_has_hints_a_reason_and_a_solution(number):
    lab = open_lab(number)
    for name, question in lab.questions.items():
        assert len(set(question.hints)) == 3 and len(question.why) > 30
        shown = lab.solution(name)
        assert question.why in str(shown)
        if (number, name) not in ((5, "q4"), (3, "q5")):  # which hand in an answer again
            assert shown.code, f"labs/source has no solution for {name}"
    assert all(row[4].endswith("solution seen") for row in lab.rows())


@pytest.mark.parametrize("number", LABS)
def test_an_untouched_answer_is_not_attempted_and_leaves_no_trace(number):
    lab = opened(number)
    for name in lab.questions:
        assert lab.check(name, ...).state == "not attempted"
        assert lab.check(name, (..., ...)).state == "not attempted"
    assert lab.progress.items() == {}


@pytest.mark.parametrize("number", LABS)
@pytest.mark.parametrize("nonsense", ["what?", -1, {}, object(), [], (1, 2, 3, 4, 5), float("nan")])
def test_nonsense_is_wrong_with_a_sentence(number, nonsense):
    lab = opened(number)
    for name, question in lab.questions.items():
        if question.gpus == 0:
            verdict = lab.check(name, nonsense)
            assert verdict.state == "wrong" and len(verdict.reason) > 5, (name, verdict)


def test_a_lab_or_question_or_case_that_is_not_there():
    with pytest.raises(LookupError, match="there is no lab 99"):
        open_lab(99)
    with pytest.raises(LookupError, match="lab 1 has the questions q1"):
        open_lab(1).check("q99", 1)
    with pytest.raises(LookupError, match="has the cases A, B, C, D"):
        open_lab(1).case("Z")


def test_a_case_is_run_once():
    made = []
    lab = Lab(9, "small", {}, {"A": lambda: made.append(1) or len(made)})
    assert [lab.case("A"), lab.case("A")] == [1, 1]


# -- check, hint, progress ------------------------------------------------------------------------


def test_a_check_that_stops_is_a_wrong_answer_and_says_with_what():
    verdict = small(lambda answer, lab: answer.no_such_thing).check("q1", 3)
    assert verdict.state == "wrong" and "AttributeError" in verdict.reason


def test_a_question_for_gpus_is_blocked_where_there_are_none(monkeypatch):
    lab = small(lambda answer, lab: right(), gpus=2)
    monkeypatch.setattr(lab_module, "_gpus", lambda: 1)
    verdict = lab.check("q1", "an answer")
    assert str(verdict) == "◇ blocked: this question needs 2 GPUs, and this machine has 1."
    assert lab.rows()[0][4] == "blocked"
    monkeypatch.setattr(lab_module, "_gpus", lambda: 2)
    assert lab.check("q1", "an answer").ok


def test_gpus_are_those_of_the_machine(monkeypatch):
    monkeypatch.setattr(hardware, "hardware", lambda: SimpleNamespace(gpus=("a", "b", "c")))
    assert lab_module._gpus() == 3


def test_hints_come_one_after_the_other_and_survive_a_restart():
    lab = small(lambda answer, lab: right())
    assert "a nudge: look." in str(lab.hint("q1")) and "think" not in str(lab.hint("q1"))[:20]
    again = small(lambda answer, lab: right())
    third = str(again.hint("q1"))
    assert "hint 3 of 3" in third and all(hint in third for hint in HINTS)
    assert "hint 3 of 3" in str(again.hint("q1"))
    assert again.rows()[0][4] == "not attempted, 3 hints"


def test_the_head_of_a_lab_says_how_far_one_is():
    lab = open_lab(2)
    assert "0 of 7 questions solved" in str(lab)
    lab.check("q2", [4, 3, 2, 1])
    lab.check("q4", (9, 0.5))
    again = open_lab(2)
    assert "1 of 7 questions solved" in str(again)
    assert "1 of 7" in again._repr_html_() and "choose GAS" in again._repr_html_()
    assert [row[0] for row in again.rows()][:4] == ["○", "✓", "○", "✗"]


def test_strict_stops_at_what_is_not_right(monkeypatch):
    monkeypatch.setenv("PPLAB_STRICT", "1")
    lab = open_lab(2)
    with pytest.raises(NotRight, match="not attempted"):
        lab.check("q2", ...)
    with pytest.raises(NotRight, match="wrong, because"):
        lab.check("q2", [1, 2, 3, 4])
    assert lab.check("q2", [4, 3, 2, 1]).ok


def test_a_question_that_is_not_complete_is_refused():
    with pytest.raises(ValueError, match="difficulty is one of"):
        Question("x", 1, "tricky", right, HINTS, "")
    with pytest.raises(ValueError, match="three hints"):
        Question("x", 1, "easy", right, ("look.", "", "write."), "")


def test_the_nearest_of_several_explanations_counts():
    mistakes = (Mistake(100, "hundred."), Mistake(104, "hundred and four."))
    assert judging.number(104.1, 50, "", *mistakes, within=0.05).reason == "hundred and four."
    assert judging.number(99, 98, "ok.", *mistakes, within=0.05).reason in ("hundred.", "ok.")
    assert judging.number(98.4, 98, "ok.", *mistakes, within=0.05).ok
