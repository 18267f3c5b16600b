"""What runs have left behind: process servers whose notebook is gone, and their folders.

A process server ends when its notebook does, in whatever way: its standard input is a pipe that
the notebook holds open. It can stay where something else inherited that pipe, such as a process
that the notebook forked and that outlived it. ``pplab cool --left`` finds and ends those; as root,
those of every user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MODULE = "pplab.runtime.server"


@dataclass
class Left:
    """What was found, and what could not be ended or removed."""

    servers: list[int] = field(default_factory=list)  # process ids
    processes: int = 0  # with everything below the servers
    folders: list[Path] = field(default_factory=list)
    stayed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not (self.servers or self.folders or self.stayed):
            return "nothing is left of any run"
        lines = []
        if self.servers:
            ids = ", ".join(map(str, self.servers))
            s, es = ("s", "es") if len(self.servers) > 1 else ("", "")
            lines.append(
                f"ended {len(self.servers)} process server{s} without a notebook ({ids}), "
                f"{self.processes} process{'es' if self.processes != 1 else es} in all"
            )
        if self.folders:
            lines.append(f"removed {len(self.folders)} folders of servers that had ended")
        return "\n".join(lines + self.stayed)


def orphans() -> list[psutil.Process]:
    """Process servers that this user may end and whose notebook is gone."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            command = process.cmdline()
            mine = os.geteuid() == 0 or process.uids().effective == os.geteuid()
            if mine and MODULE in command and "-m" in command and not _started_by_parent(process):
                found.append(process)
    return found


def _started_by_parent(server: psutil.Process) -> bool:
    """True while the parent of a server is the notebook that started it: it holds the pipe."""
    parent = server.parent()
    if parent is None:
        return False
    try:
        pipe = os.readlink(f"/proc/{server.pid}/fd/0")
        files = list(Path(f"/proc/{parent.pid}/fd").iterdir())
    except PermissionError:  # somebody else's: not ours to judge
        return True
    except OSError:  # not Linux: an orphan's parent is process 1
        return parent.pid != 1
    for file in files:
        with contextlib.suppress(OSError):
            if os.readlink(file) == pipe:
                return True
    return False


def clean() -> Left:
    """End left process servers with everything below them, and remove folders of ended ones."""
    left = Left()
    for server in orphans():
        below = []
        with contextlib.suppress(psutil.Error):
            below = server.children(recursive=True)
        for process in (server, *below):
            with contextlib.suppress(psutil.Error):
                process.kill()
        _, alive = psutil.wait_procs([server, *below], timeout=5)
        left.servers.append(server.pid)
        left.processes += 1 + len(below) - len(alive)
        left.stayed += [f"process {p.pid} could not be ended" for p in alive]
    for folder in Path(tempfile.gettempdir()).glob("pplab-*"):
        with contextlib.suppress(OSError):
            if _is_dead(folder):
                shutil.rmtree(folder)
                left.folders.append(folder)
    return left


def _is_dead(folder: Path) -> bool:
    """A server's folder, of this user, whose socket nobody listens on any more."""
    about = folder.lstat()
    mine = os.geteuid() == 0 or about.st_uid == os.geteuid()
    if not mine or not folder.is_dir() or folder.is_symlink():
        return False
    door = folder / "socket"
    if not (folder / "server.log").exists() or not door.is_socket():
        return False  # none of a server's, or of one that is just starting
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(2)
        try:
            knock.connect(str(door))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
