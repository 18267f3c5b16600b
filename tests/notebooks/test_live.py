"""The nbval plugin itself: one run over small notebooks, then what it said about each."""

from __future__ import annotations

import random
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import nbformat
import psutil
import pytest
from nbformat import v4

ROOT = Path(__file__).parents[2]
#: Arguments of a sleep that no other process on this machine has.
NAPS = [f"6{random.randrange(10**8):08d}", f"7{random.randrange(10**8):08d}"]


def shown(text: str) -> list:
    return [v4.new_output("stream", name="stdout", text=text)]


def result(text: str) -> list:
    return [v4.new_output("execute_result", data={"text/plain": text}, execution_count=1)]


def displayed(*texts: str) -> list:
    return [v4.new_output("display_data", data={"text/plain": repr(text)}) for text in texts]


#: A cell that gives another number each time it is run.
COUNT = """tries = globals().get("tries", 0) + 1
print(tries)
def holds(claim):
    assert claim
    print("holds")"""

#: name: (source, stored outputs, tags) of each cell.
NOTEBOOKS = {
    "same": [("print(42)", shown("42\n"))],
    "changed": [("print(41)", shown("42\n"))],
    "changed_result": [("0.27", result("0.28"))],
    "measured": [("print('[measured] 0.31 s\\n7 ranks')", shown("[measured] 0.29 s\n7 ranks\n"))],
    "measured_and_changed": [("print('[measured] 1 s\\n7')", shown("[measured] 1 s\n8\n"))],
    "measured_inside": [("print('step [measured] 3')", shown("leap [measured] 3\n"))],
    "semicolon": [("1 + 1;", [])],
    "output_widget": [
        (
            "import ipywidgets as W\nout = W.Output()\nwith out:\n    print('in')\nout",
            result("Output()"),
        )
    ],
    "after_output_widget": [
        (
            "import ipywidgets as W\nwith W.Output():\n    print('in')\nprint('after')",
            shown("after\n"),
        )
    ],
    "slider": [("import ipywidgets as W\nW.IntSlider(value=3)", result("IntSlider(value=3)"))],
    "cleared": [
        (
            "from IPython.display import clear_output\n"
            "print('old')\nclear_output(wait=True)\nprint('new')",
            shown("new\n"),
        )
    ],
    "updated": [
        ("d = display('first', display_id=True)\nd.update('last')", displayed("last")),
        ("d.update('much later')\ndisplay('own')", displayed("own")),
    ],
    "child_output": [
        ("import os\nassert os.system('echo from a child') == 0", shown("from a child\n"))
    ],
    "stderr": [("import sys\nprint('a warning', file=sys.stderr)", [])],
    "error": [("1 / 0", [])],
    "expected_error": [
        (
            "1 / 0",
            [v4.new_output("error", ename="ZeroDivisionError", evalue="division by zero")],
            ["raises-exception"],
        )
    ],
    "measured_again": [
        (COUNT, shown("0"), ["nbval-ignore-output"]),
        ("holds(tries >= 3)", shown("holds\n")),
    ],
    "measured_often": [
        (COUNT, shown("0"), ["nbval-ignore-output"]),
        ("holds(tries >= 4)", shown("holds\n")),
    ],
    "measured_before": [
        (COUNT, shown("0"), ["nbval-ignore-output"]),
        ("twice = 2 * tries", []),
        ("holds(tries > 0)", shown("holds\n")),
        ("holds(twice >= 4)", shown("holds\n")),
    ],
    "measured_in_a_lab": [
        ("opened = globals().get('opened', 0) + 1", []),
        ("case = opened\nprint('[measured]', case)", shown("[measured] 7\n")),
        (
            "class lab:\n    def check(case):\n        print(['wrong', 'right'][case > 1])\n"
            "lab.check(case)",
            shown("right\n"),
        ),
    ],
    "busy": [
        (COUNT, shown("0"), ["nbval-ignore-output"]),
        ("holds(tries >= 4)", shown("holds\n")),
        ("print('the rest')", shown("the rest\n")),
    ],
    "not_measured": [(COUNT, shown("1\n")), ("holds(tries >= 2)", shown("holds\n"))],
    "dead_kernel": [("import os\nos._exit(1)", []), ("print(1)", shown("1\n"))],
    "left_behind": [
        (
            "import subprocess\n"
            f"p = subprocess.Popen(['sleep', '{NAPS[0]}'], start_new_session=True)",
            [],
        )
    ],
    "left_behind_without_mark": [
        (
            "import subprocess\n"
            f"p = subprocess.Popen(['/bin/sleep', '{NAPS[1]}'], env={{}}, start_new_session=True)",
            [],
        )
    ],
    "history": [("get_ipython().history_manager.hist_file", result(repr("somewhere private")))],
}


