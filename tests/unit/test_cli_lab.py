"""`pplab lab`: which folder it opens, and where in it."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time

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


@pytest.mark.parametrize("hostname", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_an_address_is_printed_once_somebody_answers_there(tmp_path, hostname):
    """Jupyter writes its file, and only then begins to listen."""
    with socket.socket() as port, subprocess.Popen(["sleep", "60"]) as server:
        port.bind(("127.0.0.1", 0))
        info = {"hostname": hostname, "port": port.getsockname()[1], "sock": ""}
        listens = threading.Timer(0.5, port.listen)
        listens.start()
        begin = time.monotonic()
        writes = threading.Timer(
            0.1, (tmp_path / f"jpserver-{server.pid}.json").write_text, [json.dumps(info)]
        )
        writes.start()
        try:
            assert pplab.lab._wait_for(server, tmp_path) == info
            assert time.monotonic() - begin >= 0.5
        finally:
            listens.join()
            writes.join()
            server.kill()
