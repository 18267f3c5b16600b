"""Processes of a test, found by a mark that they inherit in their environment."""

from __future__ import annotations

import time

import psutil

MARK = "PPLAB_TEST_MARK"


def marked(mark: str) -> list[psutil.Process]:
    """Running processes that inherited a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            inherited = process.environ().get(MARK) == mark
            if inherited and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def none_left(mark: str, besides: int = 0, patience: float = 3.0) -> list[str]:
    """Command lines of marked processes beyond `besides` that are still there after `patience`."""
    end = time.monotonic() + patience
    while len(left := marked(mark)) > besides and time.monotonic() < end:
        time.sleep(0.05)
    return [" ".join(p.cmdline()) for p in left[besides:]] if len(left) > besides else []
