"""The notebook's side of a run: keeps the process server warm, sends jobs, receives events.

Imports neither torch nor DeepSpeed. The server is started when it is first wanted (``warm()``),
not at import, and ends with this process, whatever ends it (or when it is long idle).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pplab.runtime import allowance, wire


class Server:
    """A process server and the directory, readable by its owner only, that holds its socket."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pplab-"))  # mode 0700
        self.log = self.directory / "server.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pplab.runtime.server", str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt of the notebook is not meant for it
            )
        self.owner = os.getpid()

    def alive(self) -> bool:
        """True while the server runs and belongs to this process (not to a fork of it)."""
        return self.owner == os.getpid() and self.process.poll() is None

    def connect(self, patience: float = 60.0) -> socket.socket:
        """A connection for one run; waits for a server that is still starting."""
        end = time.monotonic() + patience
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(str(self.directory / "socket"))
                return sock
            except OSError:
                sock.close()
                if not self.alive():
                    raise ServerError(self.last_words()) from None
                if time.monotonic() > end:
                    raise ServerError("the process server does not answer") from None
                time.sleep(0.01)

    def last_words(self) -> str:
        """Why the server ended, from the end of its log."""
        with contextlib.suppress(OSError):
            text = self.log.read_text(errors="replace").strip()
            if "No module named 'torch'" in text or "No module named 'deepspeed'" in text:
                return "torch or DeepSpeed is not installed here: run `make lab`, or install both"
            return "the process server ended: " + (text.splitlines() or ["(no message)"])[-1]
        return "the process server ended"

    def stop(self) -> None:
        """End the server and everything below it."""
        if self.owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(4)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ServerError(RuntimeError):
    """The process server could not be started."""


_server: Server | None = None
_lock = threading.Lock()


def warm() -> Server:
    """The process server of this notebook, started now if it is not running; does not wait."""
    global _server
    with _lock:
        if _server is None or not _server.alive():
            _server = Server()
            atexit.register(_server.stop)
        return _server


def cool() -> None:
    """End the process server; the next run starts a new one."""
    with _lock:
        if _server is not None:
            _server.stop()


def events(start: dict[str, Any], blobs: list[bytes]) -> Iterator[wire.Message]:
    """Run a job: yields its events until its last process has ended.

    Leaving early (an exception such as KeyboardInterrupt in the loop body) stops the run, and
    returns only when no process of it is left. Raises ``allowance.TooManyRanks`` where a learner's
    ranks are counted and too few are free.
    """
    job = start["job"]
    with allowance.held(job["stages"] * job["replicas"] * job.get("tensor", 1)):
        yield from _events(start, blobs)


def _connected() -> tuple[Server, socket.socket]:
    """A connection for one run. A server that ends for want of work just now is replaced."""
    server = warm()
    try:
        return server, server.connect()
    except ServerError:
        if server.process.poll() != 0:
            raise
    server = warm()
    return server, server.connect()


def _events(start: dict[str, Any], blobs: list[bytes]) -> Iterator[wire.Message]:
    server, connection = _connected()
    try:
        wire.send(connection, start, blobs)
        inbox = wire.Inbox()
        while data := connection.recv(1 << 20):
            yield from inbox.feed(data)
    except ConnectionError as error:
        raise ServerError(server.last_words()) from error
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)  # the supervisor takes this as "stop"
        connection.settimeout(5.0)
        with contextlib.suppress(OSError):
            while connection.recv(1 << 20):  # its end closes when everything has ended
                pass
        connection.close()
