"""Widgets in a real browser, on a static page without kernel, server or network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import page as pages
import pytest

from pplab.core.costs import Costs
from pplab.core.ops import CODE, B, F
from pplab.core.schedule import schedule
from pplab.core.schedules import gpipe, one_f_one_b, zb_h1
from pplab.core.timeline import Timeline
from pplab.view import TimelineView, explore

pytestmark = pytest.mark.browser
PLAN = one_f_one_b(4, 8)


def two() -> TimelineView:
    """A simulated and, as a stand-in for a run, a slower timeline."""
    simulated = PLAN.simulate(Costs(0.01, 0.02, unit="s"))
    slower = PLAN.simulate(Costs([[0.01], [0.013], [0.01], [0.01]], 0.022, unit="s"))
    return TimelineView(simulated, replace(slower, source="measured: paced"), memory=True, cap=3)


def canvas_box(page: Any) -> dict[str, float]:
    return page.locator("canvas").bounding_box()


def colour_counts(page: Any) -> dict[str, int]:
    """How many pixels of the canvas have each colour."""
    return page.evaluate(
        """() => {
      const shown = document.querySelector("canvas"), n = {};
      const c = Object.assign(document.createElement("canvas"),
        { width: shown.width, height: shown.height });
      const ctx = c.getContext("2d", { willReadFrequently: true });
      ctx.drawImage(shown, 0, 0);
      const d = ctx.getImageData(0, 0, c.width, c.height).data;
      for (let i = 0; i < d.length; i += 4) {
        const hex = "#" + [0, 1, 2].map((k) => d[i + k].toString(16).padStart(2, "0")).join("");
        n[hex] = (n[hex] || 0) + 1;
      }
      return n; }"""
    )


#: The colours of the gradient that a swatch is painted with.
_COLOURS = """(node) => {
  const ctx = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const found = getComputedStyle(node).backgroundImage.match(/(rgba?|color)\\([^()]*\\)/g);
  return found.map((colour) => {
    ctx.clearRect(0, 0, 1, 1);
    ctx.fillStyle = colour;
    ctx.fillRect(0, 0, 1, 1);
    return "#" + [...ctx.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map((x) => x.toString(16).padStart(2, "0")).join("");
  });
}"""


def settle(page: Any) -> None:
    """Let pending frames be painted."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => setTimeout(r, 20)))")


def test_draws_simulated_outlined_and_measured_filled(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(two(), tmp_path / "a.html")) as page:
        colours = colour_counts(page)
        assert colours["#4c78a8"] > 3000 and colours["#b35806"] > 6000  # filled bars
        assert colours["#ffffff"] > 50_000
        head = page.locator(".pp-head").inner_text()
        for expected in ("27.3 %", "step 330 ms", "simulated, 1F1B", "measured: paced, 1F1B"):
            assert expected in head
        assert "the step, measured / simulated" in head
        legend = page.locator(".pp-legend").inner_text()
        for word in ("forward", "backward (whole)", "idle", "waiting", "outlined", "shaded"):
            assert word in legend
        big = page.locator(".pp-main .pp-big b")
        size = big.evaluate("(node) => parseFloat(getComputedStyle(node).fontSize)")
        assert size >= 36 and big.inner_text().endswith(" %")


def test_names_and_words_for_a_screen_reader(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(two(), tmp_path / "a.html")) as page:
        image = page.get_by_role("img")
        assert "[simulated] 4 ranks, 8 micro-batches, 1F1B" in image.get_attribute("aria-label")
        assert "times the simulated one" in image.get_attribute("aria-label")
        for name in ("Play", "Step back", "Step forward", "Zoom in", "Zoom out", "Show all"):
            assert page.get_by_role("button", name=name, exact=True).count() == 1
        assert page.get_by_role("status").count() == 1
        group = page.get_by_role("group")
        assert "Arrow keys step" in group.get_attribute("aria-label")
        assert group.get_attribute("data-lm-suppress-shortcuts") == "true"


