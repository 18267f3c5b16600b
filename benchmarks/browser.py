"""What a reader feels: how fast the explorer answers a key, and how smoothly a large run moves.

Both in a real JupyterLab in headless Chromium (software rendering), kernel included.
"""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import entry

TARGETS = (
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


def run() -> list[dict[str, Any]]:
    """Both figures; entries without a value, and why, where they cannot be measured."""
    why = _missing()
    if not why:
        try:
            return _measured()
        except Exception as error:  # the other figures of the group must not suffer
            why = f"not measured: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return [entry(id, None, *rest, why) for id, *rest in TARGETS]


def _measured() -> list[dict[str, Any]]:
    from playwright.sync_api import sync_playwright

    from tests.browser import lab, page

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder, private = Path(scratch, "course"), Path(scratch, "private")
        folder.mkdir()
        private.mkdir()
        _write(folder / "explorer.ipynb", EXPLORER)
        _write(folder / "large.ipynb", LARGE)
        flags = lab.CHROMIUM_FLAGS
        chromium = playwright.chromium.launch(executable_path=lab.chromium(), args=flags)
        try:
            with lab.running_lab(folder, private) as server:
                presses = _repaints(_opened(lab, chromium, server, "explorer.ipynb"))
                large = _opened(lab, chromium, server, "large.ipynb")
                frames = large.evaluate(page.ZOOM_AND_PAN)
        finally:
            chromium.close()
    return [
        entry(*_headed(0, statistics.median(presses)), _how_repaint(presses)),
        entry(*_headed(1, 1000 * len(frames) / sum(frames)), _how_frames(frames)),
    ]


def _missing() -> str:
    """What this machine lacks, as a sentence; "" when everything is there."""
    lacks = []
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    if not any(map(shutil.which, names)):
        lacks.append("Chromium (apt-get install chromium)")
    for module in ("playwright", "jupyterlab", "pytest", "nbformat"):
        if importlib.util.find_spec(module) is None:
            lacks.append(module)
    return f"not measured: this machine lacks {' and '.join(lacks)}" if lacks else ""


def _headed(which: int, value: float) -> tuple[str, float, str, float, str]:
    id, unit, target, better = TARGETS[which]
    return id, value, unit, target, better


def _write(file: Path, source: str) -> None:
    """A notebook of one cell."""
    import nbformat
    from nbformat import v4

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [v4.new_code_cell(source)]
    nbformat.write(notebook, file)


def _opened(lab: Any, chromium: Any, server: Any, name: str) -> Any:
    """The page of a notebook that has run, with its widget painted."""
    page = lab.LabPage(chromium.new_page(viewport={"width": 1400, "height": 1000}))
    page.open(server, name)
    page.run_all()
    page.page.wait_for_function("window.__pplab_painted !== undefined", timeout=lab.REACT)
    page.settle()
    if faults := page.faults():
        raise RuntimeError("; ".join(faults))
    return page.page


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
    ordered = sorted(presses)
    return (
        f"explorer, 1F1B, P={STAGES}, M={LEAST} to {MOST}: key press to the frame that shows the "
        f"answer of the kernel; median of {len(presses)} presses in JupyterLab, headless Chromium "
        f"(fastest {ordered[0]:.0f}, nine of ten within {ordered[int(0.9 * len(ordered))]:.0f}, "
        f"slowest {ordered[-1]:.0f} ms)"
    )


def _how_frames(frames: list[float]) -> str:
    return (
        f"51,200 spans with the memory strip, zoomed and panned by keys in JupyterLab, headless "
        f"Chromium, software rendering; {len(frames)} frames, slowest {max(frames):.0f} ms"
    )
