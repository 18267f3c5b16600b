"""Quiz questions: what is taken for an answer, and that the banks are true to the simulator."""

from __future__ import annotations

import re

import pytest

from pplab.core.batch import ideal_bubble, resolve
from pplab.core.schedules import gpipe, one_f_one_b, pipedream
from pplab.core.schedules.weights import versions_held
from pplab.teach.question import Choice, Mistake, Number, Option, number_of
from pplab.teach.quizzes import CHAPTERS, number, questions
from pplab.teach.verdict import (
    STATES,
    NotRight,
    Verdict,
    blocked,
    not_attempted,
    right,
    unanswered,
    wrong,
)

EVERY = [(chapter, i, q) for chapter in CHAPTERS for i, q in enumerate(questions(chapter), 1)]
NAMED = pytest.mark.parametrize(
    "question", [q for _, _, q in EVERY], ids=[f"{c}.{i}" for c, i, _ in EVERY]
)
OVERHEAD = Mistake(37.5, "idle over useful.", "overhead-is-bubble")
SHARE = Number("share?", 27.3, "so it is.", (OVERHEAD,), unit="%", tolerance=0.5)
PICK = Choice("which?", (Option("a", "not a."), Option("b", "it is b.", right=True)))


@pytest.mark.parametrize("answer", ["27.3", "27,3 %", 27, 0.273, "3/11", " 27.3% "])
def test_a_number_is_understood_however_it_is_written(answer):
    assert SHARE.judge(answer).ok


@pytest.mark.parametrize(("text", "value"), [("3/8", 0.375), ("1,5", 1.5), ("−2", -2.0), (7, 7.0),
                                             ("1e-3", 0.001)])  # fmt: skip
def test_texts_of_numbers(text, value):
    assert number_of(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "many", "1/0", "1/x", None, True, [1], "nan", float("inf")])
def test_what_is_no_number(text):
    assert number_of(text) is None


def test_a_wrong_number_gets_the_reason_that_fits_or_a_direction():
    assert SHARE.judge("37.5").misconception == "overhead-is-bubble"
    assert SHARE.judge(0.375).misconception == "overhead-is-bubble"
    assert SHARE.judge(50).reason == "it is smaller."
    assert SHARE.judge(5).reason == "it is larger."
    assert SHARE.judge("lots").reason == "'lots' is not a number."


@pytest.mark.parametrize("nothing", [None, ..., "", "  "])
def test_nothing_is_not_an_answer(nothing):
    assert SHARE.judge(nothing).state == "not attempted"


@pytest.mark.parametrize("bad", [2, -1, 0.5, "b", True, [0]])
def test_an_option_that_is_not_there_is_wrong(bad):
    assert PICK.judge(bad).state == "wrong" and "none of the 2" in PICK.judge(bad).reason


def test_an_option_says_why():
    assert PICK.judge(0).reason == "not a." and PICK.judge("1").ok
    assert PICK.judge(None).state == "not attempted"


def test_a_question_that_cannot_be_right_is_refused():
    with pytest.raises(ValueError, match="one option is right"):
        Choice("x?", (Option("a", "."), Option("b", ".")))
    with pytest.raises(ValueError, match="cannot be told"):
        Number("x?", 10, "", (Mistake(10.5, ""),), tolerance=0.5)


def test_verdicts_as_words():
    assert str(right("so it is.")) == "✓ right: so it is."
    assert str(wrong("it is not.", measured="3 s")) == "✗ wrong, because it is not.\n[measured] 3 s"
    assert str(not_attempted()) == "○ not attempted"
    assert str(blocked("two GPUs.")) == "◇ blocked: two GPUs."
    assert "&lt;b&gt;" in wrong("<b>")._repr_html_()
    assert set(STATES) == {"not attempted", "wrong", "right", "blocked"}


def test_only_right_and_blocked_pass_a_strict_check():
    right().require()
    blocked("no GPU.").require()
    for verdict in (wrong("no."), not_attempted()):
        with pytest.raises(NotRight):
            verdict.require()


