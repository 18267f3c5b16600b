"""Slides out of the chapters: ``make slides``, or ``python -m tools.make_slides``.

A chapter is to be read, a slide to be looked at while somebody talks. So a slide takes from the
notebook its heading, the first sentences or the list of a text, a question to predict, a picture,
a table or what was printed, and short code above it. The whole text goes into the speaker's notes
(press S, or open the page with ``?handout``; ``?print-pdf`` for paper). Answers folded away in the
chapter stay in the notes. Nothing is executed; reveal.js comes as files, so that nothing is loaded
from a network, and a picture is the PNG that the notebook stores.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template

from nbformat import NotebookNode

from tools.offline import external
from tools.refresh_notebooks import load
from tools.slide_html import code_css, coloured, inline, rendered

ROOT = Path(__file__).resolve().parents[1]
SLIDES = ROOT / "docs" / "slides"
OUT = ROOT / "build" / "slides"
#: What fits on a slide of 1280 x 720: characters of a lead, lines of code above a picture and
#: without one, lines that were printed.
LEAD, CODE_OVER_PICTURE, CODE_ALONE, PRINTED = 300, 8, 18, 14
_DETAILS = re.compile(r"<details>.*?</details>", re.S)


@dataclass
class Slide:
    """What is shown, as HTML, and what is said, as Markdown."""

    title: str
    shown: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    words_only: bool = True


def slides_of(notebook: NotebookNode) -> list[Slide]:
    """The slides of a chapter, in order."""
    made: list[Slide] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for heading, text in _sections(cell.source):
                if heading.lstrip("# ") == "Quiz":
                    continue
                made.append(_slide_of_text(heading, text, made))
        elif cell.cell_type == "code" and made:
            _add_code(cell, made)
    return [slide for slide in made if len(slide.shown) > 1]  # more than its heading


def _sections(text: str) -> list[tuple[str, str]]:
    """(heading, text below it) of a Markdown cell; "" for text without a heading of its own."""
    parts = re.split(r"^(#{1,3} .+)$", text, flags=re.M)
    found = [("", parts[0].strip())] if parts[0].strip() else []
    return found + [(h.strip(), t.strip()) for h, t in zip(parts[1::2], parts[2::2], strict=True)]


def _slide_of_text(heading: str, text: str, made: list[Slide]) -> Slide:
    title = heading.lstrip("# ") or (made[-1].title if made else "")
    slide = Slide(title, said=[text] if text else [])
    visible = _DETAILS.sub("", text).strip()
    if heading.startswith("# "):
        first, *rest = visible.split("\n\n")
        slide.shown = [f"<h1>{inline(title)}</h1>", f'<div class="quiet">{rendered(first)}</div>']
        slide.shown += [rendered("\n\n".join(rest))] if rest else []
        return slide
    lead = lead_of(visible) if heading or not visible.startswith("Next:") else ""
    if heading or lead:
        slide.shown = [f"<h2>{inline(title)}</h2>"] + ([rendered(lead)] if lead else [])
    return slide


def lead_of(text: str) -> str:
    """The part of a text that goes on its slide: whole first sentences up to LEAD characters, and
    the first formula or list of at most seven points."""
    blocks = [b for b in re.split(r"\n\s*\n", text) if b.strip()]
    words, extra = "", ""
    for block in blocks:
        listed = re.match(r"\s*([-*]|\d+\.) ", block)
        if (listed or block.startswith("$$")) and not extra:
            points = re.split(r"\n(?=(?:[-*]|\d+\.) )", block)
            extra = "\n".join(_that_fit(points[:7]))
        elif not listed and not block.startswith(("$$", "|", "```", "<")) and not words:
            words = _first_sentences(" ".join(block.split()))
    return "\n\n".join(filter(None, (words, extra)))


def _that_fit(points: list[str]) -> list[str]:
    """The first points of a list, two LEADs of visible text at most, and one in any case."""
    kept, length = [], 0
    for point in points:
        length += len(re.sub(r"\]\([^)]*\)", "", point))
        if kept and length > 2 * LEAD:
            break
        kept.append(point)
    return kept


def _first_sentences(text: str) -> str:
    kept = ""
    for sentence in re.split(r"(?<=[.?!:])(?:\*\*|\*)?\s+(?=[A-Z*`$\[(])", text):
        if kept and len(kept) + len(sentence) > LEAD:
            break
        kept = f"{kept} {sentence}".strip()
    if kept.count("**") % 2:  # the split took a closing mark
        kept += "**"
    return kept


def _add_code(cell: NotebookNode, made: list[Slide]) -> None:
    """A slide for what a cell shows; what only checks goes into the notes."""
    source, last = cell.source.strip(), made[-1]
    if "pplab.quiz(" in source:
        last.said.append("The quiz of this chapter is in the notebook.")
        return
    question = "pplab.predict(" in source
    pictures, tables, printed = _outputs(cell, question)
    if printed and all(line.startswith("✓") for line in printed.splitlines()) and not pictures:
        last.said.append(f"Checked beside it:\n\n{printed}")
        return
    if not (pictures or tables or printed or question):
        if len(source.splitlines()) <= CODE_OVER_PICTURE and not source.startswith("import pplab"):
            last.shown.append(coloured(source))
        return
    slide, tall = last, any(map(_tall, pictures))
    fits = last.words_only and _height(last) < 6 and not tall
    if not fits or question or len(pictures + tables) > 1:
        slide = Slide(last.title, [f"<h2>{inline(last.title)}</h2>"])
        made.append(slide)
    slide.words_only = False
    if question:
        slide.shown += [f'<div class="ask">{table}</div>' for table in tables]
        return
    lines = len(source.splitlines())
    room = CODE_ALONE
    if pictures or tables:
        room = CODE_OVER_PICTURE - _height(slide) - len(printed.splitlines())
    if lines <= room and not tall:
        slide.shown.append(coloured(source))
    else:
        slide.said.append(f"The code:\n\n```python\n{source}\n```")
    if printed:
        rows = printed.rstrip().splitlines()
        more = [f"... and {len(rows) - PRINTED} more lines"] if len(rows) > PRINTED else []
        slide.shown.append(f"<pre>{escape(chr(10).join(rows[:PRINTED] + more))}</pre>")
    for place, what in enumerate(pictures + tables):
        if place:
            slide = Slide(last.title, [f"<h2>{inline(last.title)}</h2>"], words_only=False)
            made.append(slide)
        slide.shown.append(what)


def _outputs(cell: NotebookNode, question: bool) -> tuple[list[str], list[str], str]:
    """Pictures and tables as HTML, and what was printed."""
    pictures, tables, printed = [], [], ""
    for output in cell.outputs:
        data = output.get("data", {})
        words = str(data.get("text/plain", ""))
        if "image/png" in data:
            name = _Pictures.keep(data["image/png"])
            alt = escape(" ".join(words.split()), quote=True)
            pictures.append(f'<figure><img src="{name}" alt="{alt}"></figure>')
        elif "text/html" in data:
            page = str(data["text/html"])
            if question:
                ask = re.sub(r"<p><(?:b|i)>(?:Predict|Run this cell[^<]*)</(?:b|i)></p>", "", page)
                tables.append(f"<p class='quiet'>Predict</p>{ask}")
            elif "<table" in page:
                tables.append(f"<div class='fit'>{page}</div>")
        elif output.output_type == "stream" and output.get("name") == "stdout":
            printed += str(output.text)
        elif "text/plain" in data and not question:
            printed += words + "\n"
        elif output.output_type == "error":
            printed += f"{output.ename}: {output.evalue}\n"
    printed = re.sub(r"no prediction given; (it is)", r"\1", printed)  # nobody was asked
    return pictures, tables, printed.strip("\n")


class _Pictures:
    """Where pictures of the deck that is being made are written."""

    folder = OUT
    prefix = ""
    count = 0

    @classmethod
    def keep(cls, encoded: str) -> str:
        cls.count += 1
        name = f"{cls.prefix}-{cls.count:02d}.png"
        (cls.folder / name).write_bytes(base64.b64decode(encoded))
        return name


def _tall(figure: str) -> bool:
    """True for a picture that wants a slide of its own."""
    name = re.search(r'src="([^"]+)"', figure)
    assert name is not None
    header = (_Pictures.folder / name[1]).read_bytes()[16:24]  # of a PNG: width, height
    return int.from_bytes(header[4:], "big") > 0.5 * int.from_bytes(header[:4], "big")


def _height(slide: Slide) -> int:
    """Lines that the words of a slide take, about."""
    text = re.sub(r"<[^>]+>", "", " ".join(slide.shown[1:]))
    return len(text) // 90 + sum(part.count("<li>") + part.count("<pre") for part in slide.shown)


# -- a deck ---------------------------------------------------------------------------------------


def deck(path: Path, out: Path) -> tuple[Path, str, int]:
    """Write the slides of one notebook; its file, title and number of slides."""
    _Pictures.folder, _Pictures.prefix, _Pictures.count = out, path.stem, 0
    slides = slides_of(load(path))
    title = re.sub(r"<[^>]+>", "", slides[0].title)
    pages = "\n".join(
        f'<section class="slide">\n{"".join(s.shown)}\n'
        f'<aside class="notes">{rendered(chr(10).join(f"{t}{chr(10)}" for t in s.said))}</aside>\n'
        "</section>"
        for s in slides
    )
    page = Template((SLIDES / "deck.html").read_text(encoding="utf-8")).substitute(
        title=escape(title), slides=pages, code_css=code_css()
    )
    file = out / f"{path.stem}.html"
    file.write_text(page, encoding="utf-8")
    return file, title, len(slides)


def build(paths: list[Path], out: Path = OUT) -> list[tuple[Path, str, int]]:
    """Write a deck a notebook and a page that lists them; raises RuntimeError where one would
    load something from a network."""
    import sphinx_revealjs

    shutil.rmtree(out, ignore_errors=True)
    (out / "reveal" / "notes").mkdir(parents=True)
    here = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
    for name in ("dist/reset.css", "dist/reveal.css", "dist/reveal.js", "LICENSE"):
        shutil.copy(here / name, out / "reveal")
    for name in ("notes.js", "speaker-view.html"):
        shutil.copy(here / "plugin" / "notes" / name, out / "reveal" / "notes")
    shutil.copy(SLIDES / "deck.css", out)
    decks = [deck(path, out) for path in paths]
    rows = "".join(
        f'<li><a href="{file.name}">{escape(title)}</a> ({count} slides)</li>'
        for file, title, count in decks
    )
    (out / "index.html").write_text(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Slides</title>"
        "<link rel='stylesheet' href='deck.css'><body class='contents'><h1>Slides</h1>"
        f"<ul>{rows}</ul><p>Right arrow: next. S: the speaker's view. Add <code>?handout</code> to "
        "the address for notes beside each slide, <code>?print-pdf</code> to print.</p>",
        encoding="utf-8",
    )
    if away := external(out):
        raise RuntimeError("these would be loaded from a network:\n" + "\n".join(away))
    return decks


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (default: the chapters)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder (build/slides)")
    chosen = parser.parse_args(arguments)
    try:
        decks = build(chosen.paths or sorted((ROOT / "chapters").glob("*.ipynb")), chosen.out)
    except ImportError as error:
        print(f"{error.name} is not here: `make slides` installs it", file=sys.stderr)
        return 1
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    for file, _, count in decks:
        print(f"{file}: {count} slides")
    print(f"open {chosen.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
