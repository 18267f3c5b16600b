"""Player, stuck schedules and the comparison of schedules in a real browser, on a static page."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import page as pages
import pytest

from pplab.core.ops import CODE
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, interleaved, one_f_one_b, pipedream, zb_h1
from pplab.core.timeline import Timeline
from pplab.view import compare_schedules, how_far, moment, play
from pplab.view.plan import PlanView, StuckPlanView

pytestmark = pytest.mark.browser
CROSSED = Schedule.of(["F0 B0 F1 B1", "F0 F1 B0 B1"], name="mine")


def settle(page: Any) -> None:
    """Let pending frames be painted."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => setTimeout(r, 20)))")


def pixels(page: Any, colour: str) -> int:
    """How many pixels of the canvas have exactly this colour."""
    return page.evaluate(
        """(hex) => {
      const shown = document.querySelector("canvas");
      const d = shown.getContext("2d").getImageData(0, 0, shown.width, shown.height).data;
      const want = [1, 3, 5].map((i) => parseInt(hex.substr(i, 2), 16));
      let n = 0;
      for (let i = 0; i < d.length; i += 4) n += want.every((x, k) => d[i + k] === x);
      return n; }""",
        colour,
    )


# -- the player ----------------------------------------------------------------------------------


def recorded() -> Timeline:
    """A stand-in for a run in which rank 1 notes its waits and its reduction."""
    plain = one_f_one_b(2, 3).simulate()
    columns = {name: column.tolist() for name, column in plain.columns().items()}
    rows = [(0, 0, 1, "R", 0, 0, 0.0, 0.99), (0, 0, 1, "G", -1, 0, 11.0, 11.5),
            (0, 0, 0, "S", 0, 0, 1.0, 1.1), (0, 0, 0, "L", -1, 0, 12.0, 12.5)]  # fmt: skip
    for row in rows:
        for name, value in zip(columns, row, strict=True):
            columns[name].append(CODE[value] if name == "kind" else value)
    return Timeline.of(columns, plain.layout, source="measured: paced", unit="units")


TIMELINES = {
    "1F1B": one_f_one_b(4, 8).simulate(latency=0.3),
    "ZB-H1": zb_h1(3, 5).simulate(latency=0.1),
    "interleaved": interleaved(3, 9).simulate(),
    "GPipe": gpipe(2, 12).simulate(update=1),
    "PipeDream": pipedream(3, 5).simulate(),
    "recorded": recorded(),
}
#: Every moment at which an operation begins, and the sentences for it, as the page has them.
_EVERY_MOMENT = """() => {
  const host = document.querySelector(".pp-host"), found = [];
  const press = (key) => host.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const heard = () => document.querySelector(".pp-heard").textContent.trim().slice(0, -1);
  press("Home");
  for (;;) {
    const said = document.querySelector(".pp-live").textContent;
    const [, place, of] = said.match(/^(\\d+) of (\\d+)/);
    found.push([document.querySelector(".pp-clock").textContent, heard()]);
    if (place === of) return found;
    press("ArrowRight");
  }
}"""


@pytest.mark.parametrize("name", TIMELINES)
def test_the_page_says_of_every_moment_what_python_says(
    chromium: Any, tmp_path: Path, name: str
) -> None:
    t = TIMELINES[name]
    with pages.opened(chromium, pages.write(play(t), tmp_path / "a.html")) as page:
        shown = page.evaluate(_EVERY_MOMENT)
    starts = sorted(t.start[t.is_kind("FBWU")].tolist())
    assert len(shown) == len(starts)
    for start, (_, heard) in zip(starts, shown, strict=True):
        rows = moment(t, start).table()[1:]
        said = [f"{who} {now}; holds {held}; next {then}" for who, now, held, then in rows]
        assert heard.split(". ") == said


