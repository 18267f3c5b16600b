"""`pplab cool --left`: a process server that outlived its notebook is found and ended, no other."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

import pplab
from pplab.cli import main
from pplab.runtime import left

#: A notebook that forks: the child inherits the pipe that keeps the process server alive.
NOTEBOOK = """import os, time, pplab
server = pplab.warm()
server.connect().close()
if os.fork() == 0:
    os.close(1)
    time.sleep(120)
    os._exit(0)
print(server.process.pid, flush=True)
time.sleep({patience})
os._exit(0)
"""


@pytest.fixture
def orphan(tmp_path):
    """Process id of a server whose notebook is gone, and its folder."""
    code = [sys.executable, "-c", NOTEBOOK.format(patience=0)]
    said = subprocess.run(code, stdout=-1, text=True, check=True).stdout
    server = psutil.Process(int(said))
    folder = server.cmdline()[-1]
    holder = [p for p in psutil.process_iter() if "os.fork() == 0" in " ".join(p.cmdline() or [])]
    yield server, left.Path(folder)
    for process in (*holder, server):
        if process.is_running():
            process.kill()


def test_an_orphan_is_ended_with_its_folder_and_a_living_one_is_left_alone(orphan, capsys):
    server, folder = orphan
    mine = pplab.warm()
    mine.connect().close()
    assert server.pid in [p.pid for p in left.orphans()]
    assert mine.process.pid not in [p.pid for p in left.orphans()]
    assert main(["cool", "--left"]) == 0
    said = capsys.readouterr().out
    assert str(server.pid) in said and "without a notebook" in said
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    assert not folder.exists()
    assert mine.alive() and mine.directory.exists()
    assert server.pid not in [p.pid for p in left.orphans()]


def test_a_folder_of_something_else_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(left.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(left, "orphans", list)
    other = tmp_path / "pplab-notes"
    other.mkdir()
    (other / "server.log").write_text("mine")
    assert str(left.clean()) == "nothing is left of any run" and other.exists()


def test_a_server_ends_by_itself_when_its_notebook_is_killed(tmp_path):
    code = NOTEBOOK.replace("if os.fork() == 0:", "if False:").format(patience=120)
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1, text=True) as notebook:
        server = psutil.Process(int(notebook.stdout.readline()))
        notebook.kill()
    ends = time.monotonic() + 15
    while server.is_running() and server.status() != "zombie" and time.monotonic() < ends:
        time.sleep(0.05)
    assert not server.is_running() or server.status() == "zombie"
