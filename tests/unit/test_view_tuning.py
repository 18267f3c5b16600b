"""The picture of a tuning: marks for what is there, words in the card, a size for notebooks."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from pplab import Tuning
from pplab.advise.tune.verify import Verified
from pplab.view import colours, static
from pplab.view.tuning import CAP, NUMBERED, REAL, picture
from tests.unit.test_tune import tuned


def words(figure: Figure) -> str:
    found = [text.get_text() for text in figure.texts]
    for ax in figure.axes:
        found += [text.get_text() for text in ax.texts]
    return "\n".join(found)


def verified(found: Tuning) -> Tuning:
    runs = tuple(
        Verified(plan, (plan.step * 1.05, plan.step * 1.06), (plan.bubble, plan.bubble))
        for plan in found.plans[:3]
    )
    return Tuning(**{**vars(found), "verified": runs})


def test_a_cap_and_what_is_above_it_are_drawn_only_where_there_is_one() -> None:
    free, tight = words(picture(tuned())), words(picture(tuned(memory="30MB")))
    assert "memory of a rank: 30.0 MB" in tight and "does not fit" in tight
    assert "memory of a rank" not in free and "does not fit" not in free
    assert "measured on real ranks" not in free


def test_the_first_plans_are_numbered_and_their_reasons_told() -> None:
    found = tuned()
    text = words(picture(found))
    for number in range(1, NUMBERED + 1):
        assert f"\n{number}\n" in f"\n{text}\n" and f"{number}. {found[number - 1].what}" in (
            text.replace("\n     ", " ")
        )
    assert "the shortest step" in text and "predicted" in text


def test_measured_steps_are_marked_beside_the_predicted() -> None:
    found = verified(tuned(memory="30MB"))
    figure = picture(found)
    text = words(figure)
    assert "measured on real ranks" in text and "measured (-4.8%)" in text
    field = figure.axes[0]
    marks = [line for line in field.lines if line.get_marker() == "|"]
    assert [mark.get_xdata()[0] for mark in marks] == pytest.approx(
        [plan.step * 1.05 * 1e3 for plan in found.plans[:3]]
    )


def test_colours_are_told_apart_from_the_page_and_the_picture_is_small() -> None:
    for colour in (CAP, REAL):
        assert colours.contrast(colour, colours.LIGHT["page"]) >= 4.5
    for found in (tuned(), verified(tuned(memory="30MB")), tuned(stages=(4,), schedules=("1f1b",))):
        assert found.png().startswith(b"\x89PNG") and len(found.png()) < static.LARGE
        alt = found._repr_mimebundle_()["text/html"].partition(" src=")[0]
        assert alt.startswith('<img alt="Batch of 16 on 4 ranks')
