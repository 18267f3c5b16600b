"""Logs of Megatron-LM and DeepSpeed: iteration times, losses, memory of every stage.

A log holds no spans, and none are made up from it: what comes out is a table, not a timeline.
``log_lines`` says which lines are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.words import duration
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample
from pplab.traces.log_lines import KNOWN, SIGNS, take

FORMAT = "log of Megatron-LM or DeepSpeed"
#: From how many times the quickest rank's forward passes on those of the slowest are told.
UNEVEN = 1.1


@dataclass(frozen=True)
class LogRecord:
    """What a log says.

    iterations: a dictionary per logged iteration: iteration, seconds, loss, samples_per_second,
    ... as far as logged; memory: a dictionary per report: rank, iteration, allocated,
    max_allocated, reserved, max_reserved (bytes); layers: number of layers by stage; parameters:
    by (stage, tensor rank); place: {"pipe", "data", "model"} of each rank, when the topology was
    logged; timers: (least, most) seconds of all ranks by Megatron's name, as logged last; peak:
    most bytes that rank 0 says it had allocated, where no memory was reported by rank.
    """

    path: Path
    iterations: list[dict[str, float]] = field(default_factory=list, repr=False)
    memory: list[dict[str, float]] = field(default_factory=list, repr=False)
    layers: dict[int, int] = field(default_factory=dict)
    parameters: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    place: dict[int, dict[str, int]] = field(default_factory=dict, repr=False)
    timers: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)
    peak: float = 0.0
    lines: int = 0

    @property
    def stages(self) -> int:
        """Stages of the pipeline, from the topology or the stages that were logged; 0: unknown."""
        from_place = {at.get("pipe", 0) for at in self.place.values()}
        return max(len(from_place), 1 + max(self.layers, default=-1))

    def stage_of(self, rank: int) -> int | None:
        """The pipeline stage of a rank, when the topology was logged."""
        return self.place[rank].get("pipe", 0) if rank in self.place else None

    def column(self, name: str) -> NDArray[np.float64]:
        """One number of every iteration, nan where it was not logged; shape (iterations,)."""
        return np.array([row.get(name, np.nan) for row in self.iterations])

    @property
    def step_time(self) -> float:
        """Median seconds of an iteration, without the first (it also warms up); nan: not logged."""
        times = self.column("seconds")
        times = times[~np.isnan(times)]
        return float(np.median(times[1:] if len(times) > 1 else times)) if len(times) else np.nan

    @property
    def stage_memory(self) -> dict[int, dict[str, float]]:
        """Bytes by stage, the mean over its ranks of the last report of each; {} without one."""
        last: dict[int, dict[str, float]] = {int(row["rank"]): row for row in self.memory}
        stages: dict[int, list[dict[str, float]]] = {}
        for rank, row in last.items():
            stage = self.stage_of(rank)
            if stage is not None:
                stages.setdefault(stage, []).append(row)
        names = ("allocated", "max_allocated", "reserved", "max_reserved")
        return {
            stage: {n: float(np.mean([row.get(n, np.nan) for row in rows])) for n in names}
            for stage, rows in sorted(stages.items())
        }

    def __str__(self) -> str:
        parts = [f"{FORMAT}, {self.path.name}"]
        if self.stages:
            ranks = f", {len(self.place)} ranks" if self.place else ""
            parts.append(f"{self.stages} stages{ranks}")
        if self.iterations:
            first, last = self.iterations[0], self.iterations[-1]
            text = f"iteration {first['iteration']:.0f}"
            if len(self.iterations) > 1:
                text = f"iterations {first['iteration']:.0f} to {last['iteration']:.0f}"
            if not np.isnan(self.step_time):
                text += f", typical {duration(self.step_time, 's')}"
            if "loss" in first and "loss" in last:
                text += f", loss {first['loss']:.4g} to {last['loss']:.4g}"
            parts.append(text)
        memory = {s: row["max_allocated"] for s, row in self.stage_memory.items()}
        if memory:
            most = max(memory, key=lambda stage: memory[stage])
            least = min(memory, key=lambda stage: memory[stage])
            parts.append(
                f"most memory on stage {most} ({memory[most] / 1e9:.1f} GB), least on stage "
                f"{least} ({memory[least] / 1e9:.1f} GB)"
            )
        elif self.memory:
            most_bytes = max(row["max_allocated"] for row in self.memory if "max_allocated" in row)
            parts.append(f"at most {most_bytes / 1e9:.1f} GB on a rank")
        elif self.peak:
            parts.append(f"at most {self.peak / 1e9:.1f} GB on rank 0")
        quick, slow = self.timers.get("forward-compute", (0.0, 0.0))
        if slow > UNEVEN * quick > 0:
            parts.append(
                f"the forward passes of an iteration take {duration(quick, 's')} on the quickest "
                f"rank and {duration(slow, 's')} on the slowest"
            )
        return "; ".join(parts)


def read_log(path: str | Path) -> LogRecord:
    """What a log says; raises TraceError when no line of it is known, OSError as ``open`` does."""
    path = Path(path)
    record: dict[str, Any] = {
        "iterations": [], "memory": [], "layers": {}, "parameters": {}, "place": {}, "timers": {},
        "peak": 0.0,
    }  # fmt: skip
    lines = 0
    with Sample.of(path).open() as file:
        for raw in file:
            lines += 1
            for line in raw.decode("utf-8", errors="replace").split("\r"):  # progress bars
                take(line, record)
    if not any(record.values()):
        raise TraceError(
            f"{path}: none of its {lines:,} lines is one that pplab knows, and it knows {KNOWN}"
        )
    return LogRecord(path, lines=lines, **record)


def recognises(sample: Sample) -> bool:
    """Some line of the head, or of the first megabytes (launchers talk a lot first)."""
    if b"\0" in sample.head or sample.text.startswith("{"):
        return False
    with sample.open() as file:
        try:
            text = file.read(4 << 20).decode("utf-8", errors="replace")
        except (OSError, EOFError):
            text = sample.text
    return any(sign.search(text) for sign in SIGNS)


def read_files(paths: list[Path], options: Options) -> Imported:
    """Refused: a log has no spans."""
    raise TraceError(
        f"{paths[0].name} is a {FORMAT}: it has no spans to make a timeline of. `pplab trace "
        f"{paths[0].name}`, or pplab.traces.read_log, tells its iteration times, losses and memory"
    )
