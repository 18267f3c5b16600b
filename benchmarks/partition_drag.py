"""How fast a dragged boundary is seen to move, in a real JupyterLab in headless Chromium.

Two times, from the same pointer moves: to the frame in which the boundary and all sums have moved,
and to the frame in which the kernel's simulation of that cut is shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.in_lab import Entries, Target, figures, spread
from benchmarks.report import entry

TARGETS: tuple[Target, ...] = (
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


def run() -> Entries:
    """Both figures; entries without a value, and why, where they cannot be measured."""
    return figures(TARGETS, {"cuts": WIDGET}, _measured)


def _measured(opened: Callable[[str], Any]) -> Entries:
    seen, answered = _drag(opened("cuts"))
    where = f"{LAYERS} layers, {STAGES} stages, three cuts below, in JupyterLab, headless Chromium"
    found = []
    for target, times, what in (
        (TARGETS[0], seen, "the frame with the boundary and the sums of the new cut"),
        (TARGETS[1], answered, "the frame with its simulated step and bubble, from the kernel"),
    ):
        id, unit, aim, better = target
        how = f"pointer move to {what}; {where}; median of {len(times)} moves ({spread(times)})"
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
