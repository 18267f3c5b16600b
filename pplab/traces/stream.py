"""Chrome JSON read piece by piece: one event at a time, whatever the size of the file.

A profiler trace of a minute is gigabytes of JSON, of which a pipeline needs a few thousand events.
So the file is read in blocks, the C scanner of ``json`` takes one event after the other, and what
nobody keeps is gone again. A file that ends in the middle gives all events before that point, and
an event that is no valid JSON is skipped and counted.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pplab.traces.files import GZIP, TraceError

BLOCK = 1 << 20  # bytes read at a time
PACKED = 1 << 14  # bytes of gzip data unpacked at a time: what comes out is twenty times as much
#: Characters that have to follow an error before it counts as one: nearer to the end of what was
#: read it may be only that the rest is not there yet.
MARGIN = 1 << 16
#: Bytes on disk from which on reading takes a second or more: a bar is shown.
SLOW = 30 << 20
_BLANK = re.compile(r"[ \t\n\r]*")
_GAP = re.compile(r"[ \t\n\r,]*")
#: Where to go on after an event that is no JSON: the next one that opens as events do.
_NEXT = re.compile(r'\{\s*"(?:ph|name|cat|ts|pid)"\s*:')
_scan: Any = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]


@dataclass
class EventStream:
    """The events of one file; iterate once, then look at the rest.

    header: everything of the top-level object besides the events; events: how many there were;
    damaged: how many could not be read; cut: the file ended before its JSON did; read: bytes of
    the file that were read.
    """

    path: Path
    progress: bool | None = None
    header: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    damaged: int = 0
    cut: bool = False
    why: str = ""
    read: int = 0
    is_list: bool = False
    has_events: bool = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every event; raises TraceError when the file is not JSON, OSError as ``open`` does."""
        with self.path.open("rb") as file, _bar(self.path, self.progress) as bar:
            self._text = _Text(self._blocks(file, bar))
            yield from self._top()
            self.read = file.tell()

    def _blocks(self, file: IO[bytes], bar: Any) -> Iterator[str]:
        """The text, uncompressed, in pieces; a cut or damaged gzip file ends early."""
        data = file.read(max(2, BLOCK))
        unpack: Any = _member() if data.startswith(GZIP) else None
        decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        while data:
            bar.update(len(data))
            if unpack is None:
                yield decode(data)
            for at in range(0, len(data) if unpack else 0, PACKED):
                piece = data[at : at + PACKED]
                try:
                    while piece:
                        yield decode(unpack.decompress(piece))
                        piece = unpack.unused_data  # the next of several gzip files in a row
                        unpack = _member() if unpack.eof and piece.startswith(GZIP) else unpack
                        if unpack.eof:
                            break
                except zlib.error as error:
                    self.cut, self.why = True, f"its gzip data is damaged ({error})"
                    return
            data = file.read(BLOCK)
        if unpack is not None and not unpack.eof:
            self.cut, self.why = True, "its gzip data ends too early"

    def _top(self) -> Iterator[dict[str, Any]]:
        text = self._text
        text.skip(_BLANK)
        if text.at_end:
            raise TraceError(
                f"{self.path} is cut short: {self.why}" if self.cut else f"{self.path} is empty"
            )
        opening = text.peek()
        if opening == "[":
            self.is_list = self.has_events = True
            text.at += 1
            yield from self._array()
            return
        if opening != "{":
            raise TraceError(f"{self.path} is not a JSON trace: it begins with {opening!r}")
        text.at += 1
        while True:
            text.skip(_GAP)
            if text.at_end:
                self._ends_early("before its last bracket")
                return
            if text.peek() == "}":
                return
            key = self._value()
            text.skip(_BLANK)
            if key is _Text or text.at_end:
                self._ends_early("between its parts")
                return
            if not isinstance(key, str) or text.peek() != ":":
                raise TraceError(f"{self.path} is not JSON near {text.here()!r}")
            text.at += 1
            text.skip(_BLANK)
            if key == "traceEvents" and not text.at_end and text.peek() == "[":
                self.has_events = True
                text.at += 1
                yield from self._array()
                if self.cut:
                    return
                continue
            value = self._value()
            if value is _Text:
                self._ends_early(f"in {key}")
                return
            self.header[key] = value

    def _value(self) -> Any:
        """The next JSON value, or the class _Text when the file ends in it."""
        value = self._text.value()
        if value is _BAD:
            raise TraceError(f"{self.path} is not JSON near {self._text.here()!r}")
        return value

    def _array(self) -> Iterator[dict[str, Any]]:
        text = self._text
        while True:
            text.skip(_GAP)
            if text.at_end:
                # Chrome's own list format may leave out the last bracket
                if not self.is_list or self.cut:
                    self._ends_early("between two events")
                return
            if text.peek() == "]":
                text.at += 1
                return
            value = text.value()
            if value is _Text:
                self._ends_early("in the middle of an event")
                return
            if value is _BAD:
                self.damaged += 1
                if not text.resume(_NEXT):
                    self._ends_early("after an event that cannot be read")
                    return
                continue
            if isinstance(value, dict):
                self.events += 1
                yield value

    def _ends_early(self, where: str) -> None:
        self.cut = True
        self.why = self.why or f"its JSON ends {where}"

    def sentence(self) -> str:
        """What is wrong with the file, or "" when it was read to its end."""
        parts = []
        if self.cut:
            parts.append(
                f"{self.path.name} is cut short: {self.why}, after {self.events:,} whole events "
                f"({self.read / 1e6:,.1f} MB); what follows them is missing"
            )
        if self.damaged:
            parts.append(
                f"{self.path.name}: {self.damaged:,} events are no valid JSON and were skipped"
            )
        return "; ".join(parts)


