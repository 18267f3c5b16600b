"""Generate what learners open from the complete labs: ``python tools/make_labs.py``.

``labs/source/*.ipynb`` is written by hand and complete. A solution stands between two marks, and
what a learner finds instead stands before it:

    ### STUB bubble = ...
    ### BEGIN SOLUTION
    bubble = 1 - useful / total
    ### END SOLUTION

From it come ``labs/*.ipynb`` (stubs only, executed) and ``pplab/teach/labs/solutions.json`` (what
``lab.solution`` shows: the solutions before each ``lab.check("q1", ...)``). ``--check`` executes
and writes nothing, and fails when one of them was edited by hand or is older than its source.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from textwrap import dedent

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.refresh_notebooks import execute, load, normalise, to_text  # noqa: E402

SOURCE, LABS = ROOT / "labs" / "source", ROOT / "labs"
SOLUTIONS = ROOT / "pplab" / "teach" / "labs" / "solutions.json"
STUB, BEGIN, END = "### STUB ", "### BEGIN SOLUTION", "### END SOLUTION"
CHECK = re.compile(r'lab\.check\("(\w+)"')


class MarkError(ValueError):
    """Marks of a cell that do not pair up."""


def sources() -> list[Path]:
    """The complete labs."""
    return sorted(SOURCE.glob("*.ipynb"))


def split(cell: str) -> tuple[str, str]:
    """(the cell with stubs, the solutions in it); raises MarkError when marks do not pair up."""
    kept: list[str] = []
    solution: list[str] = []
    inside = False
    for line in cell.split("\n"):
        mark = line.strip()
        if mark in (BEGIN, END):
            if (mark == BEGIN) == inside:
                raise MarkError(f"{mark!r} has no partner in the cell {cell[:60]!r}")
            if mark == BEGIN and not any(mine for mine in kept if "..." in mine):
                raise MarkError(f"no {STUB.strip()!r} stands before the solution in {cell[:60]!r}")
            inside = not inside
        elif inside:
            solution.append(line)
        elif mark.startswith(STUB.strip()):
            kept.append(line.replace(STUB, "", 1))
        else:
            kept.append(line)
    if inside:
        raise MarkError(f"{BEGIN!r} has no partner in the cell {cell[:60]!r}")
    return "\n".join(kept), dedent("\n".join(solution)).strip("\n")


def unsolved(path: Path) -> NotebookNode:
    """The lab as learners get it, not executed."""
    notebook = load(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source, _ = split(cell.source)
            cell.execution_count, cell.outputs = None, []
    return notebook


def solutions(path: Path) -> dict[str, str]:
    """Code by question: all solutions between the check before and the question's own check."""
    number = int(path.name[:2])
    found: dict[str, str] = {}
    waiting: list[str] = []
    for cell in load(path).cells:
        if cell.cell_type != "code":
            continue
        _, code = split(cell.source)
        waiting += [code] if code else []
        for question in CHECK.findall(cell.source):
            found[f"lab {number}.{question}"] = "\n\n".join(waiting)
            waiting = []
    return {key: code for key, code in found.items() if code}


def all_solutions() -> str:
    """The text of solutions.json."""
    found: dict[str, str] = {}
    for path in sources():
        found |= solutions(path)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def stale() -> list[str]:
    """What is not as the sources would have it, as sentences; [] when all is well."""
    found = []
    wanted = {path.name for path in sources()}
    for path in sorted(LABS.glob("*.ipynb")):
        if path.name not in wanted:
            found.append(f"labs/{path.name} has no source: it belongs into labs/source")
    for source in sources():
        target = LABS / source.name
        if not target.exists():
            found.append(f"labs/{source.name} is missing")
            continue
        theirs, mine = load(target).cells, unsolved(source).cells
        same = len(theirs) == len(mine) and all(
            (a.cell_type, a.source, a.id, dict(a.metadata))
            == (b.cell_type, b.source, b.id, dict(b.metadata))
            for a, b in zip(theirs, mine, strict=True)
        )
        if not same:
            found.append(f"labs/{source.name} is not what its source makes it")
    if not SOLUTIONS.exists() or SOLUTIONS.read_text(encoding="utf-8") != all_solutions():
        found.append(f"{SOLUTIONS.relative_to(ROOT)} is not what the sources make it")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of file names (default: all labs)")
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    chosen = parser.parse_args(arguments)
    if chosen.check:
        problems = stale()
        for problem in problems:
            print(f"{problem}: edit labs/source, then run `python tools/make_labs.py`")
        return 1 if problems else 0
    SOLUTIONS.write_text(all_solutions(), encoding="utf-8")
    for source in sources():
        if chosen.names and not source.name.startswith(tuple(chosen.names)):
            continue
        notebook = unsolved(source)
        execute(notebook, LABS)
        normalise(notebook)
        (LABS / source.name).write_text(to_text(notebook), encoding="utf-8")
        print(f"labs/{source.name}: made from its source", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
