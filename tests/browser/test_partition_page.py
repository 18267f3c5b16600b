"""The comparison of partitions in a real browser: dragged, moved by keys, and the same numbers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import page as pages
import pytest
from nbformat import v4

from pplab.core.partition import Partition, devices, partition
from pplab.core.partition.examples import article
from pplab.core.partition.fit import gigabytes
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import dualpipev, gpipe, interleaved, one_f_one_b
from pplab.view import assets, compare_partitions, words
from pplab.view.partition import PartitionComparison, about_rows
from pplab.view.partition_rows import Row, Rows, signed
from tests.browser.lab import REACT, LabPage

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium(browser: Any) -> Any:
    """The kit's browser: a second one beside it would trip over its event loop."""
    return browser


def settle(page: Any) -> None:
    """Let pending frames be painted."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => setTimeout(r, 30)))")


def grip(page: Any, cut: int) -> Any:
    return page.get_by_role("slider").nth(cut - 1)


def bounds(page: Any) -> list[int]:
    """Where the handles say that the slices begin."""
    return page.get_by_role("slider").evaluate_all(
        "(nodes) => nodes.map((node) => Number(node.getAttribute('aria-valuenow')))"
    )


def answer(page: Any, shown: PartitionComparison) -> None:
    """What the kernel does: read everything the page has sent, and send back what it answers."""
    for message in page.evaluate("() => window.sent.splice(0)"):
        shown._asked(shown, message, None)
    state = {name: getattr(shown, name) for name in ("meta", "params", "seq", "rev")}
    page.evaluate("(state) => { for (const key in state) model.set(key, state[key]); }", state)
    settle(page)


def drag(page: Any, cut: int, by: float) -> None:
    """Drag a handle sideways with the mouse, in steps, and let go."""
    box = grip(page, cut).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by, y, steps=6)
    page.mouse.up()
    settle(page)


def headline(page: Any) -> list[str]:
    return page.locator(".pp-partition .pp-head").inner_text().split("\n")


# -- the same numbers as in Python --------------------------------------------------------------


def cuts(count: int) -> Iterator[Partition]:
    """Random cuts of random models, for random schedules and devices."""
    rng = np.random.default_rng(5)
    makers = ((one_f_one_b, 1), (gpipe, 1), (interleaved, 2), (interleaved, 3), (dualpipev, 2))
    for _ in range(count):
        maker, chunks = makers[rng.integers(len(makers))]
        stages = int(rng.integers(1 if maker is not dualpipev else 2, 6))
        n = int(rng.integers(stages * chunks, 40) if stages * chunks < 40 else stages * chunks)
        tied = rng.choice(n, size=min(n, int(rng.integers(0, 5))), replace=False)
        layers = [
            LayerProfile(
                f"l{i}",
                float(rng.lognormal()) * 10.0 ** rng.integers(-7, 1),
                float(rng.integers(0, 5)) / 4,
                parameters=int(rng.integers(0, 10**9)),
                activation_bytes=int(rng.integers(0, 10**8)),
                tied="ab"[i % 2] if i in tied else None,
            )
            for i in range(n)
        ]
        cap = rng.choice([np.inf, 3e10], size=stages)
        own = devices(stages, speed=rng.choice([0.5, 1, 1.7], stages).tolist(), memory=cap.tolist())
        options = {"devices": own, "schedule": maker, "micro_batches": 2 * stages, "chunks": chunks}
        inner = 1 + rng.choice(n - 1, size=stages * chunks - 1, replace=False) if n > 1 else []
        cut = [0, *sorted(map(int, inner)), n]
        unit = str(rng.choice(["s", "units"]))
        yield partition(
            Profile(tuple(layers), unit=unit), stages, cut,
            keep_tied=bool(rng.integers(2)), bytes_per_parameter=float(rng.choice([2, 16])),
            **options,
        )  # fmt: skip


def test_the_page_and_python_say_the_same_of_any_cut(chromium: Any, tmp_path: Path) -> None:
    """Two ways to one truth: the sums of the page against those of the core, on the same cuts."""
    plans = list(cuts(150))
    sent = []
    for plan in plans:
        about, layers = about_rows(Rows((Row("x", plan),)))
        raw = base64.b64encode(layers).decode()
        sent.append({"about": about, "raw": raw, "bounds": list(plan.bounds)})
    module = assets.module(
        "columns.js", "partition_sums.js",
        render="window.kit = { unpackLayers, sumsOf, timeWords, byteWords, percentWords,"
        " signedWords };",
    )  # fmt: skip
    file = tmp_path / "kit.html"
    file.write_text(
        '<!doctype html><meta charset="utf-8"><script type="module">'
        f"const source = {json.dumps(module)};"
        "const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));"
        "(await import(url)).default.render({});"
        "window.__pplab_painted = true;</script>"
    )
    with pages.opened(chromium, file) as page:
        found = page.evaluate(
            """(cases) => cases.map(({ about, raw, bounds }) => {
          const bytes = Uint8Array.from(atob(raw), (c) => c.charCodeAt(0)), { kit } = window;
          const layers = kit.unpackLayers(about, new DataView(bytes.buffer));
          const sums = kit.sumsOf(layers, about.problems[0], bounds);
          return { ...sums, words: [kit.timeWords(sums.most, about.unit),
            kit.percentWords(sums.imbalance), kit.byteWords(sums.memory[0]),
            kit.signedWords(sums.imbalance)] };
        })""",
            sent,
        )
    assert len({plan.fits for plan in plans}) == 2, "the cases must hold both"
    for plan, js in zip(plans, found, strict=True):
        assert js["loads"] == plan.loads.tolist()
        assert js["rankLoads"] == plan.rank_loads.tolist()
        assert js["most"] == plan.max_load
        assert js["memory"] == plan.memory.tolist()
        assert js["imbalance"] == pytest.approx(plan.imbalance, rel=1e-9, abs=1e-12)
        assert js["fits"] == plan.fits and js["over"] == list(plan.overfull)
        assert js["words"] == [
            words.duration(plan.max_load, plan.problem.profile.unit),
            words.percent(plan.imbalance),
            gigabytes(plan.memory[0]),
            signed(plan.imbalance),
        ]
    halves = [0.5, 1.5, 2.5, 112.25, 112.35, 1234.5, 1235.5, 98765.5, 0.00012345, 3.0, 0.0]
    with pages.opened(chromium, file) as page:
        printed = page.evaluate("(v) => v.map((x) => window.kit.timeWords(x, 'units'))", halves)
        shares = page.evaluate("(v) => v.map((x) => window.kit.percentWords(x / 100))", halves)
    assert printed == [words.duration(x, "units") for x in halves]
    assert shares == [words.percent(x / 100) for x in halves]


# -- dragging -----------------------------------------------------------------------------------


def test_a_drag_is_shown_at_once_and_answered_by_the_simulator(
    chromium: Any, tmp_path: Path
) -> None:
    shown = compare_partitions(article(), 3)
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        assert bounds(page) == [3, 6]
        assert headline(page)[:3] == ["39.5 %", "bubble: idle / total", "optimal: 22.4 %"]
        assert {"160 units", "50.0 %", "+39.1 % (optimal: 115 units)"} <= set(headline(page))
        scale = page.locator("canvas").bounding_box()["width"] - 132 - 14
        drag(page, 1, -15 / 320 * scale)  # layer 2 takes 15 of 320 units
        assert bounds(page) == [2, 6]
        # sums are there before any answer; what is simulated is marked as not yet known
        moved = shown.rows.rows[0].partition.moved(1, 2)
        assert f"{moved.max_load:g} units" in headline(page) and "39.5 %" in headline(page)
        assert {"optimal: 1100 units"} <= set(headline(page))  # how much longer is not known yet
        busy = page.locator("[aria-busy=true]")
        assert busy.count() == 2
        answer(page, shown)
        assert shown.partition.bounds == moved.bounds == (0, 2, 6, 8)
        assert busy.count() == 0
        assert words.percent(moved.bubble) in headline(page)
        assert words.duration(moved.step, "units") in headline(page)
        label = page.get_by_role("img").get_attribute("aria-label")
        assert f"Yours takes {moved.step:.0f} units a step" in label
        status = page.locator(".pp-live").inner_text()
        assert "Cut at 2, 6: the largest stage is 1 with 175 units" in status
        assert "against optimal" in status


def test_a_boundary_stops_at_its_neighbours(chromium: Any, tmp_path: Path) -> None:
    shown = compare_partitions(article(), 3)
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        drag(page, 1, 900)
        assert bounds(page) == [5, 6]
        drag(page, 2, -900)
        assert bounds(page) == [5, 6]
        drag(page, 1, -900)
        assert bounds(page) == [1, 6]
        last = page.evaluate("() => window.sent.filter((m) => m.settled).at(-1)")
        assert last == {"settled": [0, 1, 6, 8], "base": 0}


def test_one_question_at_a_time_and_the_last_cut_is_told_at_once(
    chromium: Any, tmp_path: Path
) -> None:
    shown = compare_partitions(np.ones(200), 4)
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        drag(page, 2, 150)
        sent = page.evaluate("() => window.sent")
        questions = [message for message in sent if "seq" in message]
        assert len(questions) == 1  # the others wait: nothing has been answered yet
        final = [message for message in sent if "settled" in message]
        assert final and final[-1]["settled"][1:-1] == bounds(page) != questions[0]["bounds"][1:-1]
        for message in sent:
            shown._asked(shown, message, None)
        assert list(shown.partition.bounds[1:-1]) == bounds(page)


def test_touch_drags_too(chromium: Any, tmp_path: Path) -> None:
    shown = compare_partitions(article(), 3)
    file = pages.write(shown, tmp_path / "a.html")
    with pages.opened(chromium, file) as page:
        box = grip(page, 1).bounding_box()
        assert box["width"] >= 18 and box["height"] >= 44
        touch = page.context.new_cdp_session(page)
        x, y = box["x"] + box["width"] / 2, box["y"] + 20
        for kind, at in (("touchStart", x), ("touchMove", x - 40), ("touchMove", x - 150)):
            points = [{"x": at, "y": y}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        settle(page)
        assert bounds(page)[0] == 1


def test_keys_move_and_the_focus_stays(chromium: Any, tmp_path: Path) -> None:
    shown = compare_partitions(article(), 3)
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        handle = grip(page, 2)
        handle.focus()
        page.keyboard.press("ArrowLeft")
        settle(page)
        assert bounds(page) == [3, 5]
        answer(page, shown)
        page.keyboard.press("ArrowLeft")
        answer(page, shown)
        assert bounds(page) == [3, 4] and shown.partition.bounds == (0, 3, 4, 8)
        assert handle.evaluate("(node) => node === document.activeElement")
        for key, place in (("End", 7), ("Home", 4), ("Shift+ArrowRight", 7), ("ArrowUp", 7)):
            page.keyboard.press(key)
            settle(page)
            assert bounds(page) == [3, place]
        assert handle.get_attribute("data-lm-suppress-shortcuts") == "true"
        assert handle.get_attribute("aria-label") == "Boundary between stage 1 and stage 2"
        value = "stage 2 begins with layer 7, layer 7; stage 1: 175 units, stage 2: 15 units"
        assert handle.get_attribute("aria-valuetext") == value
        assert [handle.get_attribute(f"aria-value{end}") for end in ("min", "max")] == ["4", "7"]
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "after"


def test_python_moves_the_handles_and_buttons_start_from_a_row(
    chromium: Any, tmp_path: Path
) -> None:
    shown = compare_partitions(article(), 3, ("uniform", "optimal"))
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        shown.move(1, 1)
        answer(page, shown)
        assert bounds(page) == [1, 6]
        page.get_by_role("button", name="Start from optimal").click()
        settle(page)
        assert bounds(page) == [2, 5]
        answer(page, shown)
        assert shown.partition is shown.rows.rows[1].partition
        assert "0.0 % (optimal: 115 units)" in headline(page)


# -- memory, devices, chunks, measured times ----------------------------------------------------


def model(layers: int = 12) -> Profile:
    block = {"parameters": 7_000_000, "activation_bytes": 60_000_000}
    found = [LayerProfile(f"block.{i}", 0.004, 0.008, **block) for i in range(layers)]
    return Profile((*found, LayerProfile("head", 0.012, 0.022, parameters=12_000_000)))


def test_what_does_not_fit_is_said_while_dragging(chromium: Any, tmp_path: Path) -> None:
    shown = compare_partitions(model(), 3, ["optimal"], devices=devices(3, memory=1.6e9))
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        warning = page.locator(".pp-partition > .pp-warn").first
        assert not warning.is_visible()
        handle = grip(page, 1)
        handle.focus()
        page.keyboard.press("End")
        settle(page)
        answer(page, shown)
        assert shown.partition.overfull == (0,)
        said = warning.inner_text()
        assert said.startswith("Does not fit: stage 0 needs ") and said.endswith("has 1.6 GB.")
        row = page.locator(".pp-board tbody tr").first.inner_text()
        assert "over its 1.6 GB" in row and "0–" in row
        page.get_by_role("button", name="Start from optimal").click()
        settle(page)
        assert not warning.is_visible()


def test_chunks_measured_times_and_tooltips(chromium: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"schedule": interleaved, "chunks": 2, "micro_batches": 8}
    cut = partition(model(16), 4, "uniform", **options)
    shown = compare_partitions({"uniform": cut}, measured={"uniform": (cut.loads * 1.5).tolist()})
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        assert len(bounds(page)) == 7
        assert grip(page, 4).get_attribute("aria-label") == (
            "Boundary between chunk 0 of rank 3 and chunk 1 of rank 0"
        )
        box, tip = page.locator("canvas").bounding_box(), page.locator(".pp-tip")
        page.mouse.move(box["x"] + 132 + 5, box["y"] + 18 + 36 + 18 + 14 + 10)
        settle(page)
        lines = tip.inner_text().splitlines()
        assert lines[0] == "block.0 (layer 0): 12 ms"
        assert lines[1] == "forward 4 ms, backward 8 ms"
        assert lines[2] == "112 MB stay, 60 MB a micro-batch in flight"
        assert lines[3].startswith("uniform, chunk 0 of rank 0: layers 0 to 2, ")
        assert lines[4] == "measured 54 ms (+50.0 %)"
        assert "2.1: rank 2, chunk 1" in page.locator(".pp-setting").inner_text()


@pytest.mark.parametrize(("layers", "stages"), [(4, 2), (1_000, 64)])
@pytest.mark.parametrize("dark", [False, True])
def test_sizes_and_themes(
    chromium: Any, tmp_path: Path, layers: int, stages: int, dark: bool
) -> None:
    costs = np.random.default_rng(1).lognormal(size=layers)
    shown = compare_partitions(costs, stages, ("uniform", "minimax"), micro_batches=8)
    file = pages.write(shown, tmp_path / "a.html", dark=dark)
    with pages.opened(chromium, file, width=1000 if stages == 64 else 420) as page:
        assert len(bounds(page)) == stages - 1
        colours = page.evaluate(
            """() => { const c = document.querySelector("canvas");
          const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, n = {};
          for (let i = 0; i < d.length; i += 4) {
            const hex = "#" + [0, 1, 2].map((k) => d[i + k].toString(16).padStart(2, "0")).join("");
            n[hex] = (n[hex] || 0) + 1; }
          return n; }"""
        )
        assert max(colours, key=colours.__getitem__) == ("#111111" if dark else "#ffffff")
        for colour in shown.about["colours"][: min(stages, 6)]:
            assert colours.get(colour, 0) > 300
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0


def test_many_layers_on_a_narrow_page_leave_every_stage_its_name(
    chromium: Any, tmp_path: Path
) -> None:
    costs = 1 + np.random.default_rng(1).random(60).round(2)
    shown = compare_partitions(costs, 8, ("uniform", "optimal"))
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html"), width=660) as page:
        written = page.evaluate(pages.WRITTEN)
    texts = [text for text, _, _ in written]
    names = [text.removeprefix("▲ ") for text in texts if text.removeprefix("▲ ").isdigit()]
    assert all(names.count(str(stage)) >= 3 for stage in range(1, 8)), "three cuts, eight stages"
    assert not {"11", "17", "29"} & set(names), "some layers numbered and others not"
    assert min(size for _, size, _ in written) >= 11


@pytest.mark.parametrize(("costs", "stages"), [([0, 0, 0], 2), ([1, 2], 1), ([3], 1)])
def test_models_of_nothing_and_pipelines_of_one(
    chromium: Any, tmp_path: Path, costs: list[float], stages: int
) -> None:
    shown = compare_partitions(costs, stages)
    with pages.opened(chromium, pages.write(shown, tmp_path / "a.html")) as page:
        assert len(bounds(page)) == stages - 1
        assert page.locator(".pp-board tbody tr").count() == stages
        assert "NaN" not in page.locator("#here").inner_text()


# -- in JupyterLab, with a kernel ---------------------------------------------------------------

DRAG = """import pplab
from pplab.core.partition.examples import article
widget = pplab.compare_partitions(article(), 3)
widget"""
THEN = 'print("cut at", widget.partition.bounds, f"step {widget.partition.step:g}")'


def test_the_next_cell_finds_the_cut_that_was_dragged(
    lab_server: Any, lab_page: LabPage, tmp_path: Path
) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [v4.new_code_cell(DRAG), v4.new_code_cell(THEN)]
    nbformat.write(notebook, tmp_path / "drag.ipynb")
    lab_page.open(lab_server(tmp_path), "drag.ipynb")
    lab_page.run_all()
    page = lab_page.page
    page.wait_for_function("window.__pplab_painted !== undefined", timeout=REACT)
    cell = page.locator(".jp-CodeCell").nth(1)
    assert "cut at (0, 3, 6, 8) step 1410" in cell.inner_text()
    box = grip(page, 1).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 400, y, steps=5)
    page.mouse.up()
    assert bounds(page) == [1, 6]
    # JupyterLab has shortcuts for arrow keys: the handle must get them, and keep the focus.
    page.keyboard.press("ArrowRight")
    assert bounds(page) == [2, 6]
    page.wait_for_function("document.querySelectorAll('[aria-busy=true]').length === 0")
    assert grip(page, 1).evaluate("(node) => node === document.activeElement")
    page.evaluate(
        """async () => {
      window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
      await window.jupyterapp.commands.execute('notebook:run-cell');
    }"""
    )
    step = partition(article(), 3, [0, 2, 6, 8]).step
    assert f"cut at (0, 2, 6, 8) step {step:g}" in cell.inner_text()
    assert f"{step:g} units" in headline(page)
    assert lab_page.faults() == []
