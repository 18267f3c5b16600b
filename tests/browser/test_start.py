"""`pplab lab` without a browser: where it listens, whom it lets in, what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from pplab import lab

START = "import sys; from pathlib import Path; from pplab.lab import start; sys.exit(start("
ADDRESS = re.compile(r"JupyterLab: (http://127\.0\.0\.1:(\d+)/\S+)")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A user without any Jupyter files; a folder of notebooks in their home."""
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        monkeypatch.setenv(f"JUPYTER_{name}", str(tmp_path / name))
    (tmp_path / "chapters").mkdir()
    return tmp_path


class Started:
    """A process that runs ``start`` and what it has printed so far."""

    def __init__(self, folder: Path, more: str = "") -> None:
        code = f"{START}Path({str(folder)!r}), open_browser=False{more}))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # a CI under nohup ignores SIGHUP, and its children would
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if line.startswith("Stop it"):
                break
        match = ADDRESS.search(self.said)
        self.url, self.port = (match[1], int(match[2])) if match else ("", 0)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()  # and do not wait for ever for the rest of its output
            self.said += self.process.stdout.read()
        return self.process.returncode

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.end()


def status(url: str, path: str) -> int:
    """HTTP status of a path of the server, with the token of `url` if it has one."""
    base, _, token = url.partition("?")
    address = base.split("/lab")[0] + path + (f"?{token}" if token else "")
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def listening_below(pid):
    """Addresses on which a process and its children listen; short-lived ones may end meanwhile."""
    found = set()
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = process.net_connections("tcp")
            found |= {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    return found


def test_it_prints_an_address_that_works_and_only_with_its_token(home):
    with Started(home / "chapters") as lab_process:
        assert status(lab_process.url, "/api/contents") == 200
        assert status(lab_process.url.partition("?")[0], "/api/contents") == 403
        assert len(lab_process.said.splitlines()) == 2, "two lines: the address, how to stop it"
        listening = listening_below(lab_process.process.pid)
        assert listening == {"127.0.0.1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_when_it_is_stopped(home, number):
    with Started(home / "chapters") as lab_process:
        new_kernel(lab_process.url)
        below = psutil.Process(lab_process.process.pid).children(recursive=True)
        assert len(below) >= 2, "a server and a kernel"
        assert lab_process.end(number) == 0
        assert "JupyterLab stops" in lab_process.said
    _, alive = psutil.wait_procs(below, timeout=5)
    assert alive == []


def new_kernel(url: str) -> None:
    base, _, token = url.partition("?")
    request = urllib.request.Request(base.split("/lab")[0] + f"/api/kernels?{token}", method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["id"]


def test_a_taken_port_is_named_and_another_one_used(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]
        with Started(home / "chapters", f", port={wanted}") as lab_process:
            assert f"Port {wanted} is taken by another program" in lab_process.said
            assert lab_process.port != wanted
            assert status(lab_process.url, "/api") == 200


def test_a_notebook_can_be_opened_at_once(home):
    with Started(home / "chapters", ", notebook='00_start here.ipynb'") as lab_process:
        assert "/lab/tree/00_start%20here.ipynb?token=" in lab_process.url


def test_the_users_own_token_is_kept(home):
    config = home / "CONFIG_DIR"
    config.mkdir()
    settings = {"IdentityProvider": {"token": "my-own-token"}, "ServerApp": {"ip": "0.0.0.0"}}
    (config / "jupyter_server_config.json").write_text(json.dumps(settings))
    with Started(home / "chapters") as lab_process:
        assert lab_process.url.endswith("?token=my-own-token")


def test_a_server_that_does_not_start_says_why(home):
    config = home / "CONFIG_DIR"
    config.mkdir()
    (config / "jupyter_server_config.py").write_text("raise SystemExit('the config is broken')")
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", f"{START}Path({str(home)!r}), open_browser=False))"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "JupyterLab did not start" in done.stderr and "the config is broken" in done.stderr
    assert time.monotonic() - begin < 30


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert lab.start(tmp_path / "nowhere") == 2
    assert "There is no folder" in capsys.readouterr().err


def test_root_is_allowed_only_for_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-root" in lab.command(Path("."))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--allow-root" not in lab.command(Path("."))


def test_the_users_own_config_path_stays(monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/etc/my-jupyter")
    paths = lab.environment()["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert paths == [str(lab.SETTINGS), "/etc/my-jupyter"]
    assert (lab.SETTINGS / "labconfig" / "default_setting_overrides.json").exists()
