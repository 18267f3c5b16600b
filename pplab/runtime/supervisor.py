"""The process between the notebook and the ranks of one run.

It starts the ranks, passes their events on, keeps their logs, notices when one fails, dies or
hangs, finds out which of them did so first, ends them all, and ends. When the notebook goes away,
in whatever way, its connection closes and the same happens.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pplab.runtime import wire
from pplab.runtime.launch import launcher_for, ranks_of
from pplab.runtime.logs import Log
from pplab.runtime.processes import adopt_orphans, die_with_parent, kill_descendants, reap

GRACE = 0.4  # seconds to let other ranks report, once one has failed: the first report may be a
#              neighbour's "connection closed", which is a consequence


@dataclass
class Rank:
    """What the supervisor knows of one rank."""

    number: int
    connection: socket.socket | None = None
    inbox: wire.Inbox = field(default_factory=wire.Inbox)
    pid: int = 0
    host: str = ""  # its machine, when there are several
    exit_code: int | None = None
    finished: bool = False  # its results have arrived
    gone: bool = False  # its connection has closed
    error: dict[str, Any] | None = None
    last_words: str = ""


class Supervisor:
    """One run, from the first message of the notebook to the end of its last process."""

    def __init__(self, client: socket.socket, about: dict[str, Any], scratch: Path) -> None:
        self.client, self.about = client, about
        self.scratch = scratch
        self.select = selectors.DefaultSelector()
        self.ranks: list[Rank] = []
        self.logs: dict[str, Log] = {}
        self.cancelled = False
        self.failed_at: float | None = None
        self.hung = False

    def serve(self) -> None:
        """Run the job the notebook sends; returns when no process of it is left."""
        adopt_orphans()
        message = wire.receive(self.client)
        if message is None:
            return
        start, blobs = message
        job = start["job"]
        try:
            self.launch = launcher_for(start, self.about, self.scratch)
            place = self.launch.place
            self.tell({"event": "placed", **place, "hardware": self.about})
            self.board = self.launch.board
            self.ranks = [Rank(number) for number in range(ranks_of(job))]
            self.directory = Path(start["records"]) if start["records"] else None
            self._start_ranks(start, blobs)
            self._watch(job["hang_after"])
        except OSError as error:
            self.tell(
                {"event": "failed", "kind": "start", "text": f"the run could not start: {error}"}
            )
        finally:
            left = kill_descendants()
            for log in self.logs.values():
                log.close()
            if left:
                self.tell({"event": "left", "pids": left})

    # -- starting ---------------------------------------------------------------------------------

    def _start_ranks(self, start: dict[str, Any], blobs: list[bytes]) -> None:
        self.select.register(self.client, selectors.EVENT_READ, ("client", None))
        order = {k: start.get(k) for k in ("job", "task", "cells", "path", "directory")}
        self.order = wire.pack({**order, "place": self.launch.place}, blobs)
        for name, source in self.launch.start(len(self.ranks)):
            if isinstance(source, socket.socket) and name == "listen":
                self.select.register(source, selectors.EVENT_READ, ("listen", None))
            elif isinstance(source, int):
                self._follow_log(name, source)
        for number, connection, pid in self.launch.forked:
            self._connect(self.ranks[number], connection, pid)

    def _connect(self, rank: Rank, connection: socket.socket, pid: int) -> None:
        rank.connection, rank.pid = connection, pid
        self.select.register(connection, selectors.EVENT_READ, ("rank", rank))
        with contextlib.suppress(OSError):
            connection.sendall(self.order)

    def _follow_log(self, name: str, output: int) -> None:
        os.set_blocking(output, False)
        path = self.directory / f"{name}.log" if self.directory else None
        self.logs[name] = Log(path)
        self.select.register(output, selectors.EVENT_READ, ("log", name))

    def _greet(self, listener: socket.socket) -> None:
        """A rank started by the `deepspeed` command introduces itself and hands over its output."""
        connection, _ = listener.accept()
        if connection.family == socket.AF_INET:
            return self._greet_remote(connection)
        message = wire.receive(connection)
        if message is None:
            return
        _, files, _, _ = socket.recv_fds(connection, 1, 1)
        rank = self.ranks[message[0]["rank"]]
        self._follow_log(f"rank-{rank.number}", files[0])
        self._connect(rank, connection, message[0]["pid"])

    def _greet_remote(self, connection: socket.socket) -> None:
        """A rank on another machine opens one of its three connections; strangers are turned away.

        What the status says is when it arrives: the other machine's clock is its own.
        """
        connection.settimeout(2.0)
        try:
            message = wire.receive(connection)
        except (OSError, ValueError):
            message = None
        token = message[0].get("token", "") if message else ""
        if message is None or not hmac.compare_digest(token, self.launch.token):
            connection.close()
            return
        connection.settimeout(None)
        event = message[0]
        rank = self.ranks[event["rank"]]
        if event["channel"] == "output":
            self._follow_log(f"rank-{rank.number}", connection.detach())
        elif event["channel"] == "status":
            self.select.register(connection, selectors.EVENT_READ, ("status", rank))
        else:
            hosts = self.launch.place["hosts"]
            rank.host = hosts[rank.number] if hosts else event["host"]
            for text in self._differences(event["versions"]):
                self.tell({"event": "warning", "text": f"{rank.host} has {text}"})
            self._connect(rank, connection, 0)

    def _differences(self, versions: dict[str, str]) -> list[str]:
        here = self.about["versions"]
        return [
            f"{name} {version}, this machine {here[name]}"
            for name, version in versions.items()
            if here.get(name, version) != version
        ]

    def _hear_status(self, connection: socket.socket, rank: Rank) -> None:
        try:
            data = connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.select.unregister(connection)
        self.board.take(rank.number, data)

    # -- watching ---------------------------------------------------------------------------------

    def _watch(self, hang_after: float) -> None:
        changes, since = -1, time.monotonic()
        while True:
            for key, _ in self.select.select(timeout=0.1):
                kind, who = key.data
                if kind == "client":
                    self._hear_client()
                elif kind == "listen":
                    self._greet(key.fileobj)  # type: ignore[arg-type]
                elif kind == "log":
                    self._read_log(key.fd, who)
                elif kind == "status":
                    self._hear_status(key.fileobj, who)  # type: ignore[arg-type]
                else:
                    self._hear_rank(who)
            self._collect_exits()
            if self.cancelled:
                return
            if all(rank.finished and rank.gone for rank in self.ranks):
                if self.launch.writing():
                    continue
                self._drain_logs()
                self.tell({"event": "done", **self._log_report()})
                return
            now = time.monotonic()
            if self.failed_at is not None and now > self.failed_at + GRACE:
                return self._explain()
            total = sum(self.board.read(rank.number).changes for rank in self.ranks)
            if total != changes:
                changes, since = total, now
            elif now > since + hang_after and self.failed_at is None:
                self._take_stacks()
                self.hung, self.failed_at = True, now

    def _hear_client(self) -> None:
        try:
            if not self.client.recv(1 << 16):
                self.cancelled = True
        except OSError:
            self.cancelled = True

    def _hear_rank(self, rank: Rank) -> None:
        assert rank.connection is not None
        try:
            data = rank.connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            rank.gone = True
            rank.last_words = rank.last_words or self.board.read(rank.number).text
            self.select.unregister(rank.connection)
            if not rank.finished:
                self._fail()
            return
        for event, blobs in rank.inbox.feed(data):
            if event["event"] == "store":
                others = [r for r in self.ranks if r is not rank and r.connection]
                for other in others:
                    with contextlib.suppress(OSError):
                        wire.send(other.connection, event)  # type: ignore[arg-type]
            elif event["event"] == "error":
                rank.error = event
                rank.last_words = self.board.read(rank.number).text
                self._fail()
            else:
                rank.finished = rank.finished or event["event"] == "result"
                self.tell({**event, "rank": rank.number, "host": rank.host}, blobs)

    def _collect_exits(self) -> None:
        for pid, code in reap().items():
            for rank in self.ranks:
                if rank.pid == pid:
                    rank.exit_code = code
            if pid == self.launch.pid:
                self.launch.exit_code = code
                if not all(rank.finished for rank in self.ranks):
                    self._fail()

    def _fail(self) -> None:
        if self.failed_at is None:
            self.failed_at = time.monotonic()

    # -- the end ----------------------------------------------------------------------------------

    def _explain(self) -> None:
        """Tell the notebook what every rank was doing and how it ended; it finds the cause."""
        states = [self.board.read(rank.number) for rank in self.ranks]
        now = time.monotonic()
        alive = [not rank.gone and rank.exit_code is None for rank in self.ranks]
        kill_descendants()
        for pid, code in reap().items():
            for rank in self.ranks:
                if rank.pid == pid and rank.exit_code is None:
                    rank.exit_code = code
        self._drain_logs()
        ranks = []
        for rank, state, was_alive in zip(self.ranks, states, alive, strict=True):
            ranks.append(
                {
                    "rank": rank.number,
                    "host": rank.host,
                    "was": "alive" if was_alive else "ended",
                    "doing": rank.last_words or state.text,
                    "for": now - state.since if state.changes else None,
                    "error": rank.error,
                    "exit_code": rank.exit_code,
                    "finished": rank.finished,
                }
            )
        self.tell(
            {
                "event": "failed",
                "kind": "hang" if self.hung else "rank",
                "ranks": ranks,
                "launcher_exit": self.launch.exit_code,
                **self._log_report(),
            }
        )

    def _take_stacks(self) -> None:
        """Ask every rank to write its Python stack into its log."""
        for rank in self.ranks:
            if rank.pid and not rank.gone:
                with contextlib.suppress(OSError):
                    os.kill(rank.pid, signal.SIGUSR1)

    def _read_log(self, fd: int, name: str) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.logs[name].write(data)
        else:
            self.select.unregister(fd)
            os.close(fd)

    def _drain_logs(self) -> None:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            logs = [k for k in self.select.get_map().values() if k.data[0] == "log"]
            ready = [k for k, _ in self.select.select(timeout=0) if k.data[0] == "log"]
            if not logs or not ready:
                return
            for key in ready:
                self._read_log(key.fd, key.data[1])

    def _log_report(self) -> dict[str, Any]:
        return {
            "logs": {name: log.tail.decode(errors="replace") for name, log in self.logs.items()},
            "log_error": next((log.error for log in self.logs.values() if log.error), None),
        }

    def tell(self, event: dict[str, Any], blobs: list[bytes] | None = None) -> None:
        """Send the notebook an event; it may be gone."""
        with contextlib.suppress(OSError):
            wire.send(self.client, event, blobs or [])


def supervise(client: socket.socket, about: dict[str, Any], scratch: Path) -> None:
    """The life of a supervisor that the server has just forked."""
    die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: (kill_descendants(), os._exit(1)))
    Supervisor(client, about, scratch).serve()
