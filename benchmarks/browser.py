"""What a reader feels: how fast the explorer answers a key, and how smoothly a large run moves.

Both in a real JupyterLab in headless Chromium (software rendering), kernel included.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.in_lab import Entries, Target, figures, spread
from benchmarks.report import entry

TARGETS: tuple[Target, ...] = (
    ("spine.repaint_ms", "ms", 60.0, "lower"),
    ("spine.fps_50k", "frames/s", 30.0, "higher"),
)
STAGES, LEAST, MOST = 8, 8, 32  # the slider goes from M = LEAST to M = MOST and back
PRESSES = 60
EXPLORER = f"import pplab\npplab.explore('1f1b', stages={STAGES}, micro_batches={LEAST})"
LARGE = """from pplab.view import TimelineView
import pplab
TimelineView(pplab.schedules.one_f_one_b(16, 1600).simulate(), memory=True)"""

#: From the key event to the frame that shows its answer, for one press on the focused slider.
_WATCH = """() => {
  window.__pressed = null;
  document.addEventListener("keydown", () => { window.__pressed = performance.now(); }, true);
}"""
_ANSWERED = """async (rev) => {
  while (!window.__pplab_painted || window.__pplab_painted.rev <= rev)
    await new Promise((done) => setTimeout(done, 1));
  return [window.__pplab_painted.t - window.__pressed, window.__pplab_painted.rev];
}"""


def run() -> Entries:
    """Both figures; entries without a value, and why, where they cannot be measured."""
    return figures(TARGETS, {"explorer": EXPLORER, "large": LARGE}, _measured)


def _measured(opened: Callable[[str], Any]) -> Entries:
    from tests.browser import page

    presses = _repaints(opened("explorer"))
    frames = opened("large").evaluate(page.ZOOM_AND_PAN)
    return [
        entry(*_headed(0, statistics.median(presses)), _how_repaint(presses)),
        entry(*_headed(1, 1000 * len(frames) / sum(frames)), _how_frames(frames)),
    ]


def _headed(which: int, value: float) -> tuple[str, float, str, float | None, str]:
    id, unit, target, better = TARGETS[which]
    return id, value, unit, target, better


def _repaints(page: Any) -> list[float]:
    """Milliseconds from each key press on the micro-batches slider to the frame that answers it."""
    page.evaluate(_WATCH)
    page.get_by_role("slider", name="Micro-batches M").focus()
    rev = page.evaluate("window.__pplab_painted.rev")
    found, keys = [], ["ArrowRight"] * (MOST - LEAST) + ["ArrowLeft"] * (MOST - LEAST)
    for press in range(PRESSES):
        page.keyboard.press(keys[press % len(keys)])
        took, rev = page.evaluate(_ANSWERED, rev)
        found.append(took)
    return found


def _how_repaint(presses: list[float]) -> str:
    return (
        f"explorer, 1F1B, P={STAGES}, M={LEAST} to {MOST}: key press to the frame that shows the "
        f"answer of the kernel; median of {len(presses)} presses in JupyterLab, headless Chromium "
        f"({spread(presses)})"
    )


def _how_frames(frames: list[float]) -> str:
    return (
        f"51,200 spans with the memory strip, zoomed and panned by keys in JupyterLab, headless "
        f"Chromium, software rendering; {len(frames)} frames, slowest {max(frames):.0f} ms"
    )
