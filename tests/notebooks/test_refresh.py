"""`make chapters` on small notebooks: what it stores, what it keeps, when it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tests.notebooks.audit import problems
from tools.refresh_notebooks import main, normalised_text

ROOT = Path(__file__).parents[2]
SOURCES = [
    ("print('a'); print('b')\nprint('c')", []),
    ("import sys; print('noise', file=sys.stderr)\n6 * 7", []),
    ("", []),
    ("import ipywidgets\nslider = ipywidgets.IntSlider(value=3)\nslider", []),
    ("from pplab.core.costs import Costs\nCosts(forward=-1)", ["raises-exception"]),
    ("6 * 7;", []),
]


def write(path: Path, sources=SOURCES) -> None:
    notebook = v4.new_notebook(metadata={"kernelspec": {"name": "my-venv", "display_name": "x"}})
    notebook.cells = [v4.new_markdown_cell("# Title")]
    for source, tags in sources:
        metadata = {"tags": tags, "execution": {"iopub.execute_input": "2031-01-01T00:00:00Z"}}
        notebook.cells.append(v4.new_code_cell(source, metadata=metadata))
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("chapters") / "chapter.ipynb"
    write(path)
    path.with_suffix(".before").write_text(path.read_text())
    assert main([str(path)]) == 0
    return path


def cells(path: Path) -> list:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_counts_run_from_one_and_skip_empty_cells(stored):
    assert [cell.execution_count for cell in cells(stored)] == [1, 2, None, 3, 4, 5]


def test_the_outputs_are_those_of_the_cells(stored):
    first, second, _, _, _, last = cells(stored)
    assert [output.text for output in first.outputs] == ["a\nb\nc\n"]
    assert [output.data["text/plain"] for output in second.outputs] == ["42"]
    assert last.outputs == []


def test_no_widget_is_stored_but_its_text(stored):
    assert cells(stored)[3].outputs[0].data == {"text/plain": "IntSlider(value=3)"}
    assert "widget" not in json.dumps(nbformat.read(stored, as_version=4).metadata)


def test_an_expected_error_is_stored_without_paths(stored):
    (error,) = cells(stored)[4].outputs
    assert error.ename == "ValueError"
    trace = "\n".join(error.traceback)
    assert str(ROOT) not in trace and "pplab/core/costs.py" in trace


def test_times_go_and_ids_stay(stored):
    before = nbformat.read(stored.with_suffix(".before"), as_version=4)
    after = nbformat.read(stored, as_version=4)
    assert [cell.id for cell in before.cells] == [cell.id for cell in after.cells]
    assert [cell.metadata.get("execution") for cell in after.cells] == [None] * len(after.cells)


def test_the_audit_is_content_with_what_is_stored(stored):
    assert problems(stored) == []


def test_check_is_content_with_what_is_stored(stored):
    assert main(["--check", str(stored)]) == 0


def test_a_second_time_stores_the_same_bytes(stored):
    before = stored.read_bytes()
    assert main([str(stored)]) == 0
    assert stored.read_bytes() == before


def test_nbval_is_content_with_what_is_stored(stored):
    plugin = ["-p", "tests.notebooks.live", "--nbval", "--nbval-current-env"]
    sanitize = f"--nbval-sanitize-with={ROOT / 'tests/notebooks/sanitize.cfg'}"
    options = [sanitize, "--nbval-cell-timeout=60", f"--rootdir={stored.parent}", str(stored)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *options],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout


def test_check_names_a_notebook_that_lab_saved(stored, tmp_path, capsys):
    notebook = nbformat.read(stored, as_version=4)
    notebook.cells[1].metadata["execution"] = {"shell.execute_reply": "2031-01-01T00:00:00Z"}
    nbformat.write(notebook, tmp_path / "saved.ipynb")
    assert main(["--check", str(tmp_path / "saved.ipynb")]) == 1
    assert "run `make chapters`" in capsys.readouterr().out


def test_missing_and_doubled_ids_are_given_the_same_way_every_time(tmp_path):
    path = tmp_path / "old.ipynb"
    write(path)
    raw = json.loads(path.read_text())
    del raw["cells"][0]["id"]
    raw["cells"][2]["id"] = raw["cells"][1]["id"]
    path.write_text(json.dumps(raw))
    ids = [cell["id"] for cell in json.loads(normalised_text(path))["cells"]]
    assert len(set(ids)) == len(ids)
    assert ids == [cell["id"] for cell in json.loads(normalised_text(path))["cells"]]


def test_a_notebook_that_fails_is_left_as_it_was(tmp_path, capsys):
    path = tmp_path / "broken.ipynb"
    write(path, [("1 / 0", [])])
    before = path.read_bytes()
    assert main([str(path)]) == 1
    assert path.read_bytes() == before
    assert "is left as it was" in capsys.readouterr().out
