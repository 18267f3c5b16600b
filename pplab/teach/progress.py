"""What a learner has done so far, kept in one small file that belongs to them alone.

    $PPLAB_PROGRESS, or ~/.local/state/pplab/progress
        NAME.json    the learner's items, readable by nobody else
        NAME.lock    held while the file is read and written again

NAME is $PPLAB_LEARNER, the user of a JupyterHub, or the user of the machine: two people who share
an account set the first. Several notebooks of one learner may write at once: every change reads
the file again under the lock, and replaces it in one step. A learner's work is never stopped by
this file: where it cannot be read or written, that is said once and the session goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FORMAT = 1
#: States from the least to the most; a later wrong answer does not undo a right one.
RANKED = ("not attempted", "blocked", "wrong", "right")


def learner() -> str:
    """The name that progress is kept under."""
    for variable in ("PPLAB_LEARNER", "JUPYTERHUB_USER"):
        if name := os.environ.get(variable, "").strip():
            return name
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        return f"user-{os.getuid()}"


def folder() -> Path:
    """Where progress files are."""
    default = Path.home() / ".local" / "state" / "pplab" / "progress"
    return Path(os.environ.get("PPLAB_PROGRESS") or default)


class Progress:
    """The progress of one learner; every method reads the file anew."""

    def __init__(self, name: str | None = None, directory: Path | None = None) -> None:
        self.name = learner() if name is None else name
        self.directory = folder() if directory is None else directory
        self._warned = False

    @property
    def path(self) -> Path:
        """The file; characters that a file name cannot hold are written as their code."""
        plain = re.sub(r"[^\w.@+-]|^\.", lambda m: f"%{ord(m[0]):02X}", self.name)
        return self.directory / f"{plain}.json"

    def items(self) -> dict[str, dict[str, Any]]:
        """Everything kept, by key ("lab 1.q2", "quiz 01.3", "predict 01.alone"); {} for nothing."""
        try:
            return self._read()
        except OSError as error:
            self._warn(error)
            return {}

    def get(self, key: str) -> dict[str, Any]:
        """One item; {} when there is none."""
        return self.items().get(key, {})

    def answered(
        self, key: str, state: str, *, answer: Any = None, misconception: str = ""
    ) -> None:
        """Note one more try and its outcome."""

        def note(item: dict[str, Any]) -> None:
            item["tries"] = item.get("tries", 0) + 1
            best = max(RANKED.index(state), RANKED.index(item.get("state", "not attempted")))
            item["state"] = RANKED[best]
            if answer is not None:
                item["answer"] = answer
            if misconception:
                met = item.setdefault("misconceptions", {})
                met[misconception] = met.get(misconception, 0) + 1

        if state != "not attempted":
            self.change(key, note)

    def note(self, key: str, **fields: Any) -> None:
        """Set some fields of an item."""
        self.change(key, lambda item: item.update(fields))

    def change(self, key: str, edit: Callable[[dict[str, Any]], Any]) -> None:
        """Let `edit` change one item in place; the file is locked meanwhile."""
        try:
            with self._locked():
                items = self._read()
                item = items.setdefault(key, {"first": _now()})
                edit(item)
                item["last"] = _now()
                self._write(items)
        except OSError as error:
            self._warn(error)

    # -- the file -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise ValueError(f"it has format {data['format']}")
            return dict(data["items"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            aside = self.path.with_suffix(f".unreadable-{time.time_ns()}")
            with contextlib.suppress(FileNotFoundError):
                self.path.rename(aside)  # nothing of a learner's is thrown away
            warnings.warn(
                f"the progress file could not be read ({error}); it is kept as {aside.name}, and "
                "counting starts anew",
                stacklevel=4,
            )
            return {}

    def _write(self, items: dict[str, Any]) -> None:
        data = {"format": FORMAT, "learner": self.name, "items": items}
        new = self.path.with_suffix(f".new-{os.getpid()}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(data, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            text = f"progress is not kept: {error} ($PPLAB_PROGRESS names another folder)"
            warnings.warn(text, stacklevel=4)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")
