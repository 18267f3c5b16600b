"""The picture of a sweep in a real browser: drawn, walked through by keys, grown in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import page as pages
import pytest

import pplab
from pplab import models, schedules
from pplab.runtime.job import Job
from pplab.runtime.sweep.result import Sweeps
from pplab.view.sweep import SweepView
from tests.unit.sweeps import fake

__all__ = ["fake"]  # a fixture
pytestmark = pytest.mark.browser


@pytest.fixture
def both(fake: Callable[..., list[Job]]) -> Sweeps:
    fake()
    paced = models.paced()
    return pplab.sweep([schedules.gpipe, schedules.one_f_one_b], paced, quiet=True)


def test_keys_walk_through_the_points(chromium: Any, tmp_path: Path, both: Sweeps) -> None:
    one = both["1F1B"]
    file = pages.write(SweepView([one]), tmp_path / "a.html")
    with pages.opened(chromium, file) as page:
        assert page.locator(".pp-large .pp-dot").count() == len(one.points)
        assert page.locator(".pp-large .pp-rule").count() == 3
        assert page.locator(".pp-kneeword").text_content() == f"knee {one.knee}"
        page.locator(".pp-panels").focus()
        said = page.locator(".pp-live")
        page.keyboard.press("Home")
        assert said.inner_text().startswith("M = 1. ")
        for _ in range(9):  # beyond the last one
            page.keyboard.press("ArrowRight")
        assert said.inner_text().startswith("M = 32. 230.6 samples/s measured")
        page.keyboard.press("ArrowLeft")
        assert said.inner_text().startswith("M = 16. ")
        box = page.locator(".pp-small").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 60)
        assert said.inner_text().startswith("M = 1. ")
        page.locator("summary").click()
        assert page.locator(".pp-numbers tr").count() == len(one.points) + 1


def test_it_grows_in_place(chromium: Any, tmp_path: Path, both: Sweeps) -> None:
    whole = SweepView(both)
    few = SweepView(
        [type(s)(**{**s.__dict__, "points": s.points[:2]}) for s in both], status="running M = 4"
    )
    with pages.opened(chromium, pages.write(few, tmp_path / "a.html")) as page:
        assert page.locator(".pp-large .pp-dot").count() == 4
        assert page.locator(".pp-going").inner_text() == "running M = 4"
        page.locator(".pp-panels").focus()
        page.keyboard.press("End")
        assert page.locator(".pp-live").inner_text().count("not measured") == 2
        page.evaluate("(meta) => { model.set('meta', meta); model.set('rev', 9); }", whole.meta)
        assert page.locator(".pp-large .pp-dot").count() == 12
        assert page.locator(".pp-live").inner_text().count("samples/s measured") == 2
        assert page.evaluate("document.activeElement.className").startswith("pp-panels")
        page.evaluate("model.set('status', '')")
        assert page.locator(".pp-going").is_hidden()
        page.evaluate("cleanup()")
        page.evaluate("model.set('rev', 10)")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_narrow_and_wide_pages_in_both_themes(
    chromium: Any, tmp_path: Path, both: Sweeps, dark: bool
) -> None:
    file = pages.write(SweepView(both.under(9000)), tmp_path / "a.html", dark=dark)
    for width in (380, 1000):
        with pages.opened(chromium, file, width=width) as page:
            inside = page.evaluate(
                """() => [...document.querySelectorAll(".pp-panels svg")].every((svg) => {
                  const box = svg.getBoundingClientRect();
                  return [...svg.querySelectorAll("text")].every((text) => {
                    const t = text.getBoundingClientRect();
                    return t.left >= box.left - 1 && t.right <= box.right + 1;
                  }); })"""
            )
            assert inside, f"text stands out of the picture at {width} pixels"
            assert page.locator(".pp-large .pp-open").count() > 0
            stroke = page.evaluate(
                "getComputedStyle(document.querySelector('.pp-series polyline')).stroke"
            )
            assert stroke == ("rgb(148, 174, 203)" if dark else "rgb(76, 120, 168)")
