"""Start JupyterLab on the course: ``pplab lab``.

It listens on 127.0.0.1 only and asks for a token, random unless the user's own Jupyter config sets
one. The settings in ``jupyter_config`` hold without touching anyone's configuration. The server
runs as a child in its own session and ends with this process, whether by Ctrl-C, by a closed
terminal or by SIGTERM; its messages go to a log file, so that the terminal shows the address.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

SETTINGS = Path(__file__).parents[1] / "jupyter_config"
#: Seconds a server may take to start (a cold disk), and to end after it was told to.
START, STOP = 90.0, 10.0


def command(
    directory: Path, *, open_browser: bool = False, port: int | None = None, page: str = "/lab"
) -> list[str]:
    """The command that starts JupyterLab on the notebooks in `directory`, opened at `page`."""
    options = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={directory.resolve()}",
        f"--LabApp.default_url={page}",
        # nothing is asked of the network, and no question about news covers the page
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    if port is not None:
        options.append(f"--ServerApp.port={port}")
    if not open_browser:
        options.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    return [sys.executable, "-m", "jupyterlab", *options]


def environment() -> dict[str, str]:
    """The environment of the server: this one, with the settings of the course in front."""
    paths = [str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def start(
    directory: Path,
    open_browser: bool = True,
    port: int | None = None,
    *,
    notebook: str | None = None,
) -> int:
    """Run JupyterLab on `directory` until it is stopped; the exit code for the shell.

    When `port` (default: that of the user's config, or 8888) is taken, the next free one is used
    and said. `notebook`, a file in `directory`, is opened at once. The address is printed in any
    case, and opened unless `open_browser` is False.
    """
    if not directory.is_dir():
        print(f"There is no folder {directory} to open.", file=sys.stderr)
        return 2
    page = f"/lab/tree/{quote(notebook)}" if notebook else "/lab"
    runtime = _runtime_folder()
    log = runtime / f"pplab-lab-{os.getpid()}.log"
    with log.open("wb") as output, _signals_end_us():
        server = subprocess.Popen(
            command(directory, open_browser=open_browser, port=port, page=page),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us: Jupyter would ask whether it is meant
        )
        try:
            info = _wait_for(server, runtime)
            if info is None:
                print(f"JupyterLab did not start; the end of {log}:", file=sys.stderr)
                print(
                    *log.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr
                )
                return 1
            taken = _port_taken(info, port, log)
            if taken:
                print(f"Port {taken} is taken by another program; port {info['port']} is used.")
            print(f"JupyterLab: {address(info, page)}")
            print(f"Stop it with Ctrl-C here. What the server says goes to {log}", flush=True)
            return server.wait()
        except KeyboardInterrupt:
            print("\nJupyterLab stops, and its kernels with it.", flush=True)
            return 0
        finally:
            _end(server)


def address(info: dict[str, Any], page: str = "/lab") -> str:
    """The address to open, out of what a server writes about itself."""
    token = "" if info["password"] or not info["token"] else f"?token={info['token']}"
    return f"{info['url'].rstrip('/')}{page}{token}"


def _runtime_folder() -> Path:
    from jupyter_core.paths import jupyter_runtime_dir

    folder = Path(jupyter_runtime_dir())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds tokens
    return folder


def _wait_for(server: subprocess.Popen[bytes], runtime: Path) -> dict[str, Any] | None:
    """What the server says about itself once it listens; None when it ends or takes too long."""
    about, end = runtime / f"jpserver-{server.pid}.json", time.monotonic() + START
    about.unlink(missing_ok=True)  # of a server that crashed when it had this process id
    while server.poll() is None and time.monotonic() < end:
        try:
            info = json.loads(about.read_text())
            if _listens(info):  # a moment after the file is written
                return info
        except (OSError, ValueError):  # not there, or not finished yet
            pass
        time.sleep(0.1)
    return None


def _listens(info: dict[str, Any]) -> bool:
    """Whether somebody answers at the address of a server; taken for granted of a Unix socket."""
    if info.get("sock"):
        return True
    wildcard = info["hostname"] in ("", "*", "0.0.0.0", "::")
    try:
        socket.create_connection(
            ("localhost" if wildcard else info["hostname"], info["port"]), timeout=5
        ).close()
    except OSError:
        return False
    return True


def _port_taken(info: dict[str, Any], wanted: int | None, log: Path) -> int | None:
    """The port that should have been used; None when it is the one that is."""
    if wanted is not None:
        return wanted if wanted != info["port"] else None
    said = re.search(r"port (\d+) is already in use", log.read_text(errors="replace"))
    return int(said[1]) if said else None


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, which ends its kernels; insist when it does not."""
    if server.poll() is not None:
        return
    server.terminate()
    try:
        server.wait(STOP)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@contextmanager
def _signals_end_us() -> Iterator[None]:
    """SIGTERM and a closed terminal end this process as Ctrl-C does, and so the server."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
