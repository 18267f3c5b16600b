"""Gets a config from wherever it is: a dict, a file, text, or base64 as launchers pass it."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from pplab.advise.check.reader import LARGEST, Document, ReadError, read


def load(source: Any) -> tuple[str, Document]:
    """(name, document) of a config.

    source: a dict; a path; the text itself (it holds a brace); or base64 of it, which GPT-NeoX's
    launcher and DeepSpeed take (``runtime/tensor_parallel/init_utils.py:25``).
    Raises ReadError with a sentence when there is nothing readable.
    """
    if isinstance(source, dict):
        return "config", Document(value=source)
    if isinstance(source, os.PathLike):
        return str(source), read(_text(Path(source)))
    if not isinstance(source, str):
        kind = type(source).__name__
        raise ReadError(f"A config is a dict, a path or text, not {kind}.")
    if "{" in source or "\n" in source.strip():
        return "text", read(source)
    path = Path(source)
    try:
        there = path.exists()
    except OSError:  # too long for a file name
        there = False
    if there:
        return source, read(_text(path))
    decoded = _decoded(source)
    if decoded is not None:
        return "base64", read(decoded)
    raise ReadError(f"{source}: there is no such file, and it is no base64 of a config.")


def _text(path: Path) -> str:
    if path.is_dir():
        raise ReadError(f"{path} is a folder.")
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise ReadError(
                f"{size / 1e6:.1f} MB: a DeepSpeed config has a few kilobytes, so this is another "
                "file."
            )
        raw = path.read_bytes()
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}.") from error
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(mark):
            raise ReadError(f"{path} is {encoding} text; DeepSpeed reads UTF-8.", 1)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ReadError("This is not UTF-8 text.", line) from error


def _decoded(source: str) -> str | None:
    """The text that base64 stands for; None when it does not look like one."""
    raw = source.strip()
    if len(raw) < 4 or any(c.isspace() for c in raw):
        return None
    try:
        text = base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return text if "{" in text else None
