"""The labs as an nbgrader course: released without answers, and marked by measuring them.

One lab is marked for real, seven submissions of it in one go; of the others it is looked at what a
learner would get. `PatientExecute` runs notebooks of its own here, with kernels that end and loops
that do not: its rule is that a bad answer costs one question.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from pplab.teach.lab import open_lab
from tools import make_nbgrader
from tools.make_labs import BEGIN, MarkError, solutions, sources, unsolved
from tools.make_nbgrader import BESIDE, HIDDEN, marked, points

NAMES = [path.stem for path in sources()]
LAB = "04_repair"  # quick to mark: only one of its questions starts ranks
#: Answers that give a misconception away, by learner and question: what each costs. (Two of them
#: never get as far as starting DeepSpeed for q3.)
MISTAKEN = {
    "a-key-turns-it-on": {
        "q1": "stages = 4",
        "q3": 'repaired = {**config, "zero_optimization": {"stage": 1}}',
    },
    "zero-divides-all": {
        "q3": "repaired = config",
        "q5": "gigabytes = memory.ranks[0].parameters * (2 + 4 + 12) / 2 / 1e9",
    },
    "last-is-fullest": {
        "q4": "fullest = 3",
        "q6": "choice = dict(stages=4, zero=3, micro_batch=1, gas=32, recompute='full')",
    },
}
#: What each of them is told.
REASONS = {
    "a-key-turns-it-on": {"no JSON key turns a pipeline on", "64 is not 4 x 4 x 2 = 32"},
    "zero-divides-all": {
        "DeepSpeed stops at ZeRO-3 with a pipeline",
        "ZeRO-1 divides the optimizer states alone",
    },
    "last-is-fullest": {
        "the least of all: it holds one micro-batch",
        "DeepSpeed refuses ZeRO-3 with a pipeline",
    },
}
#: What breaks a kernel, or wants points for nothing, and the questions it costs.
HOSTILE = {
    "q1": "import os\nos._exit(1)",
    "q3": "raise KeyboardInterrupt",
    "own": "lab.check = print\nmy_config = my_ranks = my_stages = 1",
}


# -- what is generated, without nbgrader -----------------------------------------------------------


def cells(notebook, kind: str = "") -> list:
    """Code cells whose name in nbgrader ends so."""
    found = [c for c in notebook.cells if c.cell_type == "code"]
    return [c for c in found if c.metadata.nbgrader.grade_id.endswith(kind)]


def question(cell) -> str:
    """ "q1" of "05-q1-check"."""
    return cell.metadata.nbgrader.grade_id.split("-")[1]


@pytest.mark.parametrize("path", sources(), ids=NAMES)
def test_every_question_that_can_be_judged_here_has_one_check_with_its_points(path):
    questions = open_lab(int(path.name[:2])).questions
    notebook = marked(path)
    checks = [(question(c), c.metadata.nbgrader.get("points")) for c in cells(notebook, "-check")]
    wanted = {name: None if q.gpus else points(q) for name, q in questions.items()}
    assert dict(checks) == wanted and len(checks) == len(wanted)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert f"{sum(filter(None, wanted.values()))} points." in text and ".ipynb)" not in text
    for name, worth in wanted.items():
        (heading,) = (line for line in text.splitlines() if line.startswith(f"**{name}** ("))
        gpus = questions[name].gpus
        says = f", {worth} point" if worth else f", not marked: it needs {gpus} GPUs)"
        assert says in heading


@pytest.mark.parametrize("path", sources(), ids=NAMES)
def test_all_code_but_the_answers_is_locked(path):
    notebook = marked(path)
    for cell in cells(notebook):
        about = cell.metadata.nbgrader
        assert about.locked is not about.solution and about.solution is (BEGIN in cell.source)
        assert about.grade is ("points" in about)
    names = [cell.metadata.nbgrader.grade_id for cell in cells(notebook)]
    assert names == sorted(set(names)), "PutBack finds places by the order of the names"


def test_a_question_for_gpus_is_marked_where_there_are_some():
    (path,) = (path for path in sources() if path.name.startswith("05"))
    (without,), (with_two,) = (cells(marked(path, gpus), "-q7-check") for gpus in (0, 2))
    assert not without.metadata.nbgrader.grade and "HIDDEN" not in without.source
    assert with_two.metadata.nbgrader.points == points(open_lab(5).questions["q7"])
    assert HIDDEN.format(number=5) in with_two.source


def test_a_check_that_shares_its_cell_is_refused(tmp_path):
    path = tmp_path / "01_read_a_timeline.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell('x = 1\nlab.check("q1", x)')]), path)
    with pytest.raises(MarkError, match="stands alone in its cell"):
        marked(path)


def test_settings_that_somebody_changed_are_kept(tmp_path):
    make_nbgrader.write_course(tmp_path, [])
    for name in ("nbgrader_config.py", "pplab_grading.py"):
        assert (tmp_path / name).read_text() == (BESIDE / name).read_text()
        (tmp_path / name).write_text("# mine")
    make_nbgrader.write_course(tmp_path, [])
    assert (tmp_path / "nbgrader_config.py").read_text() == "# mine"
    assert (tmp_path / "pplab_grading.py").read_text() != "# mine", "ours, and renewed"


def test_without_nbgrader_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(make_nbgrader.importlib.util, "find_spec", lambda name: None)
    assert make_nbgrader.main(["--out", str(tmp_path)]) == 1
    assert "requirements-kit.txt" in capsys.readouterr().err
    assert make_nbgrader.main(["99"]) == 1
    assert "no lab begins with 99" in capsys.readouterr().err


# -- a course, released and marked -----------------------------------------------------------------


def needs_nbgrader() -> None:
    pytest.importorskip("nbgrader", reason="nbgrader is not here (requirements-kit.txt)")


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """All labs, released."""
    needs_nbgrader()
    out = tmp_path_factory.mktemp("course")
    assert make_nbgrader.main(["--out", str(out)]) == 0
    return out


def read(course: Path, kind: str, learner: str = "", name: str = LAB) -> nbformat.NotebookNode:
    return nbformat.read(course / kind / learner / name / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("path", sources(), ids=NAMES)
def test_a_release_is_the_lab_with_stubs_and_shows_no_answer(course, path):
    released = read(course, "release", name=path.stem)
    text = "\n".join(cell.source for cell in released.cells)
    open_to_all = "\n".join(cell.source for cell in unsolved(path).cells)
    for line in map(str.strip, "\n".join(solutions(path).values()).splitlines()):
        if len(line) > 12 and line not in open_to_all:
            assert line not in text
    assert not any(word in text for word in ("HIDDEN", "SOLUTION", "assert"))
    assert all(not cell.get("outputs") for cell in released.cells)
    theirs = [cell.source.replace("verdict = lab.check", "lab.check") for cell in cells(released)]
    added = ("# YOUR CODE HERE", "display(verdict)")
    bare = ["\n".join(x for x in s.split("\n") if x.strip() not in added) for s in theirs]
    assert bare == [c.source for c in unsolved(path).cells if c.cell_type == "code"]


def hand_in(course: Path, learner: str, answers: dict[str, str], *, solved: bool = True) -> None:
    """A submission: the release, with the answers of the source but for some."""
    notebook = read(course, "release")
    complete = {cell.metadata.nbgrader.grade_id: cell for cell in cells(read(course, "source"))}
    for cell in cells(notebook, "-answer"):
        if solved:
            cell.source = complete[cell.metadata.nbgrader.grade_id].source
        cell.source = answers.get(question(cell), cell.source)
    save(course, learner, notebook)


def save(course: Path, learner: str, notebook) -> None:
    folder = course / "submitted" / learner / LAB
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{LAB}.ipynb")


@pytest.fixture(scope="module")
def marks(course, tmp_path_factory) -> dict[str, dict[str, float]]:
    """Points by learner and question."""
    from nbgrader.api import Gradebook

    hand_in(course, "solved", {})
    hand_in(course, "untouched", {}, solved=False)
    for learner, answers in {**MISTAKEN, "hostile": HOSTILE}.items():
        hand_in(course, learner, answers)
    left = read(course, "submitted", "solved")
    answers = [cell for cell in cells(left, "-answer") if question(cell) not in ("q3", "q4")]
    left.cells = [c for c in left.cells if c.cell_type != "code" or c in answers]
    save(course, "deletes-cells", left)

    mine = tmp_path_factory.mktemp("grader")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PPLAB_PROGRESS", str(mine / "progress"))
        patch.setenv("PPLAB_RUNS", str(mine / "runs"))
        said = make_nbgrader.nbgrader(course, "autograde", LAB)
    assert list(mine.rglob("*")) == [], "the progress and the runs of who grades are their own"
    found: dict[str, dict[str, float]] = {}
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        for submission in gradebook.assignment_submissions(LAB):
            (notebook,) = submission.notebooks
            assert not notebook.needs_manual_grade, said
            grades = {grade.cell.name.split("-")[1]: grade.auto_score for grade in notebook.grades}
            found[submission.student.id] = grades
    return found


def but(*lost: str) -> dict[str, float]:
    """Full marks, but for some questions."""
    questions = open_lab(4).questions.items()
    return {name: 0.0 if name in lost else float(points(q)) for name, q in questions}


@pytest.mark.slow
def test_a_solved_lab_has_full_marks_and_an_untouched_one_none(marks):
    assert marks["solved"] == but()
    assert set(marks["untouched"].values()) == {0.0} and set(marks["untouched"]) == set(but())


@pytest.mark.slow
@pytest.mark.parametrize("learner", MISTAKEN)
def test_a_wrong_answer_costs_its_own_points(marks, learner):
    assert marks[learner] == but(*MISTAKEN[learner])


@pytest.mark.slow
def test_a_dead_kernel_and_a_faked_check_cost_their_own_points(marks):
    assert marks["hostile"] == but(*HOSTILE)


@pytest.mark.slow
@pytest.mark.parametrize("learner", MISTAKEN)
def test_a_wrong_answer_is_told_why(course, marks, learner):
    notebook = read(course, "autograded", learner)
    errors = [o.evalue for c in cells(notebook) for o in c.outputs if o.output_type == "error"]
    assert len(errors) == len(MISTAKEN[learner]) == len(REASONS[learner])
    for reason in REASONS[learner]:
        assert any("✗ wrong, because" in error and reason in error for error in errors)


@pytest.mark.slow
def test_deleted_checks_come_back_and_a_deleted_answer_has_no_points(marks):
    assert marks["deletes-cells"] == but("q3", "q4")


# -- how a submission is run -----------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch):
    """PatientExecute with little patience for what says that it has no end."""
    needs_nbgrader()
    monkeypatch.syspath_prepend(str(BESIDE))
    from pplab_grading import PatientExecute

    execute = PatientExecute(iopub_timeout=4, shutdown_kernel="immediate")
    execute.timeout_func = lambda cell: 1 if "while True" in cell.source else 60
    return execute


def submission(*answers: str):
    """A notebook with an answer and a check for each: check number n asks for x == n."""
    found = [_cell("start = 1", "0-given", locked=True)]
    for number, answer in enumerate(answers):
        found.append(_cell(answer, f"{number}-answer"))
        check = f"assert x == {number} * start"
        found.append(_cell(check, f"{number}-check", locked=True, points=1))
    return new_notebook(cells=found)


def _cell(source: str, name: str, *, locked: bool = False, points: int | None = None):
    about = {"grade_id": name, "locked": locked, "solution": not locked, "schema_version": 3}
    about |= {"grade": points is not None, "task": False, "points": points}
    return new_code_cell(source, metadata={"nbgrader": about})


def scores(patient, notebook) -> list[float]:
    from nbgrader.utils import determine_grade

    done, _ = patient.preprocess(copy.deepcopy(notebook), {})
    return [determine_grade(cell)[0] for cell in done.cells if cell.metadata.nbgrader.grade]


BAD = {
    "raises": ("1 / 0", None),
    "loops": ("while True: pass", None),
    "prints without an end": ("while True: print('.' * 10_000)", None),
    "sys.exit": ("import sys\nsys.exit()", None),
    "exit": ("exit()", "asked the kernel to exit"),
    "killed": ("import os\nos.kill(os.getpid(), 9)", "ended the kernel"),
    "deaf": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "could not be stopped",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_costs_one_question(patient, bad):
    code, left_out = BAD[bad]
    assert scores(patient, submission("x = 0", f"{code}\nx = 1", "x = 2")) == [1, 0, 1]
    if bad != "prints without an end":  # how it ends depends on how quickly it is read
        assert list(patient.left_out.values()) == ([left_out] if left_out else [])


def test_a_check_that_ends_the_kernel_costs_its_answer(patient):
    bad = "import os\nclass X:\n    def __eq__(self, other): os._exit(1)\nx = X()"
    assert scores(patient, submission("x = 0", bad, "x = 2", "x = 3")) == [1, 0, 1, 1]


def test_words_on_stderr_cost_nothing(patient):
    noisy = "import sys\nclass X(int):\n    def __eq__(self, other):\n"
    noisy += "        print('hello', file=sys.stderr)\n        return int(self) == other\nx = X(0)"
    assert scores(patient, submission(noisy)) == [1]


def test_a_cell_of_the_course_that_ends_the_kernel_is_no_wrong_answer(patient):
    notebook = submission("x = 0")
    notebook.cells[0].source = "import os\nos._exit(1)"
    with pytest.raises(Exception, match="ended the kernel"):
        patient.preprocess(notebook, {})


def test_the_grader_is_left_alone(patient, monkeypatch):
    monkeypatch.setenv("PPLAB_PROGRESS", "mine")
    monkeypatch.delenv("PPLAB_RUNS", raising=False)
    ask = "import json, os\nprint(json.dumps(dict(os.environ)))"
    done, _ = patient.preprocess(new_notebook(cells=[_cell(ask, "a")]), {})
    theirs = json.loads(done.cells[0].outputs[0].text)
    for name in ("PPLAB_PROGRESS", "PPLAB_RUNS"):
        assert "pplab-grading-" in theirs[name] and not Path(theirs[name]).parent.exists()
    assert os.environ["PPLAB_PROGRESS"] == "mine" and "PPLAB_RUNS" not in os.environ
