"""Quizzes and predictions in a real browser: by mouse, by keyboard, in both themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import page as pages
import pytest

import pplab
from pplab.view import colours

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path / "progress"))


def answer(page: Any, view: Any) -> dict[str, Any]:
    """Hand the last message to the kernel's side, and its answer back to the page."""
    message = page.evaluate("window.sent.at(-1)")
    view._asked(None, message, [])
    page.evaluate(
        "([cards, rev]) => { model.set('cards', cards); model.set('rev', rev); }",
        [view.cards, view.rev],
    )
    return message


def test_a_wrong_answer_hears_why_and_a_right_one_counts(chromium: Any, tmp_path: Path) -> None:
    view = pplab.quiz("01")
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        assert page.locator("form").count() == 5
        second = page.get_by_role("group", name="The same stages and micro-batches")
        second.get_by_role("radio", name="1F1B, because").check()
        card = page.locator("form").nth(1)
        card.get_by_role("button", name="Check").click()
        assert answer(page, view) == {"card": 1, "answer": 0}
        said = card.get_by_role("status")
        assert said.inner_text().startswith("✗ wrong, because an earlier backward pass")
        assert page.locator(".pp-score").inner_text() == "0 of 5 right"
        second.get_by_role("radio", name="Neither.").check()
        assert said.inner_text() == "", "what was said belonged to another answer"
        card.get_by_role("button", name="Check").click()
        answer(page, view)
        assert said.inner_text().startswith("✓ right: ")
        assert page.locator(".pp-score").inner_text() == "1 of 5 right"
        assert page.locator("form").nth(0).get_by_role("status").inner_text() == ""


def test_the_same_wrong_answer_twice_is_answered_twice(chromium: Any, tmp_path: Path) -> None:
    view = pplab.quiz("01")
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        card = page.locator("form").nth(1)
        for _ in range(2):
            card.get_by_role("radio").nth(0).check()
            card.get_by_role("button").click()
            answer(page, view)
            assert "wrong" in card.get_by_role("status").inner_text()
        assert view.rev == 2


def test_everything_works_by_keyboard(chromium: Any, tmp_path: Path) -> None:
    view = pplab.quiz("01")
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        page.locator("input[type=text]").focus()
        page.keyboard.type("7/15")
        page.keyboard.press("Enter")
        assert answer(page, view) == {"card": 0, "answer": "7/15"}
        assert "✓ right" in page.locator("form").nth(0).get_by_role("status").inner_text()
        assert page.evaluate("document.activeElement.value") == "7/15", "the focus stays"
        page.keyboard.press("Tab")  # its button
        page.keyboard.press("Tab")  # the first radio of the next question
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert answer(page, view) == {"card": 1, "answer": 2}
        for kind in ("input", "button"):
            for node in page.locator(f".pp-quiz {kind}").all():
                assert node.get_attribute("data-lm-suppress-shortcuts") == "true"


def test_an_empty_answer_is_not_sent(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(pplab.quiz("01"), tmp_path / "a.html")) as page:
        for place, says in ((0, "Type a number first."), (1, "Choose one first.")):
            card = page.locator("form").nth(place)
            card.get_by_role("button").click()
            assert card.get_by_role("status").inner_text() == says
        assert page.evaluate("window.sent.length") == 0


def test_without_a_kernel_it_says_so(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(pplab.quiz("01"), tmp_path / "a.html")) as page:
        card = page.locator("form").nth(1)
        card.get_by_role("radio").nth(0).check()
        card.get_by_role("button").click()
        page.get_by_text("No answer from the kernel").wait_for(timeout=8000)


def test_code_and_emphasis_are_elements_and_nothing_else_is(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(pplab.quiz("04"), tmp_path / "a.html")) as page:
        assert '"pipeline": {"enabled": true' in page.locator("legend code").first.inner_text()
        assert "`" not in page.locator("#here").inner_text()


def test_earlier_answers_are_there_again(chromium: Any, tmp_path: Path) -> None:
    first = pplab.quiz("02")
    first._asked(None, {"card": 0, "answer": "16"}, [])
    first._asked(None, {"card": 2, "answer": 2}, [])
    with pages.opened(chromium, pages.write(pplab.quiz("02"), tmp_path / "a.html")) as page:
        assert page.locator(".pp-score").inner_text() == "1 of 5 right"
        assert page.locator("input[type=text]").first.input_value() == "16"
        assert "GAS = 8" in page.locator("form").nth(0).get_by_role("status").inner_text()
        assert page.locator("form").nth(2).get_by_role("radio").nth(2).is_checked()


def test_a_prediction_is_kept(chromium: Any, tmp_path: Path) -> None:
    guess = pplab.predict("01.alone", "How idle?", unit="%")
    view = guess.view()
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        assert page.locator(".pp-score").inner_text() == ""
        page.get_by_role("textbox", name="Your number").fill("50")
        page.get_by_role("button", name="Keep my prediction").click()
        answer(page, view)
        assert "● kept. Now run the next cells." in page.locator("form").inner_text()
    assert guess.value == 50


#: Computed colours of a node, and the background behind it.
_COLOURS = """(node) => {
  const behind = (n) => { for (; n; n = n.parentElement) {
    const c = getComputedStyle(n).backgroundColor;
    if (!/, 0\\)|transparent/.test(c)) return c; } return "rgb(255, 255, 255)"; };
  return [getComputedStyle(node).color, behind(node)]; }"""


def hexed(css: str) -> str:
    numbers = css[css.index("(") + 1 : css.index(")")].split(",")[:3]
    return "#" + "".join(f"{round(float(n)):02x}" for n in numbers)


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_reads_well_in_both_themes(chromium: Any, tmp_path: Path, dark: bool) -> None:
    view = pplab.quiz("04")
    view._asked(None, {"card": 0, "answer": 0}, [])
    view._asked(None, {"card": 1, "answer": 1}, [])
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html", dark=dark)) as page:
        seen = 0
        for node in page.locator(".pp-quiz :is(b, legend, label span, button, p, code)").all():
            ink, paper = map(hexed, node.evaluate(_COLOURS))
            assert colours.contrast(ink, paper) >= 4.5, (node.inner_text(), ink, paper)
            seen += 1
        assert seen > 20