def test_the_table_shows_work_waiting_and_memory(chromium: Any, tmp_path: Path) -> None:
    view = play(zb_h1(4, 8), at=7, latency=0.25)
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        assert page.locator(".pp-clock").inner_text() == "At 7 units:"
        rows = [row.inner_text() for row in page.locator(".pp-now tbody tr").all()]
        words = " ".join(rows[0].split())
        assert words == "rank 0 waits for B0 of rank 1 (not started) 4 0 1 2 3 B0"
        assert "runs F2" in rows[2] and "W0" in rows[2]
        assert page.locator(".pp-late").count() == 2
        assert page.get_by_role("columnheader", name="In memory").count() == 1
        assert page.get_by_role("rowheader", name="rank 3").count() == 1


def test_the_player_steps_plays_and_goes_where_one_clicks(chromium: Any, tmp_path: Path) -> None:
    view = play(one_f_one_b(4, 8))
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        clock, live = page.locator(".pp-clock"), page.locator(".pp-live")
        assert clock.inner_text() == "At 16 units:"
        page.locator(".pp-host").focus()
        page.keyboard.press("Home")
        assert clock.inner_text() == "At 0 units:"
        assert "rank 1 waits for F0 of rank 0 (running)" in live.text_content()
        page.keyboard.press("Space")
        page.wait_for_timeout(400)
        page.keyboard.press("Space")
        assert live.text_content().startswith("paused at ") and "holds" in live.text_content()
        assert clock.inner_text() != "At 0 units:"
        box = page.locator("canvas").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
        middle = float(clock.inner_text().split()[1])
        assert 15 < middle < 19
        page.keyboard.press("Escape")
        assert clock.inner_text() == "After the step:"
        assert "done" in page.locator(".pp-now tbody").inner_text()
        page.evaluate("model.set('rev', 9)")
        assert clock.inner_text() == "At 16 units:", "a new picture begins anew"


def test_what_lies_ahead_is_drawn_faintly_and_not_as_idle(chromium: Any, tmp_path: Path) -> None:
    view = play(gpipe(2, 4), at=6)  # rank 1 runs B0, rank 0 waits for it
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        faint = {text for text, _, alpha in page.evaluate(pages.WRITTEN) if alpha < 1}
        strong = {text for text, _, alpha in page.evaluate(pages.WRITTEN) if alpha == 1}
        assert {"B1", "B2", "B3"} <= faint and not {"F0", "F3"} & faint
        assert {"F0", "F3"} <= strong and "B3" not in strong
        assert pixels(page, "#b35806") > 100, "rank 0 waits until now"
        page.keyboard.press("Tab")
        page.locator(".pp-host").focus()
        page.keyboard.press("Escape")
        settle(page)
        assert {alpha for _, _, alpha in page.evaluate(pages.WRITTEN)} == {1}


def test_dragging_pans_and_does_not_move_the_player(chromium: Any, tmp_path: Path) -> None:
    view = play(one_f_one_b(4, 8))
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        page.get_by_role("button", name="Zoom in").click()
        box = page.locator("canvas").bounding_box()
        page.mouse.move(box["x"] + 400, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 40, steps=4)
        page.mouse.up()
        assert page.locator(".pp-clock").inner_text() == "At 16 units:"


# -- schedules that cannot run ---------------------------------------------------------------------


def test_a_deadlock_is_drawn_and_said(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(how_far(CROSSED), tmp_path / "a.html")) as page:
        head = page.locator(".pp-head").inner_text()
        assert "Deadlock" in head and "2 of 8 operations run" in head and "bubble" not in head
        said = page.get_by_role("alert")
        assert [b.inner_text() for b in said.locator(".pp-badge").all()] == ["1", "2"]
        assert "rank 0 waits in B0 for B0 of rank 1," in said.inner_text()
        assert pixels(page, "#b3261e") > 500, "arrows, numbers and the border of the panel"
        image = page.get_by_role("img").get_attribute("aria-label")
        assert image.startswith("Deadlock: 2 of 8 operations run.")
        page.locator(".pp-host").focus()
        page.keyboard.press("End")
        assert page.locator(".pp-live").inner_text().startswith("2 of 2. F0")


