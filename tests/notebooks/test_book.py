"""`make book` and `make slides`: everything is on a page, and no page needs a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import v4

from tests.browser.page import browser, require_browser
from tools.make_book import heading
from tools.offline import external

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted([*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("labs/*.ipynb")])
NEEDED = ("sphinx", "myst_nb", "furo", "latex2mathml", "sphinx_revealjs")
LACKING = [name for name in NEEDED if find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(LACKING), reason=f"{', '.join(LACKING)} not here: make book installs requirements-kit.txt"
)


def make(tool: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("book") / "book"
    done = make("make_book", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def slides(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("slides") / "slides"
    done = make("make_slides", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def pictures(path: Path) -> int:
    outputs = [o for cell in cells(path) for o in cell.get("outputs", [])]
    return sum("image/png" in o.get("data", {}) for o in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_has_every_picture_with_its_words(book, path):
    page = (book / path.parent.name / f"{path.stem}.html").read_text(encoding="utf-8")
    shown = re.findall(r'<img\b[^>]*\salt="([^"]*)"[^>]*src="\.\./_images/', page)
    assert len(shown) == pictures(path) and all(len(alt) > 20 for alt in shown)
    assert page.count("<summary>In words</summary>") == pictures(path)
    source = "".join("".join(cell["source"]) for cell in cells(path))
    assert ("<math" in page) == ("$$" in source or "\\frac" in source)
    assert "widget-view" not in page


def test_the_first_page_lists_everything_with_its_minutes(book):
    page = (book / "index.html").read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        assert f'href="{path.parent.name}/{path.stem}.html"' in page, path
    assert page.count(" minutes</") >= len(NOTEBOOKS)
    assert 'href="instructor.html"' in page and 'href="CONTRIBUTING.html"' in page


def test_links_between_notebooks_lead_to_pages(book):
    page = (book / "chapters" / "01_bubbles.html").read_text(encoding="utf-8")
    assert 'href="00_start_here.html"' in page and ".ipynb" not in re.sub(
        '_sources/[^"]*', "", page
    )


def test_nothing_is_loaded_from_a_network(book, slides):
    assert external(book) == [] and external(slides) == []
    assert len(list(book.rglob("*.html"))) >= len(NOTEBOOKS) + 3


def test_a_book_is_refused_where_sphinx_warns(tmp_path):
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title\n\nSee [it](nowhere.ipynb).")])
    nbformat.write(notebook, tmp_path / "page.ipynb")
    done = make("make_book", "--out", tmp_path / "book", tmp_path / "page.ipynb")
    assert done.returncode == 1 and "nowhere.ipynb" in done.stderr
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell("No title")]), tmp_path / "b.ipynb")
    with pytest.raises(ValueError, match=r"b\.ipynb has no title"):
        heading(tmp_path / "b.ipynb")


def test_a_deck_keeps_the_story_and_folds_the_answers_away(slides):
    from html import unescape

    for path in sorted(ROOT.glob("chapters/*.ipynb")):
        page = (slides / f"{path.stem}.html").read_text(encoding="utf-8")
        shown = re.sub(r'<aside class="notes">.*?</aside>', "", page, flags=re.S)
        assert shown.count("<figure>") == pictures(path)
        text = "\n".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "markdown")
        for name in re.findall(r"^## ([^`*$\n]+)$", text, re.M):
            assert name == "Quiz" or name in unescape(shown), (path.stem, name)
        told = re.sub(r"^## Quiz\n.*?(?=^## |\Z)", "", text, flags=re.M | re.S)
        assert "<details" not in shown
        assert page.count("<details") == told.count("<details"), path.stem
        assert "no prediction given" not in page


# -- in a browser ---------------------------------------------------------------------------------

_FITS = """() => {
  const room = document.querySelector(".slides").getBoundingClientRect(), scale = Reveal.getScale();
  return Reveal.getSlides().flatMap((slide, place) => {
    Reveal.slide(place);
    const parts = [...slide.children].filter((e) => !e.matches("aside"));
    const low = Math.max(...parts.map((e) => e.getBoundingClientRect().bottom)) - room.bottom;
    const picture = slide.querySelector("figure");
    const small = picture && picture.getBoundingClientRect().height / scale < 200;
    return low / scale > 2 || small ? [`slide ${place + 1}: ${Math.round(low)} px too low`] : [];
  });
}"""


@pytest.fixture(scope="module")
def chromium():
    require_browser()
    with browser() as started:
        yield started


def visit(chromium, file: Path, scheme: str, ready: str, ask: str) -> Any:
    """Open a page; what a script says of it. No error on the console, nothing from a network."""
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, color_scheme=scheme)
    page = context.new_page()
    errors, requests = [], []
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("request", lambda r: requests.append(r.url))
    try:
        page.goto(file.as_uri())
        page.wait_for_function(ready, timeout=15_000)
        said = page.evaluate(ask)
        # of html-manager's own schema, which its validator finds too loose
        errors = [text for text in errors if "(strictTypes)" not in text]
        assert errors == [], (file.name, errors)
        away = [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]
        assert away == [], (file.name, away)
        return said
    finally:
        context.close()


@pytest.mark.browser
def test_every_page_opens_in_a_browser(book, chromium):
    """Alternately by day and by night; a picture that does not load has no width."""
    ask = """() => [[...document.images].filter((i) => !i.naturalWidth).length,
      document.documentElement.scrollWidth <= innerWidth,
      getComputedStyle(document.body).backgroundColor]"""
    grounds = set()
    for place, file in enumerate(sorted(book.rglob("*.html"))):
        scheme = ("light", "dark")[place % 2]
        broken, fits, ground = visit(
            chromium, file, scheme, "document.readyState === 'complete'", ask
        )
        assert (broken, fits) == (0, True), file
        grounds.add((scheme, ground))
    assert len(grounds) == 2  # one by day, another one by night


@pytest.mark.browser
def test_every_slide_fits(slides, chromium):
    for place, file in enumerate(sorted(slides.glob("0*.html"))):
        scheme = ("light", "dark")[place % 2]
        ready = "window.Reveal && Reveal.isReady()"
        assert visit(chromium, file, scheme, ready, _FITS) == [], file


@pytest.mark.browser
def test_notes_stand_beside_the_slides_where_they_are_asked_for(slides, chromium):
    page = slides / "01_bubbles.html"
    ready = "window.Reveal && Reveal.isReady()"
    assert "?handout" in (slides / "index.html").read_text()
    context = chromium.new_context()
    tab = context.new_page()
    try:
        tab.goto(f"{page.as_uri()}?handout#/1")
        tab.wait_for_function(ready, timeout=15_000)
        tab.wait_for_selector(".speaker-notes", timeout=15_000)
        assert "A model is cut into four equal stages" in tab.inner_text(".speaker-notes")
    finally:
        context.close()


@pytest.mark.browser
def test_widgets_live_without_a_kernel(chromium, tmp_path):
    """A copy is executed, its widget kept, and drawn on a page in a folder of its own."""
    if not (shutil.which("npm") or (ROOT / "build" / "npm").exists()):
        pytest.skip("what draws widgets comes from npm, which is not here")
    (tmp_path / "chapters").mkdir()
    notebook = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# Live"),
            v4.new_code_cell(
                "from pplab.core.schedules import one_f_one_b\n"
                "one_f_one_b(4, 8).simulate(forward=1, backward=2)"
            ),
        ]
    )
    path = tmp_path / "chapters" / "live.ipynb"
    nbformat.write(notebook, path)
    before = path.read_bytes()
    done = make("make_book", "--live", "--out", tmp_path / "book", path)
    if "npm could not bring" in done.stderr + done.stdout:
        pytest.skip("what draws widgets comes from npm, which has no network here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == before
    found = visit(
        chromium, tmp_path / "book" / "chapters" / "live.html", "light",
        "window.__pplab_painted !== undefined",
        "() => document.querySelectorAll('.pp-host').length",
    )  # fmt: skip
    assert found == 1
