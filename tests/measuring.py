"""Checks of measured values, on machines that others use too.

A learner whose machine was busy with something else runs the cells again; so do the tests. A claim
that is false stays false however often it is measured, and every repetition is a warning in
pytest's summary: it can be seen when a claim begins to hold only now and then. Where a check keeps
failing while somebody else is seen to take a good part of the processors' time, nothing can be
measured: it is skipped, and says so.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

#: How often a check may be tried, the first time included.
TIMES = 3
#: Seconds to let a disturbance pass before the second try, and before the third.
PAUSES = (2.0, 15.0)
#: Share of the processors' time that others must take, after each try, for a check to be given up.
TOO_MUCH = 0.10
#: Reads the clock for half a second; prints which share of it went by in gaps of over 0.5 ms.
CLOCK = """
from time import perf_counter
last = begin = perf_counter()
gone = 0.0
while last < begin + 0.5:
    now = perf_counter()
    if now - last > 0.5e-3:
        gone += now - last
    last = now
print(gone / (last - begin))
"""


class MeasuredAgain(pytest.PytestWarning):
    """What failed before it was measured again."""

    def __init__(self, failure: str) -> None:
        super().__init__(f"measured again, because the first time: {last_line(failure)}")


class Tries:
    """The tries of one check. `warn` is told of each that failed and is followed by another."""

    def __init__(self, warn: Callable[[Warning], Any] = warnings.warn) -> None:
        self.warn = warn
        self.taken: list[float] = []

    def failed(self, failure: str) -> bool:
        """Note a failed try; True, after a pause, when there is to be another.

        Skips the test when it was the last one and the machine was never free.
        """
        self.taken.append(taken())
        if len(self.taken) < TIMES:
            self.warn(MeasuredAgain(failure))
            time.sleep(PAUSES[len(self.taken) - 1])
            return True
        if min(self.taken) > TOO_MUCH:
            shares = ", ".join(f"{share:.0%}" for share in self.taken)
            pytest.skip(
                f"cannot be measured here and now: after the tries, others took {shares} of the "
                f"processors' time. What failed: {last_line(failure)}"
            )
        return False


def measured(test: Callable[..., None]) -> Callable[..., None]:
    """A test that compares measured times: what it asserts is tried again when it fails.

    It must make its runs itself: what a fixture has made is the same at every try.
    """

    @functools.wraps(test)
    def tried(*args: Any, **settings: Any) -> None:
        tries = Tries()
        while True:
            try:
                return test(*args, **settings)
            except AssertionError as failure:
                if not tries.failed(str(failure) or repr(failure)):
                    raise

    return tried


def taken(processes: int = 2) -> float:
    """Share of the processors' time that others take: programs of this machine, or its host.

    As many processes read the clock without a pause; what is missing between two readings was not
    theirs. 0 to 1, the worst of them.
    """
    command = [sys.executable, "-S", "-c", CLOCK]
    readers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return max(float(reader.communicate()[0]) for reader in readers)


def last_line(text: str) -> str:
    """The end of a traceback, without colours."""
    return (re.sub(r"\x1b\[[0-9;]*m", "", text).strip().splitlines() or ["no message"])[-1]
