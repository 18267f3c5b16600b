"""The memory of this process as the operating system sees it (Linux)."""

from __future__ import annotations

import contextlib
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reading(name: str) -> int | None:
    """Bytes of a line of ``/proc/self/status``: "VmRSS" (now), "VmHWM" (peak); None elsewhere."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in STATUS.read_text().splitlines():
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    return None


class ResidentGrowth:
    """How far the process grows at most, from when this is made to ``bytes()``.

    The kernel's own peak counter is set back first. Includes everything: what libraries allocate,
    and what the allocator keeps for later although nobody uses it any more.
    """

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            CLEAR.write_text("5")
        self.before = reading("VmRSS")

    def bytes(self) -> int | None:
        """Peak minus beginning; None where the system does not tell."""
        peak = reading("VmHWM")
        return None if peak is None or self.before is None else max(0, peak - self.before)