def test_tooltip_says_what_when_and_what_it_waited_for(chromium: Any, tmp_path: Path) -> None:
    view = TimelineView(PLAN.simulate())
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        box, tip = canvas_box(page), page.locator(".pp-tip")

        def hover(time: float, rank: int) -> str:
            # The left margin and 33 units across the rest: read off the picture, not the code.
            left, right = 47.0, box["width"] - 14
            x = left + time / (33 * 1.005) * (right - left)
            page.mouse.move(box["x"] + x, box["y"] + 18 + 34 * rank)
            settle(page)
            return tip.inner_text() if tip.is_visible() else ""

        assert hover(11, 0).splitlines() == [
            "B0: backward, micro-batch 0",
            "rank 0 (simulated, 1F1B)",
            "from 10 units to 12 units, lasts 2 units",
            "waited 6 units for B0 of rank 1",
        ]
        assert hover(7, 0).splitlines() == [
            "rank 0 is idle (simulated, 1F1B)",
            "until B0 starts at 10 units",
            "which needs B0 of rank 1",
        ]
        assert hover(30, 3).splitlines()[1] == "no more work for it in this step"
        page.mouse.move(2, 2)
        settle(page)
        assert not tip.is_visible()


def test_a_tooltip_stays_inside_the_widget(chromium: Any, tmp_path: Path) -> None:
    simulated, slower = (one_f_one_b(2, 3).simulate(backward=time) for time in (2, 3))
    view = TimelineView(simulated, replace(slower, source="measured: paced"))
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        box, whole = canvas_box(page), page.locator("#here").bounding_box()
        for x in (400, box["width"] - 180):
            page.mouse.move(box["x"] + x, box["y"] + 128)  # on the last lane
            settle(page)
            tip = page.locator(".pp-tip").bounding_box()
            assert tip["x"] >= whole["x"] and tip["y"] >= whole["y"]
            assert tip["x"] + tip["width"] <= whole["x"] + whole["width"]
            assert tip["y"] + tip["height"] <= whole["y"] + whole["height"]


def test_what_is_written_can_be_read(chromium: Any, tmp_path: Path) -> None:
    pair = [one_f_one_b(16, 8).simulate(), zb_h1(16, 16).simulate()]
    views = {
        "pair": TimelineView(*pair, memory=True),
        "ranks": TimelineView(one_f_one_b(48, 48).simulate(), memory=True),
        "letters": TimelineView(zb_h1(4, 8).simulate()),
    }
    for name, view in views.items():
        file = pages.write(view, tmp_path / f"{name}.html")
        with pages.opened(chromium, file, width=660) as page:
            written = page.evaluate(pages.WRITTEN)
        texts = [text for text, _, _ in written]
        assert min(size for _, size, _ in written) >= 11
        if name == "pair":
            assert {"1F1B", "ZB-H1"} <= set(texts), "each lane says which timeline it shows"
        if name == "ranks":
            assert "rank 0" in texts and "rank 47" in texts, "of the memory strip"
            assert texts.count("rank 46") == 2 and texts.count("rank 47") == 1
        if name == "letters":
            assert {"F0", "B0", "W0"} <= set(texts), "also where bars of one width are narrow"


def test_the_title_of_the_memory_strip_fits(chromium: Any, tmp_path: Path) -> None:
    long = "Memory: activations in flight, and the peak"
    for width, title in ((1000, long), (540, "Activations in flight")):
        with pages.opened(chromium, pages.write(two(), tmp_path / "a.html"), width=width) as page:
            texts = [text for text, _, _ in page.evaluate(pages.WRITTEN)]
            assert f"{title} (simulated / measured); dashed: the cap, 3" in texts


def test_swatches_have_the_colours_of_the_picture(chromium: Any, tmp_path: Path) -> None:
    plain = one_f_one_b(2, 3).simulate()
    columns = {name: column.tolist() for name, column in plain.columns().items()}
    for name, value in zip(columns, (0, 0, 1, CODE["G"], -1, 0, 11.0, 14.0), strict=True):
        columns[name].append(value)
    run = Timeline.of(columns, plain.layout, source="measured: paced", unit="units")
    for dark in (False, True):
        file = pages.write(TimelineView(run), tmp_path / "a.html", dark=dark)
        with pages.opened(chromium, file) as page:
            drawn = colour_counts(page)
            for swatch, name in ((".pp-thin", "grey"), (".pp-wait", "waiting")):
                shown = page.locator(f".pp-key {swatch}").evaluate(_COLOURS)
                assert any(drawn.get(colour, 0) > 200 for colour in shown), (name, shown)


