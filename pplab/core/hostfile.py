"""The format of DeepSpeed's host file: a line a host, ``worker-0 slots=4``; ``#`` begins a comment.

As DeepSpeed 0.19.8 reads it (launcher/runner.py, ``_parse_hostfile``): what follows the slots is
not looked at, and a blank beside the ``=`` makes the launcher stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"(\S+)\s+slots=(\d+)")


class Host(NamedTuple):
    """A machine, by the name ssh knows it by, and the number of ranks it can take."""

    name: str
    slots: int


def host_lines(text: str) -> Iterator[tuple[int, str, Host | None]]:
    """(line number, line, host) of every line that is no comment; None where DeepSpeed stops."""
    for number, row in enumerate(text.splitlines(), 1):
        line = row.strip()
        if line and not line.startswith("#"):
            found = _LINE.match(line)
            yield number, line, Host(found[1], int(found[2])) if found else None
