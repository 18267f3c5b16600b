"""`pplab lab`: which folder it opens, and where in it."""

from __future__ import annotations

import pytest

import pplab.lab
from pplab.cli import HOUSE, main


@pytest.fixture
def started(monkeypatch):
    seen = []

    def start(directory, open_browser, port, *, notebook):
        seen.append((directory, open_browser, port, notebook))
        return 0

    monkeypatch.setattr(pplab.lab, "start", start)
    return seen


def test_chapters_and_labs_lie_in_what_is_opened(started):
    assert main(["lab", "--no-open"]) == 0
    assert started == [(HOUSE, False, None, "chapters/00_start_here.ipynb")]
    assert (HOUSE / "labs").is_dir()


def test_a_folder_of_ones_own(started, tmp_path):
    main(["lab", "--dir", str(tmp_path), "--port", "8123"])
    (tmp_path / "00_start_here.ipynb").write_text("{}")
    main(["lab", "--dir", str(tmp_path)])
    assert started == [(tmp_path, True, 8123, None), (tmp_path, True, None, "00_start_here.ipynb")]