def test_keyboard_steps_plays_and_keeps_the_focus(chromium: Any, tmp_path: Path) -> None:
    view = TimelineView(PLAN.simulate())
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        host, live = page.locator(".pp-host"), page.get_by_role("status")
        host.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert live.inner_text().startswith("3 of 64. F0: forward, micro-batch 0; rank 1")
        assert "waited 1 units for F0 of rank 0" in live.inner_text()
        page.keyboard.press("ArrowLeft")
        assert live.inner_text().startswith("2 of 64.")
        page.keyboard.press("End")
        assert live.inner_text().startswith("64 of 64. B7")
        # New data repaint under the focused element, which must stay the same one.
        page.evaluate("model.set('rev', 77)")
        settle(page)
        assert page.evaluate("document.activeElement.className") == "pp-host"
        assert page.locator("#here").get_attribute("data-rev") == "77"
        assert page.evaluate("window.__pplab_painted.rev") == 77
        page.keyboard.press("ArrowRight")
        assert live.inner_text().startswith("1 of 64.")
        page.keyboard.press("Space")
        page.wait_for_timeout(300)
        assert page.get_by_role("button", name="Pause").count() == 1
        page.keyboard.press("Space")
        assert live.inner_text().startswith("paused at")
        page.keyboard.press("Escape")
        assert live.inner_text().startswith("Arrow keys step")


def test_zoom_and_pan(chromium: Any, tmp_path: Path) -> None:
    view = TimelineView(PLAN.simulate())
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        box, whole = canvas_box(page), page.locator("canvas").screenshot()
        middle = (box["x"] + box["width"] / 2, box["y"] + 40)

        def picture() -> bytes:
            page.mouse.move(2, 2)
            settle(page)
            return page.locator("canvas").screenshot()

        page.mouse.move(*middle)
        page.mouse.wheel(0, -300)
        assert picture() == whole  # a plain wheel scrolls the notebook
        page.mouse.move(*middle)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -300)
        page.keyboard.up("Control")
        zoomed = picture()
        assert zoomed != whole
        page.mouse.move(*middle)
        page.mouse.down()
        page.mouse.move(middle[0] - 120, middle[1], steps=3)
        page.mouse.up()
        dragged = picture()
        assert dragged not in (whole, zoomed)
        page.locator(".pp-host").focus()
        page.keyboard.press("Shift+ArrowLeft")
        assert picture() != dragged
        page.keyboard.press("0")
        page.locator(".pp-host").evaluate("(node) => node.blur()")
        assert picture() == whole
        page.get_by_role("button", name="Zoom in").click()
        page.get_by_role("button", name="Show all").click()
        page.evaluate("document.activeElement.blur()")
        assert picture() == whole


def test_dark_theme_and_a_change_of_theme(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(two(), tmp_path / "a.html", dark=True)) as page:
        colours = colour_counts(page)
        assert max(colours, key=colours.__getitem__) == "#111111"
        assert colours["#4c78a8"] > 3000
        page.evaluate("document.body.dataset.jpThemeLight = 'true'")
        page.evaluate("document.documentElement.style.setProperty('--jp-layout-color0', '#fff')")
        page.evaluate("document.body.classList.add('changed')")
        settle(page)
        colours = colour_counts(page)
        assert max(colours, key=colours.__getitem__) == "#ffffff"


def test_a_hidden_widget_paints_when_it_is_shown(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(two(), tmp_path / "a.html")) as page:
        page.evaluate("document.getElementById('here').style.display = 'none'")
        page.evaluate("model.set('rev', 5)")
        page.wait_for_timeout(150)
        page.evaluate("document.getElementById('here').style.display = ''")
        page.wait_for_timeout(300)
        width = page.evaluate("document.querySelector('canvas').width")
        assert width == page.evaluate("document.querySelector('.pp-host').clientWidth")