def test_several_answers_of_which_one_is_missing_are_not_attempted():
    assert (
        unanswered((1, ...))
        and unanswered([None])
        and not unanswered((1, 0))
        and not unanswered([])
    )


# -- the banks -------------------------------------------------------------------------------------


def test_every_chapter_has_five_questions():
    assert list(CHAPTERS) == [f"0{n}" for n in range(8)]
    assert {chapter: len(questions(chapter)) for chapter in CHAPTERS} == dict.fromkeys(CHAPTERS, 5)


def test_a_chapter_is_named_in_several_ways():
    assert number(1) == number("01") == number("1") == number("01_bubbles") == "01"
    with pytest.raises(LookupError, match="there are 00, 01"):
        number("42")


@NAMED
def test_every_wrong_answer_has_a_reason_that_goes_on_after_because(question):
    wrongs = (
        [option.why for option in question.options if not option.right]
        if isinstance(question, Choice)
        else [mistake.why for mistake in question.mistakes]
    )
    assert len(wrongs) >= 2
    assert len(set(wrongs)) == len(wrongs)
    for why in wrongs:
        assert len(why) > 20 and why.endswith((".", ")")), why
        assert not re.match(r"[A-Z][a-z]", why) or why.startswith(
            ("1F1B", "PipeDream", "DeepSpeed")
        ), why


@NAMED
def test_a_question_reads_as_one(question):
    assert question.text.endswith(("?", "rank 0", "pipeline", "step", "falls", "afternoon."))


def test_the_right_option_does_not_always_stand_in_the_same_place():
    places = [
        [o.right for o in q.options].index(True) for _, _, q in EVERY if isinstance(q, Choice)
    ]
    assert {0, 1, 2} <= set(places)
    assert max(places.count(p) for p in set(places)) < 0.7 * len(places)


def value(chapter: str, place: int) -> float:
    question = questions(chapter)[place - 1]
    assert isinstance(question, Number)
    return question.value


def test_numbers_of_the_quizzes_are_what_the_simulator_says():
    def idle(plan):
        return 100 * plan.simulate(forward=1, backward=2).bubble

    assert value("01", 1) == pytest.approx(idle(one_f_one_b(8, 8)))
    row = [op.kind for op in one_f_one_b(4, 8).ops[1]]
    assert value("00", 4) == row.index("B")
    assert value("02", 1) == one_f_one_b(4, 8).micro_batches == 8
    assert value("02", 2) == resolve(train=256, micro=2, replicas=2).gas == 64
    knee = int(value("02", 5))
    gain = [2 * m / (2 * m + 3) / (m / (m + 3)) - 1 for m in (knee, knee - 1)]
    assert gain[0] < 0.05 <= gain[1]
    assert value("05", 5) == versions_held(pipedream(4, 12))[0] == 4
    assert value("07", 1) == pytest.approx(0.88 / 0.62)
    least = int(value("06", 1))
    assert ideal_bubble(4, least) <= 0.14 < ideal_bubble(4, least - 1)
    assert idle(one_f_one_b(4, 8)) == pytest.approx(idle(gpipe(4, 8)))


def test_percentages_that_the_quizzes_quote():
    """12.0 % and 17.9 %: throughput lost to a slow first and last stage (numbers of chapter 1)."""
    plan = one_f_one_b(4, 8)
    normal = plan.simulate(forward=1, backward=2).step_time
    lost = []
    for slow in (0, 3):
        speed = [1.3 if stage == slow else 1.0 for stage in range(4)]
        slower = plan.simulate(forward=speed, backward=[2 * s for s in speed]).step_time
        lost.append(round(100 * (1 - normal / slower), 1))
    assert lost == [12.0, 17.9]


def test_a_verdict_is_plain_json():
    assert Verdict("wrong", "no.").as_json() == {"state": "wrong", "sign": "✗", "reason": "no."}
