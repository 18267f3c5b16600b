"""The chapters in a real JupyterLab: they run, they show, they answer a key press.

The kit proves itself first on a small notebook with the same kind of widget, and on notebooks with
one fault each.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tests.browser.lab import REACT, ROOT, LabPage
from tests.measuring import Tries

pytestmark = pytest.mark.browser

CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
#: Run here, with all their widgets; the others are opened and looked at. nbval runs every one, and
#: the board of chapter 3 is dragged in ``test_partition_page``.
RUN = ("00_start_here", "01_bubbles")
EXPLORER = ".pp-explorer"


@pytest.fixture(scope="module")
def chapters(tmp_path_factory) -> Path:
    """A copy of the chapters: JupyterLab saves by itself, and must not save into the project."""
    folder = tmp_path_factory.mktemp("course") / "chapters"
    shutil.copytree(ROOT / "chapters", folder)
    return folder


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_shows(lab_server, lab_page, chapters, chapter):
    lab_page.open(lab_server(chapters), chapter.name)
    if chapter.stem in RUN:
        run_all(lab_page)
    assert lab_page.faults() == []
    check_pictures(lab_page, chapter.stem)
    if chapter.stem == "01_bubbles":
        check_explorer(lab_page)
    assert lab_page.faults() == []


def run_all(lab_page: LabPage) -> None:
    """Run the cells; all of them again when a check of measured values has stopped them."""
    tries = Tries()
    while True:
        lab_page.run_all()
        stopped = [fault for fault in lab_page.faults() if "this should hold here" in fault]
        if not stopped or not tries.failed(stopped[0]):
            break


def check_pictures(lab_page: LabPage, name: str) -> None:
    """Keep what the notebook looks like in both themes; the two must differ."""
    light = lab_page.screenshot(f"{name}-light").read_bytes()
    lab_page.theme("JupyterLab Dark")
    dark = lab_page.screenshot(f"{name}-dark").read_bytes()
    lab_page.theme("JupyterLab Light")
    assert light != dark


def check_explorer(lab_page: LabPage) -> None:
    """One key press on the micro-batches slider must change what the explorer shows."""
    explorer = lab_page.page.locator(EXPLORER).first
    slider = explorer.get_by_label(re.compile("micro-batches", re.IGNORECASE)).and_(
        lab_page.page.locator("input[type=range]")
    )
    assert slider.count() == 1, "it needs one slider that a label calls micro-batches"
    revised = explorer.locator("xpath=descendant-or-self::*[@data-rev]").first
    canvas = explorer.locator("canvas").first
    before = revised.get_attribute("data-rev"), picture(canvas), slider.input_value()
    slider.focus()
    slider.press("ArrowRight")
    lab_page.page.wait_for_function(
        "([element, old]) => element.dataset.rev !== old",
        arg=[revised.element_handle(), before[0]],
        timeout=REACT,
    )
    lab_page.settle()
    assert slider.input_value() != before[2]
    assert picture(canvas) != before[1], "the number changed, the picture did not"


def picture(canvas) -> str:
    return canvas.evaluate("(canvas) => canvas.toDataURL()")


# -- the kit itself ---------------------------------------------------------------------------

SMALL_EXPLORER = '''
import anywidget, traitlets

class Explorer(anywidget.AnyWidget):
    rev = traitlets.Int(0).tag(sync=True)
    _esm = """
    export default { render({ model, el }) {
      el.classList.add("pp-explorer");
      el.innerHTML = `<label>Micro-batches <input type="range" min="1" max="9" value="4"
        data-lm-suppress-shortcuts="true"></label> <canvas width="90" height="20"></canvas>`;
      const input = el.querySelector("input"), pen = el.querySelector("canvas").getContext("2d");
      const draw = () => {
        pen.clearRect(0, 0, 90, 20);
        pen.fillRect(0, 0, DRAWN, 20);
        el.dataset.rev = model.get("rev");
      };
      input.oninput = () => { model.send(Number(input.value)); };
      model.on("change:rev", draw);
      draw();
    } };
    """

    def __init__(self):
        super().__init__()
        self.on_msg(lambda widget, content, buffers: setattr(widget, "rev", widget.rev + 1))

Explorer()
'''
NOTEBOOKS = {
    "fine": [SMALL_EXPLORER.replace("DRAWN", "10 * input.value"), "print(6 * 7)"],
    "frozen": [SMALL_EXPLORER.replace("DRAWN", "50")],
    "stops": ["1 / 0"],
    "asks_out": [
        "from IPython.display import HTML, display\n"
        "display(HTML('<img src=\"http://192.0.2.1/pixel.png\">'))"
    ],
    "complains": [
        "from IPython.display import Javascript, display\n"
        "display(Javascript('console.error(\"the widget is broken\")'))"
    ],
}


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    for name, sources in NOTEBOOKS.items():
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = v4.new_notebook(metadata={"kernelspec": kernel})
        notebook.cells = [v4.new_code_cell(source) for source in sources]
        nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder


def test_a_fine_notebook_passes(lab_server, lab_page, own):
    lab_page.open(lab_server(own), "fine.ipynb")
    lab_page.run_all()
    check_pictures(lab_page, "kit")
    check_explorer(lab_page)
    assert lab_page.faults() == []


def test_a_picture_that_does_not_change_is_found(lab_server, lab_page, own):
    lab_page.open(lab_server(own), "frozen.ipynb")
    lab_page.run_all()
    with pytest.raises(AssertionError, match="the picture did not"):
        check_explorer(lab_page)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("stops", "cell 0 stopped with ZeroDivisionError"),
        ("asks_out", "request to http://192.0.2.1/pixel.png"),
        ("complains", "console: the widget is broken"),
    ],
)
def test_a_fault_is_found(lab_server, lab_page, own, name, fault):
    lab_page.open(lab_server(own), f"{name}.ipynb")
    lab_page.run_all()
    assert fault in "\n".join(lab_page.faults())


def test_the_settings_of_the_course_hold(lab_server, lab_page, own):
    """No question about news, and outputs far down stay in the page."""
    lab_page.open(lab_server(own), "fine.ipynb")
    composite = lab_page.page.evaluate(
        """async () => {
          const app = window.jupyterapp, panel = app.shell.currentWidget;
          return [panel.content.notebookConfig.windowingMode,
                  document.querySelectorAll('.Toastify__toast').length];
        }"""
    )
    assert composite == ["none", 0]
