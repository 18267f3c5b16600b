"""What a reader of profiler traces gives for one rank, and what becomes of it on the way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pplab.core.ops import WHOLE_STEP
from pplab.traces.named import Named


class Range(NamedTuple):
    """A named range; nanoseconds. `at`: where it stands among the steps (its CPU time, when start
    and end are those of the GPU)."""

    name: str
    start: int
    end: int
    at: int


@dataclass
class RankTrace:
    """What one process recorded.

    rank, world: of the whole job, where it says so; guessed: the rank is only what the file's
    name seems to say; pipeline: the ranks of its pipeline, where the file lists them; steps:
    (number, start, end); receipts: (posted, arrived) of messages whose arrival a range may wait
    for; sends: when messages were handed over for sending; meetings: (name, end) of collective
    operations of all ranks, in order; others: names of ranges that mean nothing here;
    about: what pplab noted in it.
    """

    label: str
    rank: int | None = None
    world: int | None = None
    guessed: bool = False
    pipeline: tuple[int, ...] = ()
    host: str = ""
    ranges: list[Range] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    receipts: list[tuple[int, int]] = field(default_factory=list)
    sends: list[int] = field(default_factory=list)
    meetings: list[tuple[str, int]] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    about: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One span on its way into the timeline; nanoseconds."""

    named: Named
    start: int
    end: int
    at: int
    step: int = 0
    micro_batch: int = WHOLE_STEP


def whole(row: Row, pieces: int) -> Row:
    """A row of a micro-batch that is cut into `pieces` sequences, as one of a micro-batch."""
    m = row.named.micro_batch
    if pieces == 1 or m is None or m == WHOLE_STEP:
        return row
    return replace(row, named=row.named._replace(micro_batch=m * pieces + row.named.part, part=0))


def rank_in_text(text: str) -> int | None:
    """The number of a rank in a name: trace-rank-3.json, rank_3.sqlite, worker3.json, Stage 2."""
    match = None
    for word in ("rank", "worker|gpu|stage"):  # node names hold gpu and worker, too
        match = match or re.search(rf"(?:{word})[-_. ]?(\d+)", text, re.IGNORECASE)
    return int(match[1]) if match else None


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts trace_10 after trace_2."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
