"""Predictions: kept, shown against the result, never waited for."""

from __future__ import annotations

import pytest

import pplab
from pplab.teach.predict import Prediction


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path))


def share() -> Prediction:
    return pplab.predict("01.alone", "How idle?", unit="%")


def test_without_a_prediction_the_notebook_goes_on(capsys):
    share().against(0.75)
    share().against(0.75, measured=True)
    said = capsys.readouterr().out.splitlines()
    assert said == ["no prediction given; it is 75 %", "[measured] no prediction given; it is 75 %"]


@pytest.mark.parametrize(
    ("answer", "result", "says"),
    [
        ("50", 0.75, "you predicted 50 %; it is 75 %: 25 points too low"),
        ("0.5", 0.75, "you predicted 50 %; it is 75 %: 25 points too low"),
        ("90 %", 0.75, "you predicted 90 %; it is 75 %: 15 points too high"),
        ("74", 0.75, "you predicted 74 %; it is 75 %: well predicted"),
        ("0.5", 0.004, "you predicted 0.5 %; it is 0.4 %: well predicted"),
    ],
)
def test_a_share_is_shown_against_the_result(answer, result, says):
    share().give(answer)
    assert share().sentence(result) == says, "another kernel has read it"


def test_a_number_with_a_unit():
    guess = pplab.predict("x", "How many?", unit="units")
    guess.give(30)
    assert guess.sentence(33) == "you predicted 30 units; it is 33 units: 3 units too low"
    assert guess.sentence(30.5).endswith("well predicted")
    assert guess.sentence(0).endswith("30 units too high")


def test_a_choice():
    which = pplab.predict("x", "Which?", choices=["GPipe", "1F1B", "neither"])
    assert (
        which.value is None and which.sentence("neither") == "no prediction given; it is: neither"
    )
    which.give(1)
    assert which.value == "1F1B"
    assert which.sentence("neither") == "you predicted: 1F1B; it is: neither (not as predicted)"
    which.give(2)
    assert which.sentence("neither").endswith("(as predicted)")


def test_a_choice_that_is_gone_counts_as_none():
    pplab.predict("x", "Which?", choices=["a", "b", "c"]).give(2)
    assert pplab.predict("x", "Which?", choices=["a", "b"]).value is None


def test_what_is_no_number_is_not_kept():
    said = share().give("many")
    assert said["state"] == "wrong" and share().value is None


def test_a_prediction_after_the_result_is_kept_as_such(capsys):
    share().give("50")
    share().against(0.75)
    assert share().progress.get("predict 01.alone")["after"] is False
    said = share().give("75")
    assert "already" in said["reason"]
    assert share().progress.get("predict 01.alone")["after"] is True


def test_the_prompt_reads_without_a_kernel_and_never_says_the_answer():
    bundle = share()._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Predict\nHow idle?\n   your number: ____ %")
    assert "How idle?" in bundle["text/html"]
    assert share()._repr_mimebundle_()["text/plain"] == bundle["text/plain"]


def test_the_prompt_shows_what_was_predicted_before():
    share().view()._asked(None, {"card": 0, "answer": "50"}, [])
    card = share().view().cards[0]
    assert card["answer"] == "50" and card["said"]["state"] == "kept"


def test_an_answer_on_the_page_is_the_prediction():
    guess = share()
    view = guess.view()
    view._asked(None, {"card": 0, "answer": "50"}, [])
    assert guess.value == 50 and view.cards[0]["said"]["state"] == "kept" and view.rev == 1
