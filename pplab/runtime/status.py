"""What each rank is doing right now, readable even when it hangs.

Every rank owns a slot in memory that it shares with its supervisor. Writing it costs a microsecond
and needs no answer from anybody, so the supervisor can say "rank 1 waits for F3 of rank 0" about a
rank that is stuck inside a C call.
"""

from __future__ import annotations

import mmap
import struct
import time
from typing import NamedTuple

SLOT = 160
_HEAD = struct.Struct("=QdB")  # changes so far, when (monotonic seconds), length of the text


class State(NamedTuple):
    """A rank's slot: how often it changed, when last (monotonic seconds), and what it says."""

    changes: int
    since: float
    text: str


class Board:
    """Slots of all ranks; made before they are forked, or mapped from a file by them."""

    def __init__(self, ranks: int, memory: mmap.mmap | None = None) -> None:
        self.ranks = ranks
        self.memory = memory or mmap.mmap(-1, ranks * SLOT)

    def slot(self, rank: int) -> Slot:
        """The slot a rank writes."""
        return Slot(self.memory, rank * SLOT)

    def read(self, rank: int) -> State:
        """What a rank last said."""
        at = rank * SLOT
        changes, since, length = _HEAD.unpack_from(self.memory, at)
        text = self.memory[at + _HEAD.size : at + _HEAD.size + length]
        return State(changes, since, text.decode(errors="replace"))

    def take(self, rank: int, slots: bytes) -> None:
        """Copy what a rank on another machine wrote into its own slot: the last of whole ones.

        A piece of one is left out, the next one brings what it said. The moment is that of arrival.
        """
        whole = len(slots) // SLOT * SLOT
        if whole and len(slots) == whole:
            at = rank * SLOT
            self.memory[at : at + SLOT] = slots[-SLOT:]
            changes, _, length = _HEAD.unpack_from(self.memory, at)
            _HEAD.pack_into(self.memory, at, changes, time.monotonic(), length)


class Slot:
    """One rank's place on the board."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at, self._changes = memory, at, 0

    def say(self, text: str) -> None:
        """What the rank does from now on, at most 140 characters of it."""
        self.put(encoded(text))

    def put(self, data: bytes) -> None:
        """The same, for a text that is said again and again and was ``encoded`` once."""
        self._changes += 1
        start = self._at + _HEAD.size
        self._memory[start : start + len(data)] = data
        _HEAD.pack_into(self._memory, self._at, self._changes, time.monotonic(), len(data))


def encoded(text: str) -> bytes:
    """A text as it lies in a slot, cut to what fits."""
    return text.encode()[: SLOT - _HEAD.size]
