"""Trace files on disk: JSON text, plain or gzipped, and what to say when one cannot be read."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

GZIP = b"\x1f\x8b"


class TraceError(ValueError):
    """A trace cannot be read or written; the message is a sentence that says why."""


def read_json(path: str | Path) -> Any:
    """The JSON value in a file, gzipped or not (its first bytes tell, not its name).

    Raises TraceError when the file is empty, cut short or not JSON, and OSError as ``open`` does.
    """
    data = Path(path).read_bytes()
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise TraceError(f"{path} is cut short: its gzip data ends too early") from None
        except (OSError, zlib.error) as error:
            raise TraceError(f"{path} is a damaged gzip file: {error}") from None
    if not data.strip():
        raise TraceError(f"{path} is empty")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TraceError(f"{path} is not a text file, so it is not a JSON trace") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise TraceError(f"{path} is not a trace: its JSON is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and _ends_early(text, error):
            raise TraceError(
                f"{path} is cut short: its JSON ends in the middle, after {len(text):,} characters"
            ) from None
        raise TraceError(f"{path} is not JSON: {error}") from None


def _ends_early(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the text could be the beginning of a JSON value rather than something else."""
    if text.lstrip()[0] not in "{[":
        return False
    # An open string is reported where it starts, everything else where the text ends; and what
    # ends in the middle of a number, of `true` or of an escape where that begins.
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()) - 6


def write_text(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines of text; gzipped when the name ends in ``.gz`` (the same bytes every time)."""
    path = Path(path)
    if path.suffix != ".gz":
        with path.open("w", encoding="utf-8") as plain:
            plain.writelines(lines)
        return
    # mtime and name would make two equal timelines differ
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as text,
    ):
        text.writelines(lines)