def test_a_rank_that_is_stuck_says_so_under_the_pointer(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(how_far(CROSSED), tmp_path / "a.html")) as page:
        box = page.locator("canvas").bounding_box()
        page.mouse.move(box["x"] + 500, box["y"] + 36)
        settle(page)
        assert "it waits for B0 of rank 1" in page.locator(".pp-tip").inner_text()


def test_a_panel_only_where_somebody_is_stuck(chromium: Any, tmp_path: Path) -> None:
    view = how_far(gpipe(4, 8), blocking=True)
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        assert pixels(page, "#b3261e") == 0
        assert "27.3 %" in page.locator(".pp-head").inner_text()
    view = how_far(interleaved(4, 8), blocking=True)
    with pages.opened(chromium, pages.write(view, tmp_path / "b.html"), width=420) as page:
        assert pixels(page, "#b3261e") > 500, "also on a narrow page"


def test_the_operations_are_there_as_text(chromium: Any, tmp_path: Path) -> None:
    for view, first in ((PlanView(one_f_one_b(2, 2)), "F0 F1 B0 B1"),
                        (StuckPlanView(CROSSED), "F0 B0 F1 B1")):  # fmt: skip
        with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
            assert not page.locator(".pp-ops pre").is_visible()
            page.get_by_text("The operations of each rank as text").click()
            assert f"rank 0: {first}" in page.locator(".pp-ops pre").inner_text()


def test_an_ordinary_timeline_has_no_list_of_operations(chromium: Any, tmp_path: Path) -> None:
    view = play(one_f_one_b(2, 2))
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        assert not page.locator(".pp-ops").is_visible()


# -- schedules beside each other -----------------------------------------------------------------


def answer(page: Any, view: Any, message: dict[str, Any]) -> None:
    """What the kernel would do with a message, and what its answer does to the page."""
    view._asked(None, message, [])
    page.evaluate(
        """([meta, spans, params, seq, rev]) => {
      model.set("meta", meta);
      const bytes = Uint8Array.from(atob(spans), (c) => c.charCodeAt(0));
      model.set("spans", new DataView(bytes.buffer));
      model.set("params", params); model.set("seq", seq); model.set("rev", rev); }""",
        [view.meta, base64.b64encode(view.spans).decode(), view.params, view.seq, view.rev],
    )
    settle(page)


def asked(page: Any) -> list[dict[str, Any]]:
    return page.evaluate("window.sent.filter((message) => message.seq)")


def test_every_schedule_has_a_row_of_bars(chromium: Any, tmp_path: Path) -> None:
    view = compare_schedules(["gpipe", "1f1b", "interleaved"], micro_batches=6, cap=4)
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        rows = page.locator(".pp-board tbody tr")
        assert rows.count() == 3
        assert "over the cap" in rows.nth(0).inner_text()
        assert "fastest under the cap" in rows.nth(1).inner_text()
        assert "6 is no multiple of 4" in rows.nth(2).inner_text()
        widths = [
            bar.evaluate("(node) => node.getBoundingClientRect().width")
            for bar in (rows.nth(k).locator("td").nth(2).locator("i") for k in (0, 1))
        ]
        assert widths[1] / widths[0] == pytest.approx(4 / 6, rel=0.02), "one scale for all"
        cap = rows.nth(1).locator("td").nth(2).locator("em").bounding_box()
        end = rows.nth(1).locator("td").nth(2).locator("i").bounding_box()
        assert cap["x"] + 1 == pytest.approx(end["x"] + end["width"], abs=2), "peak 4, cap 4"
        assert page.get_by_role("columnheader", name="Peak activations | cap 4").count() == 1
        assert "Fastest under the cap: 1F1B" in page.locator(".pp-verdict").inner_text()
        assert page.locator("canvas").is_visible()


