"""Processes of a test: found by a mark that they inherit in their environment, asked, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request

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
    return [_command(p) for p in left[besides:]] if len(left) > besides else []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return f"{process.pid}, which ended just now"


def answers(url: str) -> bool:
    """True when a server answers at this address."""
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def shut_down(process: subprocess.Popen[bytes], patience: float) -> None:
    """Ask a process that leads its own group to end; kill the group after `patience` seconds."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
