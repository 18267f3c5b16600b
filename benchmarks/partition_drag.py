"""How fast a dragged boundary is seen to move, in a real JupyterLab in headless Chromium.

Two times, from the same pointer moves: to the frame in which the boundary and all sums have moved,
and to the frame in which the kernel's simulation of that cut is shown.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.browser import _missing, _opened, _write
from benchmarks.report import entry

#: (id, unit, target, which is better)
TARGETS: tuple[tuple[str, str, float | None, str], ...] = (
    ("partition.drag_ms", "ms", 50.0, "lower"),
    ("partition.drag_step_ms", "ms", None, "lower"),
)
LAYERS, STAGES, MICRO_BATCHES = 200, 8, 32
MOVES, FAR = 60, 12  # moves of the pointer, and its way in pixels before it turns back
WIDGET = f"""import numpy as np, pplab
costs = np.random.default_rng(1).random({LAYERS}) + 0.5
pplab.compare_partitions(costs, {STAGES}, ("uniform", "minimax", "optimal"),
    micro_batches={MICRO_BATCHES})"""

#: When the last pointer move arrived in the browser, on the clock of performance.now().
_WATCH = """() => {
  window.__moved = null;
  document.addEventListener("pointermove", (e) => { window.__moved = e.timeStamp; }, true);
}"""
#: Waits for the next painted frame, then for one that the kernel has answered; both in ms.
_SHOWN = """async (paints) => {
  const until = async (good) => {
    const end = performance.now() + 5000;
    while (!good(window.__pplab_painted)) {
      if (performance.now() > end) throw new Error("nothing was painted");
      await new Promise((done) => setTimeout(done, 1));
    }
    return window.__pplab_painted.t - window.__moved;
  };
  const seen = await until((last) => last.paints > paints);
  const answered = await until((last) => last.paints > paints && last.fresh);
  return [seen, answered, window.__pplab_painted.paints];
}"""


def run() -> list[dict[str, Any]]:
    """Both figures; entries without a value, and why, where they cannot be measured."""
    why = _missing()
    if not why:
        try:
            return _measured()
        except Exception as error:  # the other figures of the group must not suffer
            why = f"not measured: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return [entry(id, None, unit, aim, better, why) for id, unit, aim, better in TARGETS]


def _measured() -> list[dict[str, Any]]:
    from playwright.sync_api import sync_playwright

    from tests.browser import lab

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder, private = Path(scratch, "course"), Path(scratch, "private")
        folder.mkdir()
        private.mkdir()
        _write(folder / "cuts.ipynb", WIDGET)
        flags = lab.CHROMIUM_FLAGS
        chromium = playwright.chromium.launch(executable_path=lab.chromium(), args=flags)
        try:
            with lab.running_lab(folder, private) as server:
                seen, answered = _drag(_opened(lab, chromium, server, "cuts.ipynb"))
        finally:
            chromium.close()
    where = f"{LAYERS} layers, {STAGES} stages, three cuts below, in JupyterLab, headless Chromium"
    found = []
    for target, times, what in (
        (TARGETS[0], seen, "the frame with the boundary and the sums of the new cut"),
        (TARGETS[1], answered, "the frame with its simulated step and bubble, from the kernel"),
    ):
        id, unit, aim, better = target
        times = sorted(times)
        spread = (
            f"fastest {times[0]:.0f}, nine of ten within {times[int(0.9 * len(times))]:.0f}, "
            f"slowest {times[-1]:.0f} ms"
        )
        how = f"pointer move to {what}; {where}; median of {len(times)} moves ({spread})"
        found.append(entry(id, statistics.median(times), unit, aim, better, how))
    return found


def _drag(page: Any) -> tuple[list[float], list[float]]:
    """Milliseconds from each move of a dragged handle to what it shows, see ``_SHOWN``."""
    page.evaluate(_WATCH)
    handle = page.get_by_role("slider").nth(STAGES // 2 - 1)
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    canvas = page.locator(".pp-partition canvas").bounding_box()
    each = max(5.0, 1.6 * canvas["width"] / LAYERS)  # far enough to reach another layer
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.wait_for_timeout(300)
    paints = page.evaluate("window.__pplab_painted.paints")
    seen, answered, place, way = [], [], 0, 1
    for _ in range(MOVES):
        place += way
        if abs(place) == FAR:
            way = -way
        page.mouse.move(x + place * each, y)
        one, other, paints = page.evaluate(_SHOWN, paints)
        seen.append(one)
        answered.append(other)
    page.mouse.up()
    return seen, answered
