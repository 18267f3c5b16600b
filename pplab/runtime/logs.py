"""The output of one process, kept on disk and, its end, in memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

TAIL = 8000  # bytes of each log kept in memory
LOG_LIMIT = 64 << 20  # bytes of each log on disk


class Log:
    """The output of one process: a file, and its end in memory in case the disk is full."""

    def __init__(self, path: Path | None) -> None:
        self.tail = b""
        self.error: str | None = None
        self._written = 0
        self._file: int | None = None
        if path is not None:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._file = os.open(path, flags, 0o600)
            except OSError as error:
                self.error = str(error)

    def write(self, data: bytes) -> None:
        """Keep some output; a disk that is full stops the file, not the run."""
        self.tail = (self.tail + data)[-TAIL:]
        if self._file is None or self._written > LOG_LIMIT:
            return
        try:
            self._written += os.write(self._file, data)
        except OSError as error:
            self.error = self.error or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