def test_checkboxes_and_sliders_ask_the_kernel(chromium: Any, tmp_path: Path) -> None:
    view = compare_schedules(["gpipe", "1f1b"])
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        boxes = page.get_by_role("checkbox")
        assert boxes.count() == 9
        assert page.get_by_role("checkbox", name="GPipe").is_checked()
        for name in ("Stages P", "Micro-batches M", "Forward F", "Backward B + W",
                     "W, part of it", "Time of a message", "Memory cap"):  # fmt: skip
            slider = page.get_by_role("slider", name=name)
            assert slider.get_attribute("data-lm-suppress-shortcuts") == "true"
        page.get_by_role("checkbox", name="ZB-H1").check()
        message = asked(page)[-1]
        assert message["schedules"] == ["GPipe", "1F1B", "ZB-H1"]
        before = page.locator("canvas").screenshot()
        answer(page, view, message)
        assert page.locator(".pp-board tbody tr").count() == 3
        assert page.locator("canvas").screenshot() != before
        assert page.evaluate("document.activeElement.value") == "ZB-H1"
        slider = page.get_by_role("slider", name="Memory cap")
        output = slider.locator("xpath=following-sibling::output")
        assert output.inner_text() == "none"
        slider.press("ArrowRight")
        assert output.inner_text() == "1" and asked(page)[-1]["cap"] == 1
        answer(page, view, asked(page)[-1])
        assert "No schedule runs under the cap" in page.locator(".pp-verdict").inner_text()
        for box in ("GPipe", "1F1B", "ZB-H1"):
            page.get_by_role("checkbox", name=box, exact=True).uncheck()
            answer(page, view, asked(page)[-1])
        assert "Choose at least one schedule." in page.get_by_role("alert").inner_text()
        assert not page.locator(".pp-board").is_visible()


def test_the_stack_names_its_schedules_under_the_pointer(chromium: Any, tmp_path: Path) -> None:
    view = compare_schedules(["gpipe", "zb-h1"])
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        box = page.locator("canvas").bounding_box()

        def hover(y: float) -> list[str]:
            page.mouse.move(box["x"] + 70, box["y"] + y)
            settle(page)
            return page.locator(".pp-tip").inner_text().splitlines()

        assert hover(34)[1] == "rank 0 (simulated, GPipe)"
        second = box["height"] / 2
        assert hover(second + 22)[1].endswith("(simulated, ZB-H1)")


@pytest.mark.parametrize("kind", ["play", "stuck", "versus"])
def test_both_themes(chromium: Any, tmp_path: Path, kind: str) -> None:
    views = {
        "play": lambda: play(one_f_one_b(4, 8)),
        "stuck": lambda: how_far(CROSSED),
        "versus": lambda: compare_schedules(cap=5),
    }
    backgrounds = []
    for dark in (False, True):
        file = pages.write(views[kind](), tmp_path / f"{dark}.html", dark=dark)
        with pages.opened(chromium, file) as page:
            most = pixels(page, "#111111" if dark else "#ffffff")
            total = page.evaluate(
                "(() => { const c = document.querySelector('canvas');"
                " return c.width * c.height; })()"
            )
            backgrounds.append(most / total)
            text = page.locator("#here").evaluate("(node) => getComputedStyle(node).color")
            assert text == ("rgb(255, 255, 255)" if dark else "rgb(27, 31, 36)")
    assert min(backgrounds) > 0.2


def test_a_measured_player_says_that_it_is_measured(chromium: Any, tmp_path: Path) -> None:
    t = replace(one_f_one_b(2, 4).simulate(), source="measured: paced")
    with pages.opened(chromium, pages.write(play(t), tmp_path / "a.html")) as page:
        assert "measured: paced" in page.locator(".pp-head").inner_text()
        assert pixels(page, "#4c78a8") > 500, "filled bars"
