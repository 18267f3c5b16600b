"""What a stored notebook must be, so that comparing it means something and reading it is enough.

nbval compares nothing in a notebook without execution counts, and nothing of a picture. So a
notebook is stored executed, in order, with text that can be compared; and it must read well where
no kernel runs it: on GitHub, in an exported book, with a screen reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
LARGEST = 300_000  # bytes
SHORTEST_ALTERNATIVE = 20  # characters that describe a picture
#: Outputs that nbval never compares.
NOT_COMPARED = ("image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json")
WIDGET = "application/vnd.jupyter.widget-view+json"
#: Texts of a picture or widget that say nothing: ``<Figure size 640x480 with 1 Axes>``.
SAYS_NOTHING = re.compile(r"<.*>|\w+\((children=|.*\bvalue=).*\)|\w+\(\)", re.DOTALL)
MACHINE = {
    "a path of this machine": re.compile(
        rf"{re.escape(str(ROOT))}|(?<![\w.])/(home|root|Users|work|tmp|mnt|var|opt)/\w"
    ),
    "a process id": re.compile(r"\bpid\b\W{0,3}\d+|\bprocess \d{4,}", re.IGNORECASE),
}


def problems(path: Path) -> list[str]:
    """Everything wrong with a stored notebook, as sentences; [] when nothing is."""
    notebook = nbformat.read(path, as_version=4)
    found = [*_file(path, notebook), *_headings(notebook)]
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"execution counts are {counts}, not 1 to {len(code)}: run `make chapters`")
    ignored = [cell for cell in code if _tags(cell) & {"nbval-ignore-output", "nbval-skip"}]
    if len(ignored) > len(code) / 2:
        found.append(f"{len(ignored)} of {len(code)} code cells keep their output from comparison")
    if not any(_is_compared(cell) for cell in code):
        found.append("no cell has an output that nbval compares: print a number that must hold")
    for number, cell in enumerate(code, 1):
        found += [f"cell [{number}]: {sentence}" for sentence in _outputs(cell)]
    return found


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def _file(path: Path, notebook: NotebookNode) -> Iterator[str]:
    size = path.stat().st_size
    if size > LARGEST:
        yield f"the file has {size:,} bytes; {LARGEST:,} is the most"
    if "widgets" in notebook.metadata:
        yield "the state of widgets is stored: run `make chapters`"
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"the kernel is {kernel!r}, not 'python3'"


def _headings(notebook: NotebookNode) -> Iterator[str]:
    """One title, at the very top: exporters and screen readers take it for the page's name."""
    levels = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            prose = re.sub(r"^(```|~~~).*?^\1", "", cell.source, flags=re.DOTALL | re.MULTILINE)
            levels += [
                (number, len(mark)) for mark in re.findall(r"^(#{1,6})\s+\S", prose, re.MULTILINE)
            ]
    titles = [number for number, level in levels if level == 1]
    if titles != [0] or levels[0] != (0, 1):
        yield f"it needs one title ('# ...') at its top; titles stand in cells {titles}"


def _is_compared(cell: NotebookNode) -> bool:
    """Whether a change of the cell's output would fail nbval."""
    if _tags(cell) & {"nbval-ignore-output", "nbval-skip"}:
        return False
    for output in cell.outputs:
        if output.output_type == "stream":
            lines = output.text.splitlines()
            if output.name == "stdout" and not all("[measured]" in line for line in lines):
                return True
        for kind, value in output.get("data", {}).items():
            if kind not in NOT_COMPARED and not SAYS_NOTHING.fullmatch(str(value).strip()):
                return True
    return False


def _outputs(cell: NotebookNode) -> Iterator[str]:
    expected = _tags(cell) & {"raises-exception", "nbval-raises-exception"}
    for output in cell.outputs:
        if output.output_type == "error" and not expected:
            yield f"it stopped with {output.ename}: {output.evalue}"
        if output.get("name") == "stderr":
            yield "stderr is stored: run `make chapters`"
        data = output.get("data", {})
        if WIDGET in data:
            yield "a widget is stored that no kernel stands behind: run `make chapters`"
        pictures = [kind for kind in data if kind.startswith("image/")]
        text = str(data.get("text/plain", "")).strip()
        if pictures and (len(text) < SHORTEST_ALTERNATIVE or SAYS_NOTHING.fullmatch(text)):
            yield f"its picture has no text that says what it shows, only {text!r}"
        for what, pattern in MACHINE.items():
            for part in _texts(output):
                if match := pattern.search(part):
                    yield f"its output holds {what}: {part[match.start() :][:60]!r}"


def _texts(output: dict[str, Any]) -> Iterator[str]:
    """All text of an output; pictures in base64 are not text."""
    for name in ("text", "evalue"):
        yield str(output.get(name, ""))
    yield "\n".join(output.get("traceback", []))
    for kind, value in output.get("data", {}).items():
        if kind not in ("image/png", "image/jpeg"):
            yield str(value)
