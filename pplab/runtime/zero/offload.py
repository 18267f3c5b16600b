"""Whether DeepSpeed can move optimizer states off a device here; when not, why not.

Looks and does not try: the operations DeepSpeed needs are compiled at their first use, which takes
half a minute and, interrupted, leaves a lock behind that later runs wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pplab.runtime.hardware import Hardware, hardware

HEADERS = ("/usr/include/libaio.h", "/usr/local/include/libaio.h")


@dataclass(frozen=True)
class Verdict:
    """Offload to `device` ("cpu", "nvme"); `because` says why not, or what it takes."""

    device: str
    possible: bool
    because: str

    def __str__(self) -> str:
        if self.possible:
            return f"offload to {self.device}: possible here; {self.because}"
        return f"offload to {self.device}: blocked, because {self.because}"


def offload(
    machine: Hardware | None = None, headers: Iterable[str | Path] = HEADERS
) -> tuple[Verdict, Verdict]:
    """Verdicts on "cpu" and "nvme" for a machine (default: this one).

    headers: where libaio's header is looked for, which ``async_io`` is compiled with.
    """
    machine = machine or hardware()
    if machine.gpus:
        cpu = Verdict("cpu", True, "DeepSpeed compiles its CPU Adam at the first use")
    else:
        cpu = Verdict(
            "cpu",
            False,
            "there is no GPU: DeepSpeed takes the key, and everything is where it would move it",
        )
    if any(Path(header).exists() for header in headers):
        nvme = Verdict("nvme", True, "ZeRO-3 only; DeepSpeed compiles async_io at the first use")
    else:
        nvme = Verdict(
            "nvme",
            False,
            "DeepSpeed's async_io is compiled with libaio, whose header is not installed here "
            "(Debian: libaio-dev), and only ZeRO-3 has it",
        )
    return cpu, nvme