#: Others take a third of the processors' time while the notebook "busy" is tried, else nothing.
CONFTEST = """
import os
from tests import measuring

measuring.PAUSES = (0.0, 0.0)
measuring.taken = lambda: 0.33 if "busy" in os.environ["PYTEST_CURRENT_TEST"] else 0.0
"""


class Outcome(NamedTuple):
    """What pytest said about one cell."""

    failure: str
    skipped: str
    seconds: float


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, list[Outcome]]:
    folder = tmp_path_factory.mktemp("notebooks")
    for name, cells in NOTEBOOKS.items():
        notebook = v4.new_notebook()
        for count, (source, outputs, *tags) in enumerate(cells, 1):
            cell = v4.new_code_cell(source, outputs=outputs, execution_count=count)
            cell.metadata["tags"] = tags[0] if tags else []
            notebook.cells.append(cell)
        nbformat.write(notebook, folder / f"{name}.ipynb")
    (folder / "conftest.py").write_text(CONFTEST)
    report = folder / "report.xml"
    options = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=60", "--color=no", "-q"]
    options += [f"--nbval-sanitize-with={ROOT / 'tests/notebooks/sanitize.cfg'}"]
    options += [
        f"--rootdir={folder}",
        f"--junitxml={report}",
        "-n2",
        "--dist=loadfile",
        str(folder),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.notebooks.live", *options],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "measured again, because the first time: AssertionError" in done.stdout
    found: dict[str, list[Outcome]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").split(".")[0]
        said = dict.fromkeys(("failure", "error", "skipped"), "")
        for part in case:
            said[part.tag] = f"{part.get('message')}\n{part.text}"
        outcome = Outcome(
            said["failure"] + said["error"], said["skipped"], float(case.get("time", 0))
        )
        found.setdefault(name, []).append(outcome)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "same",
        "measured",
        "semicolon",
        "output_widget",
        "after_output_widget",
        "slider",
        "cleared",
        "updated",
        "child_output",
        "stderr",
        "expected_error",
        "measured_again",
        "measured_before",
        "measured_in_a_lab",
    ],
)
def test_passes(outcomes, name):
    assert [cell.failure + cell.skipped for cell in outcomes[name]] == [""] * len(NOTEBOOKS[name])


@pytest.mark.parametrize(
    "name", ["changed", "changed_result", "measured_and_changed", "measured_inside"]
)
def test_a_changed_result_fails(outcomes, name):
    assert "Cell outputs differ" in outcomes[name][0].failure


def test_an_unexpected_error_fails(outcomes):
    assert "ZeroDivisionError" in outcomes["error"][0].failure


def test_a_check_that_never_holds_fails_however_often_it_is_measured(outcomes):
    assert "AssertionError" in outcomes["measured_often"][1].failure


def test_a_check_is_skipped_where_others_take_the_processors(outcomes):
    first, check, rest = outcomes["busy"]
    assert first == first._replace(failure="", skipped="")
    assert check.failure == "" and "cannot be measured here and now" in check.skipped
    assert "others took 33%, 33%, 33% of the processors' time" in check.skipped
    assert "What failed: AssertionError" in check.skipped
    assert rest == rest._replace(failure="", skipped="")


def test_a_check_of_what_is_not_measured_is_not_tried_again(outcomes):
    assert "AssertionError" in outcomes["not_measured"][1].failure


def test_a_dead_kernel_is_reported_at_once(outcomes):
    first = outcomes["dead_kernel"][0]
    assert "The kernel died while it ran this cell" in first.failure
    assert first.seconds < 15, "it waited for the cell timeout instead"


@pytest.mark.parametrize(
    ("name", "nap"), [("left_behind", NAPS[0]), ("left_behind_without_mark", NAPS[1])]
)
def test_a_process_left_behind_fails_the_notebook_and_is_killed(outcomes, name, nap):
    said = "\n".join(cell.failure for cell in outcomes[name])
    assert "left processes behind" in said and f"sleep {nap}" in said
    assert [p for p in psutil.process_iter() if nap in _command(p)] == []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_the_users_history_is_left_alone(outcomes):
    assert "pplab-ipython-" in outcomes["history"][0].failure
