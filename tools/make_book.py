"""The course as a static site: ``make book``, or ``python -m tools.make_book [--live]``.

Nothing is executed: the pages show the outputs that the notebooks store, the PNG of each picture
with its words below it. ``--live`` executes copies of the notebooks first (minutes), keeps their
widgets, and puts what draws them beside the pages (from npm): zooming, panning and hovering work
then, while a slider whose picture Python computes needs JupyterLab. Read with or without a server
(``file://``); no page asks any network for anything, and the build stops where one would.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.offline import external, vendored
from tools.refresh_notebooks import METADATA, WIDGET, execute, load

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "docs" / "book"
OUT = ROOT / "build" / "book"
#: What draws widgets without a kernel: file of the page <- package, version, file in it.
PLAYERS = {
    "require.js": ("requirejs", "2.3.8", "require.js"),
    "embed-amd.js": ("@jupyter-widgets/html-manager", "1.0.15", "dist/embed-amd.js"),
}


def sources(root: Path = ROOT) -> dict[str, list[Path]]:
    """The pages of the book by part, in reading order."""
    return {
        "Chapters": sorted((root / "chapters").glob("*.ipynb")),
        "Labs": sorted((root / "labs").glob("*.ipynb")),
        "For those who teach or add to it": [root / "docs/instructor.md", root / "CONTRIBUTING.md"],
    }


def lay_out(stage: Path, parts: dict[str, list[Path]], *, live: bool = False) -> None:
    """Write the sources of the book into `stage`: notebooks, texts, and a first page."""
    names = {}
    for part, paths in parts.items():
        names[part] = []
        for path in paths:
            at = stage / (path.parent.name if path.suffix == ".ipynb" else ".") / path.name
            at.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".ipynb":
                notebook = load(path)
                if live:
                    print(f"executing {path.name}", flush=True)
                    execute(notebook, path.parent, widgets=True)
                prepare(notebook, live=live)
                nbformat.write(notebook, at)
            else:
                at.write_text(_links_of_a_page(path.read_text(encoding="utf-8")), encoding="utf-8")
            names[part].append(at.relative_to(stage).with_suffix("").as_posix())
    (stage / "index.md").write_text(_index(parts, names, live), encoding="utf-8")


def prepare(notebook: NotebookNode, *, live: bool = False) -> None:
    """Make outputs readable by everyone: pictures get their words, as alternative and below."""
    notebook.metadata.update(METADATA)  # a notebook that never ran does not say its language
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        found = []
        for output in cell.outputs:
            if output.get("name") == "stderr":
                continue
            found.append(output)
            data = output.get("data", {})
            if not live:
                data.pop(WIDGET, None)
            if "image/png" in data and "text/plain" in data:
                words = _text(data["text/plain"])
                alt = re.sub(r"\s+", " ", words)
                cell.metadata["mystnb"] = {"image": {"alt": alt}}
                found.append(_in_words(words, data.pop("text/html", None)))
        cell.outputs = found


def _in_words(words: str, page: str | list[str] | None = None) -> NotebookNode:
    """What is folded away below a picture: its words, as a page where there is one of its own."""
    from html import escape

    folded = f"<summary>In words</summary>{_text(page) if page else f'<pre>{escape(words)}</pre>'}"
    page = f"<details class='in-words'>{folded}</details>"
    return nbformat.v4.new_output("display_data", {"text/html": page, "text/plain": words})


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def _links_of_a_page(text: str) -> str:
    """Texts in docs/ and at the top name notebooks by their path from there; pages lie on top."""
    return re.sub(r"\]\(\.\./(chapters|labs)/", r"](\1/", text)


def _index(parts: dict[str, list[Path]], names: dict[str, list[str]], live: bool) -> str:
    kept = (
        "widgets can be zoomed and hovered over; a slider whose picture Python computes needs "
        "JupyterLab"
        if live
        else "pictures as they were stored; in JupyterLab they can be zoomed, dragged and asked"
    )
    lines = [
        "# Pipelines, measured",
        "",
        "A course on DeepSpeed pipeline parallelism: a schedule is written once, simulated, run on",
        "real processes, and the measured timeline is laid over the simulated one.",
        "",
        f"These pages are for reading ({kept}). To run and change the cells: `make lab`.",
        "",
    ]
    for part, paths in parts.items():
        lines += [f"## {part}", ""]
        for path, name in zip(paths, names[part], strict=True):
            title, minutes = heading(path)
            lines.append(f"- [{title}]({name}.{path.suffix[1:]}){minutes and f': {minutes}'}")
        pages = "\n".join(names[part])
        lines += ["", f"```{{toctree}}\n:hidden:\n:caption: {part}\n\n{pages}\n```", ""]
    return "\n".join(lines)


def heading(path: Path) -> tuple[str, str]:
    """Title of a page, and the minutes that it states ("45 minutes", "" for none)."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "".join(cells[0]["source"])
    else:
        text = path.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.M)
    minutes = re.search(r"^\*\*(\d+ minutes)\b", text, re.M)
    if title is None:
        raise ValueError(f"{path} has no title: its first cell begins with `# ...`")
    return title[1], minutes[1] if minutes else ""


def build(parts: dict[str, list[Path]], out: Path = OUT, *, live: bool = False) -> Path:
    """Build the site in `out`; returns its first page. Raises RuntimeError for any warning of
    Sphinx's, or a page that would load something from a network."""
    from sphinx.cmd.build import build_main

    stage = out.parent / f"{out.name}-source"
    for folder in (stage, out):
        shutil.rmtree(folder, ignore_errors=True)
    stage.mkdir(parents=True)
    lay_out(stage, parts, live=live)
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(BOOK)]
    files = {name: vendored(*package) for name, package in PLAYERS.items()} if live else {}
    os.environ["PPLAB_BOOK_PLAYERS"] = " ".join(files)  # conf.py reads it
    if build_main([*options, "-d", str(stage / ".doctrees"), str(stage), str(out)]):
        raise RuntimeError("the book was not built without warnings: they stand above")
    if live:
        _bring_players(out, files, {stage, *(p.parent for p in stage.rglob("*.ipynb"))}, stage)
    if away := external(out):
        raise RuntimeError("these would be loaded from a network:\n" + "\n".join(away))
    return out / "index.html"


def _bring_players(out: Path, files: dict[str, Path], folders: Iterable[Path], stage: Path) -> None:
    import anywidget

    (out / "_static" / "w").mkdir(exist_ok=True)
    for name, path in files.items():
        shutil.copy(path, out / "_static" / "w" / name)
    bundle = Path(anywidget.__file__).parent / "nbextension" / "index.js"
    for folder in folders:  # it is asked for beside the page
        shutil.copy(bundle, out / folder.relative_to(stage) / "anywidget.js")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="only these pages (default: all)")
    parser.add_argument("--live", action="store_true", help="execute copies; keep their widgets")
    parser.add_argument("--out", type=Path, default=OUT, help="folder (build/book)")
    chosen = parser.parse_args(arguments)
    paths = [path.resolve() for path in chosen.paths]
    try:
        pages = {"Pages": paths} if paths else sources()
        page = build(pages, chosen.out.resolve(), live=chosen.live)
    except ImportError as error:
        print(f"{error.name} is not here: `make book` installs it", file=sys.stderr)
        return 1
    except (OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    size = sum(file.stat().st_size for file in chosen.out.rglob("*") if file.is_file())
    print(f"{page} ({size / 1e6:.1f} MB in all); open it in a browser, with or without a server")
    return 0


if __name__ == "__main__":
    sys.exit(main())
