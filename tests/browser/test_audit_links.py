"""The audit's links, followed in a real JupyterLab: to a heading of a chapter, and on the page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.browser.lab import OPEN, REACT, ROOT, LabPage

pytestmark = pytest.mark.browser

NAME = "07_audit.ipynb"
READY_TO_FIND = """() => window.jupyterapp.shell.currentWidget.node.querySelector(
  '[data-jupyter-id="Break-it:-messages-that-take-time"]') !== null"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copies of two chapters: JupyterLab saves by itself, and must not save into the project."""
    (tmp_path / "chapters").mkdir()
    for name in (NAME, "01_bubbles.ipynb"):
        shutil.copy(ROOT / "chapters" / name, tmp_path / "chapters")
    return tmp_path / "chapters"


def heading_in_view(lab_page: LabPage, text: str) -> None:
    """Wait until the heading lies within the window."""
    lab_page.page.wait_for_function(
        """text => {
          const panel = window.jupyterapp.shell.currentWidget.node;
          const found = [...panel.querySelectorAll('h2, h3')].find(
            h => h.textContent.startsWith(text));
          if (!found) return false;
          const box = found.getBoundingClientRect();
          return box.height > 0 && box.top >= 0 && box.bottom <= window.innerHeight;
        }""",
        arg=text,
        timeout=REACT,
    )


def test_links_lead_to_the_headings_they_name(lab_server, lab_page, folder):
    lab_page.open(lab_server(folder), NAME)
    page = lab_page.page
    page.get_by_role("link", name="below: The log that shows the bubble").first.click()
    heading_in_view(lab_page, "The log that shows the bubble")
    link = page.get_by_role("link", name="chapter 1: Break it: messages that take time").first
    link.click()
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.title.label === '01_bubbles.ipynb'",
        timeout=OPEN,
    )
    # JupyterLab looks for the heading before a chapter that it has just opened is drawn, and stays
    # at the top; in one that is open it goes there. The page says so.
    page.wait_for_function(READY_TO_FIND, timeout=OPEN)
    page.evaluate(
        "async name => { await window.jupyterapp.commands.execute('docmanager:open', "
        "{path: name}); return null; }",
        NAME,
    )
    link.click()
    heading_in_view(lab_page, "Break it: messages that take time")
