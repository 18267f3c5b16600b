"""Learners' labs come from their sources: marks, solutions, and what is out of date."""

from __future__ import annotations

import json
import shutil

import nbformat
import pytest

from pplab.teach.lab import LABS, open_lab
from tools import make_labs
from tools.make_labs import CHECK, MarkError, main, solutions, sources, split, stale, unsolved

CELL = """step = case.timeline
### STUB bubble = ...
### BEGIN SOLUTION
useful = 3
bubble = 1 - useful / 4
### END SOLUTION
print(step)"""


def test_a_solution_gives_way_to_its_stub():
    stub, solution = split(CELL)
    assert stub == "step = case.timeline\nbubble = ...\nprint(step)"
    assert solution == "useful = 3\nbubble = 1 - useful / 4"


def test_marks_inside_a_function_keep_its_indentation():
    cell = "def f():\n    ### STUB ...\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
    assert split(cell) == ("def f():\n    ...", "return 1")


def test_a_cell_without_marks_stays():
    assert split("a = 1\n\nb = 2") == ("a = 1\n\nb = 2", "")


@pytest.mark.parametrize(
    "cell",
    [
        "### STUB x = ...\n### BEGIN SOLUTION\nx = 1",
        "### END SOLUTION",
        "### STUB x = ...\n### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION",
        "### BEGIN SOLUTION\nx = 1\n### END SOLUTION",
    ],
)
def test_marks_that_do_not_pair_up_are_refused(cell):
    with pytest.raises(MarkError):
        split(cell)


def test_the_labs_are_what_their_sources_make_them():
    assert stale() == [], "run `python tools/make_labs.py`"


def test_every_lab_has_a_source_and_asks_every_question_once():
    assert {int(path.name[:2]) for path in sources()} == set(LABS)
    for path in sources():
        text = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
        asked = CHECK.findall(text)
        assert asked == list(open_lab(int(path.name[:2])).questions), path.name


def test_minutes_and_difficulty_in_the_text_are_those_of_the_questions():
    for path in sources():
        lab = open_lab(int(path.name[:2]))
        text = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
        total = sum(question.minutes for question in lab.questions.values())
        assert f"**{total} minutes." in text, f"{path.name}: {total}"
        for name, question in lab.questions.items():
            assert f"**{name}** ({question.minutes} minutes, {question.difficulty})" in text


def test_no_solution_reaches_the_learner():
    for path in sources():
        cells = unsolved(path).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        assert "### " not in text
        for code in solutions(path).values():
            longest = max(code.split("\n"), key=len).strip()
            assert longest not in text, longest


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The labs and solutions.json somewhere else, to be spoiled."""
    shutil.copytree(make_labs.LABS, tmp_path / "labs")
    shutil.copy(make_labs.SOLUTIONS, tmp_path / "solutions.json")
    monkeypatch.setattr(make_labs, "ROOT", tmp_path)
    monkeypatch.setattr(make_labs, "LABS", tmp_path / "labs")
    monkeypatch.setattr(make_labs, "SOURCE", tmp_path / "labs" / "source")
    monkeypatch.setattr(make_labs, "SOLUTIONS", tmp_path / "solutions.json")
    return tmp_path


def edit(path, old, new):
    notebook = nbformat.read(path, 4)
    cell = next(cell for cell in notebook.cells if old in cell.source)
    cell.source = cell.source.replace(old, new)
    nbformat.write(notebook, path)


def test_a_lab_edited_by_hand_is_found(copied, capsys):
    edit(copied / "labs" / "02_choose_gas.ipynb", "held = ...", "held = None")
    assert main(["--check"]) == 1
    assert "labs/02_choose_gas.ipynb is not what its source makes it" in capsys.readouterr().out


def test_a_source_that_is_newer_is_found(copied):
    edit(copied / "labs" / "source" / "05_beat_1f1b.ipynb", "## Beat it", "## Beat it well")
    assert stale() == ["labs/05_beat_1f1b.ipynb is not what its source makes it"]


def test_a_solution_that_changed_is_found(copied):
    edit(copied / "labs" / "source" / "02_choose_gas.ipynb", "held = [4", "held = [0, 4")
    assert stale() == ["solutions.json is not what the sources make it"]


def test_a_lab_without_a_source_or_a_file_is_found(copied):
    (copied / "labs" / "01_read_a_timeline.ipynb").rename(copied / "labs" / "07_stray.ipynb")
    assert stale() == [
        "labs/07_stray.ipynb has no source: it belongs into labs/source",
        "labs/01_read_a_timeline.ipynb is missing",
    ]


def test_outputs_are_no_part_of_the_comparison(copied):
    path = copied / "labs" / "02_choose_gas.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells[1].outputs = []
    nbformat.write(notebook, path)
    assert stale() == []


def test_the_solutions_belong_to_their_questions():
    data = json.loads(make_labs.SOLUTIONS.read_text())
    assert "knee = " in data["lab 2.q5"] and "yield W" in data["lab 5.q3"]
    assert set(data) <= {f"lab {n}.{q}" for n in LABS for q in open_lab(n).questions}
