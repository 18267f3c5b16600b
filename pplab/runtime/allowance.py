"""How many ranks a learner may run at once, where several learners share a machine.

``PPLAB_MAX_RANKS=4`` (deploy/jupyterhub_config.py sets it) allows four at a time, in all notebooks
of a learner together. Each running rank holds the lock of one small file in
``~/.local/state/pplab/ranks``; the system lets go of it when the notebook's kernel ends, whatever
ends it, so nothing has to be cleaned up. It is an agreement, not a wall: who wants to can unset it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "PPLAB_MAX_RANKS"


class TooManyRanks(ValueError):
    """The run needs more ranks than this learner may have now."""


def allowed() -> int | None:
    """Ranks a learner may run at once; None for any number. ValueError for nonsense."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{VARIABLE} is a number of ranks, at least 1, not {text!r}")
    return int(text)


def check(ranks: int) -> None:
    """Raise TooManyRanks for a run that could never start here, whatever else runs."""
    most = allowed()
    if most is not None and ranks > most:
        raise TooManyRanks(
            f"this run needs {ranks} ranks, and each learner may run {most} at once here "
            f"({VARIABLE}={most}): take fewer stages or replicas, or ask whoever runs this server"
        )


@contextlib.contextmanager
def held(ranks: int) -> Iterator[None]:
    """Count `ranks` ranks as running inside the block; TooManyRanks when too few are left."""
    most = allowed()
    if most is None:
        yield
        return
    check(ranks)
    locks = _take(ranks, most)
    try:
        if len(locks) < ranks:
            raise TooManyRanks(
                f"this run needs {ranks} ranks; each learner may run {most} at once here "
                f"({VARIABLE}={most}), and {most - len(locks)} of yours are running in other "
                "notebooks: wait for them, or stop them there"
            )
        yield
    finally:
        for lock in locks:
            os.close(lock)


def _take(ranks: int, most: int) -> list[int]:
    folder = Path.home() / ".local" / "state" / "pplab" / "ranks"
    locks: list[int] = []
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in range(most):
        if len(locks) == ranks:
            break
        lock = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locks.append(lock)
        except OSError:
            os.close(lock)
    return locks
