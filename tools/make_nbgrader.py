"""The labs as an nbgrader course, for those who give marks: ``python tools/make_nbgrader.py``.

From ``labs/source`` come, in a folder of your choice (``--out``; build/nbgrader, which `make clean`
removes):

    source/01_read_a_timeline/...    complete, with nbgrader's metadata: never give it to learners
    release/01_read_a_timeline/...   what learners get, made by `nbgrader generate_assignment`
    nbgrader_config.py, pplab_grading.py, gradebook.db

An answer is marked by the same check that a learner sees, which measures it. Nothing is ever edited
in that folder: change labs/source and run this again. Marks and submissions there are kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from pplab.teach.lab import Question, open_lab  # noqa: E402
from tools.make_labs import BEGIN, CHECK, STUB, MarkError, sources, split  # noqa: E402
from tools.refresh_notebooks import METADATA, load  # noqa: E402

OUT = ROOT / "build" / "nbgrader"
#: What goes with the course: its settings, and how submissions are run.
BESIDE = ROOT / "tools" / "grading"
#: Points for two minutes of work, by difficulty.
WEIGHT = {"easy": 1.0, "medium": 1.5, "hard": 2.0, "open": 1.0}
#: A question's name, minutes and difficulty, as the text above it gives them.
HEADING = re.compile(r"\*\*(\w+)\*\* \((\d+ minutes?, \w+)\)")
#: Links to other notebooks, which a release does not have beside it.
LINK = re.compile(r"\[([^]]+)\]\([^):]*\.ipynb\)")
#: Stands in a check while it is marked. The learner's notebook has run in the same kernel; so the
#: lab and the verdict are looked at, too. (Who changes pplab itself is not found out.)
HIDDEN = """\
### BEGIN HIDDEN TESTS
from pplab.teach.lab import Lab
from pplab.teach.verdict import Verdict

assert type(lab) is Lab and lab.number == {number}, "`lab` is not this lab"
assert "check" not in vars(lab) and type(verdict) is Verdict, "the check was replaced"
assert verdict.state == "right", verdict
### END HIDDEN TESTS"""


def points(question: Question) -> int:
    """Points of a question: minutes / 2, times the weight of its difficulty, at least 1."""
    return max(1, int(question.minutes / 2 * WEIGHT[question.difficulty] + 0.5))


def marked(path: Path, gpus: int = 0) -> NotebookNode:
    """A complete lab with nbgrader's metadata.

    gpus: CUDA GPUs of the machine that marks; questions that need more bring no points.
    Raises MarkError for a check that is not one line alone in its cell.
    """
    number = int(path.name[:2])
    questions = open_lab(number).questions
    notebook = load(path)
    notebook.metadata = nbformat.from_dict(METADATA)
    asked = _question_of(notebook)
    total = 0
    for place, cell in enumerate(notebook.cells):
        cell.metadata = NotebookNode()
        if cell.cell_type == "markdown":
            cell.source = _text(cell.source, questions, gpus)
            continue
        cell.outputs, cell.execution_count = [], None
        name = asked[place]
        if BEGIN in cell.source:
            cell.source = _answer(cell.source)
            cell.metadata.nbgrader = _metadata(f"{place:02}-{name}-answer", solution=True)
        elif CHECK.search(cell.source):
            cell.source = _check(cell.source, number, counts := questions[name].gpus <= gpus)
            worth = points(questions[name]) if counts else None
            total += worth or 0
            cell.metadata.nbgrader = _metadata(f"{place:02}-{name}-check", points=worth)
        else:
            cell.metadata.nbgrader = _metadata(f"{place:02}-given")
    notebook.cells.insert(1, _about(total))
    nbformat.validate(notebook)
    return notebook


def _question_of(notebook: NotebookNode) -> list[str]:
    """For each cell, the question whose check comes next ("" after the last one)."""
    found, name = [], ""
    for cell in reversed(notebook.cells):
        if cell.cell_type == "code" and (check := CHECK.search(cell.source)):
            name = check[1]
        found.append(name)
    return found[::-1]


