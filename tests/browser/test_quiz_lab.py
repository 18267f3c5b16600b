"""A quiz and a prediction in a real JupyterLab, by keyboard: its shortcuts must not get in between.

JupyterLab keeps Enter in a text field from submitting the form, and arrow keys for its cells; no
static page shows that.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tests.browser.lab import REACT, LabPage
from tools.refresh_notebooks import METADATA

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    notebook = v4.new_notebook(metadata=METADATA)
    notebook.cells = [
        v4.new_markdown_cell("# Quiz"),
        v4.new_code_cell('import pplab\nguess = pplab.predict("x", "How idle?", unit="%")\nguess'),
        v4.new_code_cell('pplab.quiz("05")'),
        v4.new_code_cell("print(guess.value)"),
    ]
    folder = tmp_path_factory.mktemp("quiz")
    nbformat.write(notebook, folder / "quiz.ipynb")
    return folder


def test_answers_by_keyboard_reach_the_kernel_and_come_back(
    lab_server, lab_page: LabPage, folder: Path
) -> None:
    lab_page.open(lab_server(folder), "quiz.ipynb")
    lab_page.run_all()
    page = lab_page.page
    predict, quiz = page.locator(".pp-quiz").nth(0), page.locator(".pp-quiz").nth(1)

    predict.locator("input").click()
    page.keyboard.type("50")
    page.keyboard.press("Enter")
    predict.get_by_text("Now run the next cells.").wait_for(timeout=REACT)

    quiz.locator("input[type=radio]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    quiz.get_by_text("P - s on rank s, instead of M.").wait_for(timeout=REACT)
    assert quiz.locator(".pp-score").inner_text() == "1 of 5 right"

    quiz.locator("input[type=text]").click()
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    quiz.get_by_text("two is PipeDream-2BW").wait_for(timeout=REACT)
    assert quiz.locator("input[type=text]").input_value() == "2"

    lab_page.run_all()  # the kernel knows the prediction, and the quiz shows what was answered
    page.get_by_text("50.0", exact=True).wait_for(timeout=REACT)
    assert page.locator(".pp-score").nth(1).inner_text() == "1 of 5 right"
    assert lab_page.faults() == []
