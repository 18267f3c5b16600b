"""Every listed misconception is recognised, by name and with an explanation of its own.

``GIVEN_AWAY`` is the table: which answer to which question gives which mistake away. Questions are
"quiz 01.2" (second question of chapter 1) or "lab 2.q1"; `benchmarks/labs.py` counts from it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pplab.core.costs import Costs
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import one_f_one_b
from pplab.teach.lab import open_lab
from pplab.teach.labs import lab_3
from pplab.teach.misconceptions import MISCONCEPTIONS
from pplab.teach.quizzes import questions
from pplab.teach.verdict import Verdict

#: (misconception, question, the answer that gives it away)
GIVEN_AWAY: list[tuple[str, str, Any]] = [
    ("overhead-is-bubble", "quiz 01.1", "87.5"),
    ("overhead-is-bubble", "quiz 01.1", 7 / 8),
    ("overhead-is-bubble", "quiz 02.5", 60),
    ("overhead-is-bubble", "quiz 06.1", 22),
    ("overhead-is-bubble", "lab 1.q1", 3 / 8),
    ("overhead-is-bubble", "lab 1.q6", 22),
    ("overhead-is-bubble", "lab 2.q4", (5, 3 / 5)),
    ("overhead-is-bubble", "lab 2.q5", 60),
    ("overhead-is-bubble", "lab 2.q6", (3 / 16, 76)),
    ("gas-times-replicas", "quiz 02.1", 16),
    ("gas-times-replicas", "lab 2.q1", 8),
    ("memory-grows-with-m", "quiz 02.3", 0),
    ("memory-grows-with-m", "quiz 02.3", 1),
    ("memory-grows-with-m", "quiz 06.4", 0),
    ("memory-grows-with-m", "lab 2.q2", [16, 16, 16, 16]),
    ("memory-grows-with-m", "lab 2.q3", (1, 20)),
    ("1f1b-smaller-bubble", "quiz 01.2", 0),
    ("1f1b-smaller-bubble", "quiz 05.1", 0),
    ("last-stage-most-memory", "quiz 04.3", 0),
    ("last-stage-most-memory", "lab 2.q2", [1, 2, 3, 4]),
    ("last-stage-most-memory", "lab 4.q4", 3),
    ("checkpointing-shrinks-bubble", "quiz 02.4", 0),
    ("checkpointing-shrinks-bubble", "quiz 04.5", 1),
    ("checkpointing-shrinks-bubble", "lab 2.q6", (0.12, 76)),
    ("zero3-saves-more", "quiz 04.1", 0),
    ("zero3-saves-more", "quiz 04.4", 4),
    ("zero3-saves-more", "lab 4.q3", {"zero_optimization": {"stage": 3}}),
    ("zero3-saves-more", "lab 4.q5", 15.7),
    (
        "zero3-saves-more",
        "lab 4.q6",
        {"stages": 4, "zero": 2, "micro_batch": 1, "gas": 32, "recompute": "none"},
    ),
    ("key-turns-it-on", "quiz 04.2", 0),
    ("key-turns-it-on", "quiz 04.5", 0),
    ("key-turns-it-on", "lab 4.q1", 4),
    ("key-turns-it-on", "lab 4.q2", ["elastic_pipeline"]),
    ("key-turns-it-on", "lab 4.q3", {"train_batch_size": 64, "pipeline": {"enabled": True}}),
    ("parameters-are-time", "quiz 03.1", 0),
    ("parameters-are-time", "quiz 03.1", 2),
    ("parameters-are-time", "lab 3.q2", 32),
    ("excess-lost-in-full", "quiz 01.3", 0),
    ("excess-lost-in-full", "quiz 03.5", 0),
    ("excess-lost-in-full", "lab 1.q3", 40.5 - 8 * 1.5),
    ("excess-lost-in-full", "lab 3.q4", 160 / 115),
    ("excess-lost-in-full", "lab 3.q6", 3),
    ("excess-lost-in-full", "lab 6.q5", (0.432, 0.09)),
    ("zero-bubble-zero-idle", "quiz 05.3", 0),
    ("zero-bubble-zero-idle", "lab 5.q2", 24),
    ("zero-bubble-zero-idle", "lab 5.q5", [0, 0, 0, 0]),
    ("busy-means-no-bubble", "quiz 01.4", 0),
    ("busy-means-no-bubble", "quiz 06.5", 2),
    ("busy-means-no-bubble", "lab 1.q5", (1.0, 0.0)),
    ("pipedream-wrong-gradients", "quiz 05.4", 0),
    ("pipedream-wrong-gradients", "lab 5.q6", (3, "newest")),
    ("warm-up-is-slow", "quiz 01.5", 0),
    ("warm-up-is-slow", "quiz 06.2", 0),
    ("warm-up-is-slow", "lab 1.q4", 1.5),
    ("warm-up-is-slow", "lab 1.q4", 4.0),
]


def case(name: str) -> Any:
    """What the cases of lab 1 and 2 would measure, simulated: no process is started here."""
    plan = one_f_one_b(4, 8)
    if name == "B":
        costs = {"forward": [1.5, 1, 1, 1], "backward": [3, 2, 2, 2]}
        slow = plan.simulate(**costs)
        return SimpleNamespace(timeline=slow, step_time=slow.step_time, costs=Costs(**costs))
    if name == "C":
        return SimpleNamespace(step_times=[4.0, 1.0, 1.1, 0.9, 1.0, 1.0])
    if name == "two replicas":
        one = one_f_one_b(2, 4).simulate(forward=1, backward=2)
        job = SimpleNamespace(micro_batches=4, replicas=2, micro_batch_size=3)
        return SimpleNamespace(timeline=one, job=job)
    if name == "profile":
        return Profile(
            tuple(
                LayerProfile(str(i), forward=c / 1e3, backward=c / 500, parameters=10)
                for i, c in enumerate(lab_3._COSTS)
            )
        )
    return SimpleNamespace(timeline=plan.simulate(forward=1, backward=2))


def judged(question: str, answer: Any) -> Verdict:
    """The verdict on an answer to "quiz 01.2" or "lab 2.q1"."""
    kind, _, rest = question.partition(" ")
    where, _, which = rest.partition(".")
    if kind == "quiz":
        return questions(where)[int(which) - 1].judge(answer)
    lab = open_lab(int(where))
    if int(where) != 4:  # whose cases are a config and a description of a model
        lab.cases = {name: (lambda name=name: case(name)) for name in lab.cases}
    return lab.questions[which].judge(answer, lab)


def recognised() -> set[str]:
    """Listed misconceptions that some answer of the table brings to light."""
    return {
        name
        for name, question, answer in GIVEN_AWAY
        if name in MISCONCEPTIONS and judged(question, answer).misconception == name
    }


@pytest.mark.parametrize(("name", "question", "answer"), GIVEN_AWAY)
def test_a_mistake_is_recognised_by_name(name, question, answer):
    verdict = judged(question, answer)
    assert (verdict.state, verdict.misconception) == ("wrong", name)
    assert len(verdict.reason) > 30, "it says what is wrong with it"


def test_every_listed_misconception_is_recognised_somewhere():
    assert recognised() == set(MISCONCEPTIONS)
    assert len(MISCONCEPTIONS) == 14


def test_different_mistakes_get_different_explanations():
    reasons: dict[str, set[str]] = {}
    for name, question, answer in GIVEN_AWAY:
        reasons.setdefault(judged(question, answer).reason, set()).add(name)
    assert all(len(names) == 1 for names in reasons.values())


def test_beliefs_and_facts_are_sentences():
    for belief, fact in MISCONCEPTIONS.values():
        assert belief.endswith(".") and fact.endswith(".") and belief != fact
