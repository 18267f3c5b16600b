"""What every reader of a trace format is given, and what it gives back."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pplab.core.timeline import Timeline
from pplab.core.words import duration
from pplab.traces.files import GZIP, TraceError

#: Bytes of a file (uncompressed) by which its format is recognised.
HEAD = 1 << 16


class TraceWarning(UserWarning):
    """Something about a trace that was read: a rank is missing, the file is cut short, ..."""


@dataclass(frozen=True)
class Sample:
    """The beginning of a file: what a format is recognised by."""

    path: Path
    head: bytes  # first HEAD bytes, uncompressed
    size: int  # bytes on disk
    gzipped: bool

    @classmethod
    def of(cls, path: Path) -> Sample:
        """Raises OSError when the file cannot be read, TraceError when it is empty or no gzip."""
        with path.open("rb") as file:
            head = file.read(HEAD)
        size, gzipped = path.stat().st_size, head.startswith(GZIP)
        if gzipped:
            try:
                head = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, HEAD)
            except zlib.error as error:
                raise TraceError(f"{path} is a damaged gzip file: {error}") from None
        if not head.strip():
            raise TraceError(
                f"{path} is cut short: its gzip data ends too early"
                if size and gzipped
                else f"{path} is empty"
            )
        return cls(path, head, size, gzipped)

    @property
    def text(self) -> str:
        """The head as text, undecodable bytes replaced, byte order mark and blanks left out."""
        return self.head.decode("utf-8-sig", errors="replace").lstrip()

    def start(self) -> bytes:
        """The first bytes of the file's content, for signatures."""
        return self.head[:64]

    def open(self) -> Any:
        """The content as a binary stream."""
        return gzip.open(self.path) if self.gzipped else self.path.open("rb")


#: What ``names`` may be: regular expression -> letter of the operation, or one expression with
#: named groups.
Names = Mapping[str, str] | str


@dataclass(frozen=True)
class Options:
    """How to read; see ``load``."""

    names: Names | None = None
    stages: int | None = None
    align: bool | str = "auto"
    progress: bool | None = None


@dataclass(frozen=True)
class Imported:
    """A trace that was read.

    timeline: its spans (seconds, the first one starts at 0); format: in words; files: what was
    read; notes: everything its reader should know, a sentence each; missing: pipeline ranks (of
    the timeline) of which no file was there: they are empty rows; residual: seconds by which the
    clocks of two ranks may still differ, None when nothing is known about it; details: what else
    a reader found (free for each format).
    """

    timeline: Timeline
    format: str
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    residual: float | None = None
    details: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def present(self) -> list[int]:
        """Pipeline ranks of which something was recorded."""
        return [r for r in range(self.timeline.stages) if r not in self.missing]

    @property
    def bubble(self) -> float:
        """Idle / total of the typical step over the ranks that are there; 0 when empty."""
        measures = self.timeline.typical.measures
        total = measures.step_time * len(self.present)
        return float(measures.idle[self.present].sum()) / total if total else 0.0

    def __str__(self) -> str:
        """A summary in two or three sentences."""
        timeline = self.timeline
        head = f"{self.format}, {_many(len(self.files), 'file')}: "
        if not len(timeline):
            return head + "no operation of a pipeline"
        steps, typical = timeline.steps, timeline.typical
        idle = typical.measures.idle[self.present]
        ranks = _many(len(self.present), "rank")
        if self.missing:
            ranks += f" of {timeline.stages}"
        if len(timeline.replicas) > 1:
            ranks = f"{len(timeline.replicas)} replicas of {ranks}"
        each = ", ".join(
            f"{rank}: {share:.0%}"
            for rank, share in zip(self.present, idle / max(typical.step_time, 1e-300), strict=True)
        )
        name = f" ({timeline.schedule})" if timeline.schedule else ""
        return (
            f"{head}{ranks}, {_many(len(steps), 'step')} of "
            f"{_many(timeline.micro_batches, 'micro-batch', 'es')}{name}; typical step "
            f"{duration(typical.step_time, timeline.unit)}, {self.bubble:.1%} idle "
            f"(rank {each})"
        )


def _many(count: int, word: str, ending: str = "s") -> str:
    return f"{count} {word}{ending * (count != 1)}"


#: What a format's module has: FORMAT (its name in words), recognises, read_files.
Recognises = Callable[[Sample], bool]
Reader = Callable[[list[Path], Options], Imported]