def _metadata(name: str, *, solution: bool = False, points: int | None = None) -> NotebookNode:
    metadata: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": name,
        "cell_type": "code",
        "solution": solution,
        "locked": not solution,
        "grade": points is not None,
        "task": False,
    }
    if points is not None:
        metadata["points"] = points
    return NotebookNode(metadata)


def _answer(cell: str) -> str:
    """A cell with an answer: nbgrader keeps the stub and puts its own line for the solution."""
    split(cell)  # or a mark has no partner
    return cell.replace(STUB, "")


def _check(cell: str, number: int, counts: bool) -> str:
    """A cell with a check; what decides about points is put in where nbgrader takes it out."""
    if "\n" in cell.strip() or not cell.startswith("lab.check("):
        raise MarkError(f"a check stands alone in its cell, in one line: {cell[:60]!r}")
    hidden = [HIDDEN.format(number=number)] if counts else []
    # displayed, since nbgrader wonders about the result of a cell that is no number
    return "\n".join([f"verdict = {cell.strip()}", *hidden, "display(verdict)"])


def _text(text: str, questions: Any, gpus: int) -> str:
    def heading(found: re.Match[str]) -> str:
        question = questions[found[1]]
        if question.gpus > gpus:
            return f"**{found[1]}** ({found[2]}, not marked: it needs {question.gpus} GPUs)"
        worth = points(question)
        return f"**{found[1]}** ({found[2]}, {worth} point{'s' * (worth != 1)})"

    return LINK.sub(r"\1", HEADING.sub(heading, text))


def _about(total: int) -> NotebookNode:
    text = (
        f"**For marks: {total} points.** Write in the cells that say `# YOUR CODE HERE`, in place "
        "of the dots; the other cells are locked, and run as they were given to you when your work "
        "is marked. A check says at once whether an answer is right, and it is what marks it: the "
        "points of a question for a right answer, none for any other. Hints cost nothing. That a "
        "solution was looked up is kept in your progress. Run all cells from the top before you "
        "hand in."
    )
    return nbformat.v4.new_markdown_cell(text, id="about-marks")


def write_course(out: Path, paths: list[Path], gpus: int = 0) -> list[str]:
    """Write settings and complete labs into a course folder; returns the assignments' names."""
    for file in BESIDE.glob("*.py"):
        target = out / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and file.name == "nbgrader_config.py"):  # an instructor's own
            shutil.copy(file, target)
    for path in paths:
        folder = out / "source" / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(marked(path, gpus), folder / path.name)
    return [path.stem for path in paths]


def nbgrader(out: Path, *arguments: str) -> str:
    """Run nbgrader in a course folder; returns what it said. Raises RuntimeError when it fails."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    beside = str(Path(sys.executable).parent)  # nbgrader calls alembic by name
    environment = {**os.environ, "PATH": os.pathsep.join([beside, os.environ.get("PATH", "")])}
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(f"nbgrader {' '.join(arguments)} failed in {out}:\n{said}")
    return said


def release(out: Path, paths: list[Path], gpus: int = 0) -> list[str]:
    """The course, and what learners get of it. Raises RuntimeError when nbgrader refuses, such as
    after questions came or went while there are submissions."""
    names = write_course(out, paths, gpus)
    there = {folder.name for folder in (out / "source").iterdir()}
    for name in ["*"] if there == set(names) else names:  # starting it takes longer than the work
        nbgrader(out, "generate_assignment", name, "--force")
    return names


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of file names (default: all labs)")
    parser.add_argument("--out", type=Path, default=OUT, help="course folder (build/nbgrader)")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs where it is marked (0)")
    chosen = parser.parse_args(arguments)
    paths = [p for p in sources() if not chosen.names or p.name.startswith(tuple(chosen.names))]
    if not paths:
        print(f"no lab begins with {' or '.join(chosen.names)}", file=sys.stderr)
        return 1
    if importlib.util.find_spec("nbgrader") is None:
        print("nbgrader is not here: pip install -r requirements-kit.txt", file=sys.stderr)
        return 1
    out = chosen.out.resolve()
    try:
        names = release(out, paths, chosen.gpus)
    except (MarkError, OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    for name in names:
        print(f"{chosen.out / 'release' / name}: for learners")
    if out.is_relative_to(ROOT / "build"):
        print("Marks do not belong here: `make clean` removes build. Use --out for a real course.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
