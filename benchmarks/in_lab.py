"""Figures that a reader feels, measured in a real JupyterLab in headless Chromium.

`figures` opens one-cell notebooks and hands their pages to what measures; where there is no
browser, or measuring fails, every figure says why it has no value.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import entry

Entries = list[dict[str, Any]]
#: (id, unit, target, which is better)
Target = tuple[str, str, float | None, str]


def figures(
    targets: Sequence[Target],
    notebooks: dict[str, str],
    measure: Callable[[Callable[[str], Any]], Entries],
) -> Entries:
    """What `measure` finds, given a function from the name of a notebook to its open page.

    notebooks: name -> the source of its one cell.
    """
    why = missing()
    if not why:
        try:
            with pages(notebooks) as opened:
                return measure(opened)
        except Exception as error:  # the other figures of the group must not suffer
            why = f"not measured: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return [entry(id, None, unit, aim, better, why) for id, unit, aim, better in targets]


def missing() -> str:
    """What this machine lacks, as a sentence; "" when everything is there."""
    lacks = []
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    if not any(map(shutil.which, names)):
        lacks.append("Chromium (apt-get install chromium)")
    for module in ("playwright", "jupyterlab", "pytest", "nbformat"):
        if importlib.util.find_spec(module) is None:
            lacks.append(module)
    return f"not measured: this machine lacks {' and '.join(lacks)}" if lacks else ""


@contextmanager
def pages(notebooks: dict[str, str]) -> Any:
    """A JupyterLab with these notebooks; gives the function that opens one by its name."""
    from playwright.sync_api import sync_playwright

    from tests.browser import lab

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder, private = Path(scratch, "course"), Path(scratch, "private")
        folder.mkdir()
        private.mkdir()
        for name, source in notebooks.items():
            write(folder / f"{name}.ipynb", source)
        flags = lab.CHROMIUM_FLAGS
        chromium = playwright.chromium.launch(executable_path=lab.chromium(), args=flags)
        try:
            with lab.running_lab(folder, private) as server:
                yield lambda name: opened(lab, chromium, server, f"{name}.ipynb")
        finally:
            chromium.close()


def write(file: Path, source: str) -> None:
    """A notebook of one cell."""
    import nbformat
    from nbformat import v4

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [v4.new_code_cell(source)]
    nbformat.write(notebook, file)


def opened(lab: Any, chromium: Any, server: Any, name: str) -> Any:
    """The page of a notebook that has run, with its widget painted."""
    page = lab.LabPage(chromium.new_page(viewport={"width": 1400, "height": 1000}))
    page.open(server, name)
    page.run_all()
    page.page.wait_for_function("window.__pplab_painted !== undefined", timeout=lab.REACT)
    page.settle()
    if faults := page.faults():
        raise RuntimeError("; ".join(faults))
    return page.page


def spread(milliseconds: Sequence[float]) -> str:
    """How far measured times lie apart, in words."""
    ordered = sorted(milliseconds)
    return (
        f"fastest {ordered[0]:.0f}, nine of ten within {ordered[int(0.9 * len(ordered))]:.0f}, "
        f"slowest {ordered[-1]:.0f} ms"
    )