#: A value that is no JSON although all of it is there.
_BAD = object()


class _Text:
    """A window on a long text that grows at its end and is cut off at its beginning."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self.blocks, self.buffer, self.at, self.ended = blocks, "", 0, False
        self.more()

    def more(self) -> bool:
        """Take in the next block; False at the end of the text."""
        block = next(self.blocks, None)
        while block == "":
            block = next(self.blocks, None)
        if block is None:
            self.ended = True
            return False
        self.buffer, self.at = self.buffer[self.at :] + block, 0
        return True

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.buffer) and self.ended

    def skip(self, blanks: re.Pattern[str]) -> None:
        """Move past what matches, to a character that does not (or the end)."""
        while True:
            match = blanks.match(self.buffer, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.buffer) or not self.more():
                return

    def peek(self) -> str:
        return self.buffer[self.at]

    def here(self) -> str:
        return self.buffer[self.at : self.at + 30]

    def value(self) -> Any:
        """The JSON value here; the class _Text when the text ends in it, _BAD when it is none."""
        failed_at, blocks = -1, 1
        while True:
            try:
                value, end = _scan(self.buffer, self.at)
                # a number may go on in the next block
                rest = self.buffer[end : end + 1]
                whole = self.ended if not rest else rest not in ".eE"
                if whole or not isinstance(value, int | float):
                    self.at = end
                    return value
            except StopIteration as stop:
                position, open_string = int(stop.value), False
            except json.JSONDecodeError as error:
                position = error.pos
                open_string = error.msg.startswith("Unterminated string")
            except RecursionError:
                return _BAD
            else:
                position, open_string = len(self.buffer), True
            left = len(self.buffer) - position
            if self.ended:
                # What ends in a number, an escape or a word is reported where that begins.
                return _Text if open_string or left <= 6 else _BAD
            same = failed_at == position - self.at and not open_string
            if same and left > MARGIN:
                return _BAD
            failed_at = position - self.at
            for _ in range(blocks):  # more each time: a long value is scanned few times
                self.more()
            blocks *= 2

    def resume(self, beginning: re.Pattern[str]) -> bool:
        """Move to the next match of `beginning` after this place; False when there is none."""
        while True:
            match = beginning.search(self.buffer, self.at + 1)
            if match:
                self.at = match.start()
                return True
            self.at = max(self.at, len(self.buffer) - 64)
            if not self.more():
                return False


def _member() -> Any:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _bar(path: Path, wanted: bool | None) -> Any:
    from tqdm.auto import tqdm

    size = path.stat().st_size
    shown = size > SLOW if wanted is None else wanted
    return tqdm(
        total=size, unit="B", unit_scale=True, desc=path.name, disable=not shown, leave=False
    )
