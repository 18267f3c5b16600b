"""Labs as learners get them: untouched, they stop exactly at their stubs and nowhere else.

The complete ones (labs/source) run under nbval with the chapters. The ones with stubs are executed
here twice over the same cells: strictly, where every check has to stop, and as a learner runs them,
where none may.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tools.make_labs import CHECK, LABS, sources
from tools.refresh_notebooks import load

ROOT = Path(__file__).parents[2]
NAMES = [path.name for path in sources()]


def executed(name: str, folder: Path, monkeypatch, *, strict: bool) -> list:
    """The code cells of a lab after running all of them, whatever happens."""
    monkeypatch.setenv("PPLAB_PROGRESS", str(folder / "progress"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    monkeypatch.setenv("PPLAB_STRICT", "1" if strict else "")
    notebook = load(LABS / name)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=120,
        allow_errors=True,
        resources={"metadata": {"path": str(LABS)}},
    )
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def errors(cell) -> list[str]:
    return [f"{o.ename}: {o.evalue}" for o in cell.outputs if o.output_type == "error"]


@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_lab_stops_exactly_at_its_stubs(name, tmp_path, monkeypatch):
    cells = executed(name, tmp_path, monkeypatch, strict=True)
    for cell in cells:
        stopped = errors(cell)
        if CHECK.search(cell.source):
            (error,) = stopped
            assert error.startswith("NotRight: ○ not attempted"), cell.source
        else:
            assert stopped == [], cell.source
    stubs = [cell for cell in cells if re.search(r"(= |^\s*)\.\.\.", cell.source, re.MULTILINE)]
    checks = [cell for cell in cells if CHECK.search(cell.source)]
    assert 0 < len(stubs) <= len(checks)
    assert list((tmp_path / "progress").glob("*.json")) == [], "nothing was answered"


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_who_runs_all_of_it_sees_no_error(name):
    """What is stored is what `make_labs` saw without $PPLAB_STRICT."""
    notebook = nbformat.read(LABS / name, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert errors(cell) == []
            if CHECK.search(cell.source):
                assert cell.outputs[0].data["text/plain"].startswith("○ not attempted")


@pytest.mark.parametrize("name", NAMES)
def test_a_complete_lab_is_stored_with_all_of_it_right(name):
    notebook = nbformat.read(LABS / "source" / name, as_version=4)
    said = [
        cell.outputs[0].data["text/plain"].split(":")[0]
        for cell in notebook.cells
        if cell.cell_type == "code" and CHECK.search(cell.source)
    ]
    assert set(said) <= {"✓ right", "◇ blocked"} and said.count("✓ right") >= 4
    last = notebook.cells[-1] if notebook.cells[-1].cell_type == "code" else notebook.cells[-2]
    solved = len([state for state in said if state == "✓ right"])
    assert f"{solved} of {len(said)} questions solved" in last.outputs[0].data["text/plain"]
