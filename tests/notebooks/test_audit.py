"""The stored notebooks of the course, and the audit itself on notebooks with one fault each."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tests.notebooks.audit import ROOT, problems
from tools.refresh_notebooks import METADATA, normalised_text, notebooks

NOTEBOOKS = notebooks()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_notebook_is_fit_to_be_read_and_compared(path):
    assert problems(path) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_notebook_is_stored_as_make_chapters_stores_it(path):
    assert path.read_text(encoding="utf-8") == normalised_text(path), "run `make chapters`"


@pytest.mark.skipif("CI" not in os.environ, reason="only in CI: while writing, there may be none")
def test_there_are_chapters():
    assert [path.name for path in NOTEBOOKS if path.parent.name == "chapters"] != []


# -- the audit itself ---------------------------------------------------------------------------


def good() -> nbformat.NotebookNode:
    notebook = v4.new_notebook(metadata=copy.deepcopy(METADATA))
    picture = {
        "image/png": "iVBORw0KGgo=",
        "text/plain": "4 ranks, 8 micro-batches: step 33 units, 27 % idle",
    }
    notebook.cells = [
        v4.new_markdown_cell("# Bubbles\n\nText.\n\n```python\n# no title\n```\n\n## Part"),
        v4.new_code_cell("print(42)", execution_count=1, outputs=[stream("42\n")]),
        v4.new_markdown_cell("### Smaller"),
        v4.new_code_cell(
            "plan", execution_count=2, outputs=[v4.new_output("display_data", data=picture)]
        ),
        v4.new_code_cell("", execution_count=None),
    ]
    return notebook


def stream(text: str, name: str = "stdout"):
    return v4.new_output("stream", name=name, text=text)


def said(notebook, folder: Path) -> str:
    nbformat.write(notebook, folder / "notebook.ipynb")
    return "\n".join(problems(folder / "notebook.ipynb"))


def test_a_good_notebook_has_no_problem(tmp_path):
    assert said(good(), tmp_path) == ""


def stripped(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []


def out_of_order(notebook):
    notebook.cells[1].execution_count = 7


def mostly_ignored(notebook):
    for cell in notebook.cells:
        cell.metadata["tags"] = ["nbval-ignore-output"]


def only_pictures(notebook):
    del notebook.cells[1]
    notebook.cells[2].execution_count = 1
    notebook.cells[2].outputs[0]["data"]["text/plain"] = "<Figure size 640x480 with 1 Axes>"


def only_measured(notebook):
    notebook.cells[1].outputs = [stream("[measured] 3 s\n")]
    del notebook.cells[3]


def silent_picture(notebook):
    notebook.cells[3].outputs[0]["data"]["text/plain"] = "a timeline"


def figure_repr(notebook):
    notebook.cells[3].outputs[0]["data"]["text/plain"] = "<Figure size 640x480 with 1 Axes>"


def an_error(notebook):
    notebook.cells[1].outputs.append(
        v4.new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])
    )


def widget_state(notebook):
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}


def widget_view(notebook):
    view = {"model_id": "ab", "version_major": 2, "version_minor": 0}
    notebook.cells[3].outputs[0]["data"]["application/vnd.jupyter.widget-view+json"] = view


def too_large(notebook):
    notebook.cells[0].source += "x" * 300_000


def another_kernel(notebook):
    notebook.metadata["kernelspec"]["name"] = "my-venv"


def no_title(notebook):
    notebook.cells[0].source = "## Bubbles"


def late_title(notebook):
    notebook.cells[0].source = "Welcome.\n\n## First\n\n# Bubbles"


def two_titles(notebook):
    notebook.cells[2].source = "# Another"


def a_path(notebook):
    notebook.cells[1].outputs = [stream("42: logs are in /home/ada/run/rank0.log\n")]


def own_path(notebook):
    notebook.cells[1].outputs = [stream(f"42 {ROOT}/pplab\n")]


def a_pid(notebook):
    notebook.cells[1].outputs = [stream("42 ranks, pid=3817\n")]


def stored_stderr(notebook):
    notebook.cells[1].outputs.append(stream("a warning\n", "stderr"))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (stripped, "execution counts are [None, None], not 1 to 2"),
        (stripped, "no cell has an output that nbval compares"),
        (out_of_order, "execution counts are [7, 2]"),
        (mostly_ignored, "2 of 2 code cells keep their output from comparison"),
        (only_pictures, "no cell has an output that nbval compares"),
        (only_measured, "no cell has an output that nbval compares"),
        (silent_picture, "cell [2]: its picture has no text that says what it shows"),
        (figure_repr, "cell [2]: its picture has no text that says what it shows"),
        (an_error, "cell [1]: it stopped with ValueError: no"),
        (widget_state, "the state of widgets is stored"),
        (widget_view, "a widget is stored that no kernel stands behind"),
        (too_large, "300,000 is the most"),
        (another_kernel, "the kernel is 'my-venv', not 'python3'"),
        (no_title, "it needs one title"),
        (late_title, "it needs one title"),
        (two_titles, "titles stand in cells [0, 2]"),
        (a_path, "its output holds a path of this machine: '/home/ada"),
        (own_path, "its output holds a path of this machine"),
        (a_pid, "its output holds a process id: 'pid=3817"),
        (stored_stderr, "stderr is stored"),
    ],
)
def test_each_fault_is_named(tmp_path, fault, sentence):
    notebook = good()
    fault(notebook)
    assert sentence in said(notebook, tmp_path)


def test_an_expected_error_is_no_fault(tmp_path):
    notebook = good()
    an_error(notebook)
    notebook.cells[1].metadata["tags"] = ["raises-exception"]
    assert said(notebook, tmp_path) == ""
