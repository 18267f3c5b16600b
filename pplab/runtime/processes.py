"""Processes that never outlive their run.

Three safeguards, each for a case the others miss: a rank dies with its supervisor (Linux), the
supervisor adopts orphans (Linux) so that it finds every descendant, and what is found is killed.
On other systems the first two do nothing and the third, with psutil, still works.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_parent(signal_number: int) -> None:
    """Ask Linux to send this process a signal when its parent ends."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != parent:  # it ended in between
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants() -> list[psutil.Process]:
    """Every process below this one."""
    return psutil.Process().children(recursive=True)


def kill_descendants(patience: float = 2.5) -> list[int]:
    """Kill every process below this one and wait for them; returns the ids still alive.

    A zombie is waited for too: it may be one in name only, whose threads are still ending.
    """
    end = time.monotonic() + patience
    while True:
        found = descendants()
        alive = [p for p in found if _running(p)]
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        reap()
        if not found or time.monotonic() > end:
            return [p.pid for p in alive]
        time.sleep(0.01)


def reap() -> dict[int, int]:
    """Collect the children that have ended: process id -> exit code (negative: signal)."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
