"""What this machine is: cores, memory, GPUs. Asks the system, never torch (the kernel has none)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import psutil


@dataclass(frozen=True)
class Hardware:
    """Processor name, usable cores, memory in bytes, names of the GPUs, operating system."""

    cpu: str
    cores: int
    memory: int
    gpus: tuple[str, ...]
    system: str

    def __str__(self) -> str:
        cards = ", ".join(self.gpus) if self.gpus else "no GPU"
        return f"{self.cores} cores ({self.cpu}), {self.memory / 2**30:.0f} GiB memory, {cards}"

    def as_json(self) -> dict[str, Any]:
        """Plain values, for records."""
        return {**asdict(self), "gpus": list(self.gpus)}


@cache
def hardware() -> Hardware:
    """The machine this process runs on."""
    return Hardware(
        cpu=_cpu_name(),
        cores=cores(),
        memory=psutil.virtual_memory().total,
        gpus=_gpus(),
        system=f"{platform.system()} {platform.machine()}",
    )


def cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpus() -> tuple[str, ...]:
    if not shutil.which("nvidia-smi"):
        return ()
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(asked.stdout.split("\n")[:-1]) if asked.returncode == 0 else ()
