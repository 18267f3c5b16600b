"""Execute notebooks and store them in one form: ``python tools/refresh_notebooks.py [PATH ...]``.

Without paths: all chapters and labs. What is stored is what reads well without a kernel and what
``make test`` compares later: outputs, no widgets (a picture and its text stand in for them), no
stderr, no times, no paths of this machine, execution counts 1 to n. ``--check`` executes nothing
and fails when a notebook is not in that form.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
#: Cell metadata that says something about one execution or one person's screen.
FLEETING = ("execution", "collapsed", "scrolled", "trusted", "ExecuteTime", "vscode", "papermill")


def notebooks(root: Path = ROOT) -> list[Path]:
    """The notebooks of the course: chapters and labs."""
    found = [*root.glob("chapters/*.ipynb"), *root.glob("labs/**/*.ipynb")]
    return sorted(path for path in found if ".ipynb_checkpoints" not in path.parts)


def execute(
    notebook: NotebookNode, folder: Path, timeout: float = 600, *, widgets: bool = False
) -> None:
    """Run all cells in a fresh kernel in `folder`; outputs land in `notebook`, and with `widgets`
    their state in its metadata.

    Raises CellExecutionError when a cell fails that is not tagged ``raises-exception``.
    """
    with tempfile.TemporaryDirectory(prefix="pplab-ipython-") as private:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=timeout,
            store_widget_state=widgets,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
            config=Config(KernelManager={"transport_encryption": "auto"}),  # or it warns
        )
        own = {"IPYTHONDIR": private, "PPLAB_PROGRESS": f"{private}/progress"}
        client.execute(env={**os.environ, **own})


def load(path: Path) -> NotebookNode:
    """Read a notebook; a cell without an id of its own gets one that follows from its text."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    seen: set[str] = set()
    for place, cell in enumerate(raw["cells"]):
        if not cell.get("id") or cell["id"] in seen:  # nbformat would make up a random one
            text = f"{place} {''.join(cell['source'])}"
            cell["id"] = f"cell-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        seen.add(cell["id"])
    raw["nbformat"], raw["nbformat_minor"] = 4, 5
    return nbformat.reads(json.dumps(raw), as_version=4)


def normalise(notebook: NotebookNode) -> None:
    """Keep what belongs to the notebook, drop what belongs to one execution on one machine."""
    notebook.metadata = nbformat.from_dict(METADATA)
    count = 0
    for cell in notebook.cells:
        for name in FLEETING:
            cell.metadata.pop(name, None)
        if cell.cell_type != "code":
            continue
        count += bool(cell.source.strip())
        ran = cell.execution_count is not None and cell.source.strip()
        cell.execution_count = count if ran else None
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            _normalise_output(output, cell.execution_count)


def _normalise_output(output: NotebookNode, count: int | None) -> None:
    if output.output_type == "execute_result":
        output.execution_count = count
    if output.output_type == "error":
        output.traceback = [_without_paths(line) for line in output.traceback]
    data = output.get("data", {})
    if len(data) > 1:  # the picture or the text beside it stands in for the widget
        data.pop(WIDGET, None)
        output.get("metadata", {}).pop(WIDGET, None)


def _without_paths(text: str) -> str:
    """Tracebacks name files; relative to the project or to site-packages they read everywhere."""
    home = str(Path.home())
    for folder in (*(p for p in sys.path if "site-packages" in p), str(ROOT), sys.base_prefix):
        if folder:
            text = text.replace(folder + "/", "")
            if folder.startswith(home + "/"):  # IPython abbreviates
                text = text.replace("~" + folder.removeprefix(home) + "/", "")
    return text


def to_text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def normalised_text(path: Path) -> str:
    """What the file of a notebook should hold; equal to what it holds after `make chapters`."""
    notebook = load(path)
    normalise(notebook)
    return to_text(notebook)


def refresh(path: Path, timeout: float) -> str | None:
    """Execute a notebook and store it; the sentence that says what went wrong, or None."""
    notebook = load(path)
    try:
        execute(notebook, path.parent, timeout)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return f"{path} is left as it was, since it does not run: {error}"
    normalise(notebook)
    path.write_text(to_text(notebook), encoding="utf-8")
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (default: all)")
    parser.add_argument("--check", action="store_true", help="only say what is not in order")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a cell may take")
    chosen = parser.parse_args(arguments)
    failed = 0
    for path in chosen.paths or notebooks():
        if chosen.check:
            if path.read_text(encoding="utf-8") != normalised_text(path):
                print(f"{path} is not stored as it should be: run `make chapters`")
                failed += 1
            continue
        start = time.monotonic()
        problem = refresh(path, chosen.timeout)
        failed += problem is not None
        print(problem or f"{path}: stored after {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