def test_fifty_thousand_spans_move_smoothly(chromium: Any, tmp_path: Path) -> None:
    view = TimelineView(one_f_one_b(16, 1600).simulate(), memory=True)
    assert view.meta["n"] == 51_200
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html"), width=1200) as page:
        times = page.evaluate(pages.ZOOM_AND_PAN)
        times.sort()
        rate = 1000 * len(times) / sum(times)
        print(f"51,200 spans: {rate:.0f} frames a second, slowest {times[-1]:.0f} ms")
        assert rate >= 30


def test_explorer_asks_one_question_at_a_time(chromium: Any, tmp_path: Path) -> None:
    view = explore([one_f_one_b, gpipe], stages=4, micro_batches=8)
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        for name in ("Stages P", "Micro-batches M", "Backward : forward", "Link cost (forwards)"):
            slider = page.get_by_role("slider", name=name)
            assert slider.get_attribute("data-lm-suppress-shortcuts") == "true"
        assert "3/11" in page.locator(".pp-head").inner_text()
        page.get_by_role("slider", name="Micro-batches M").focus()
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        sent = asked(page)
        assert [message["micro_batches"] for message in sent] == [9]
        answer(page, view, sent[-1])
        sent = asked(page)
        assert [message["micro_batches"] for message in sent] == [9, 13]
        answer(page, view, sent[-1])
        assert "3/16" in page.locator(".pp-head").inner_text()
        assert len(asked(page)) == 2
        assert page.evaluate("document.activeElement.name") == "micro_batches"
        page.get_by_role("combobox", name="Schedule").select_option("GPipe")
        assert asked(page)[-1]["schedule"] == "GPipe"


def asked(page: Any) -> list[dict[str, Any]]:
    """The questions the page has sent so far."""
    return page.evaluate("window.sent.filter((message) => message.seq)")


def answer(page: Any, view: Any, message: dict[str, Any]) -> None:
    """What the kernel would do with a message, and what its answer does to the page."""
    view._asked(None, message, [])
    page.evaluate(
        """([meta, spans, params, seq, rev]) => {
      model.set("meta", meta);
      const bytes = Uint8Array.from(atob(spans), (c) => c.charCodeAt(0));
      model.set("spans", new DataView(bytes.buffer));
      model.set("params", params); model.set("seq", seq); model.set("rev", rev); }""",
        [view.meta, pages.base64.b64encode(view.spans).decode(), view.params, view.seq, view.rev],
    )
    settle(page)


def test_explorer_without_a_kernel_says_so(chromium: Any, tmp_path: Path) -> None:
    view = explore(gpipe)
    with pages.opened(chromium, pages.write(view, tmp_path / "a.html")) as page:
        page.get_by_role("slider", name="Stages P").press("ArrowRight")
        page.wait_for_timeout(4300)
        assert "No answer from the kernel" in page.locator(".pp-note").inner_text()


def test_a_wrong_schedule_is_shown_in_sentences(chromium: Any, tmp_path: Path) -> None:
    @schedule(name="mine")
    def mine(stage: int, stages: int, micro_batches: int) -> Any:
        yield B(0)
        yield F(0)

    with pages.opened(chromium, pages.write(explore(mine), tmp_path / "a.html")) as page:
        shown = page.get_by_role("alert").inner_text()
        assert "mine cannot run with these numbers" in shown
        assert not page.locator("canvas").is_visible()


def test_cleaning_up_leaves_nothing_running(chromium: Any, tmp_path: Path) -> None:
    with pages.opened(chromium, pages.write(two(), tmp_path / "a.html")) as page:
        page.locator(".pp-host").focus()
        page.keyboard.press("Space")
        page.evaluate("window.cleanup()")
        page.evaluate("document.getElementById('here').remove()")
        page.evaluate("model.set('rev', 9)")
        page.evaluate("document.body.classList.add('changed')")
        settle(page)
