"""Logs of Megatron-LM and DeepSpeed: iteration times, losses, memory of every stage.

A log holds no spans, and none are made up from it: what comes out is a table, not a timeline.
Known lines (the wording of their sources):

- Megatron-LM and Megatron-DeepSpeed, training.py: `` iteration 5/ 100 | elapsed time per iteration
  (ms): 137805.9 | lm loss: ... |``, fields between bars;
- DeepSpeed, runtime/pipe/engine.py: ``steps: 5 loss: 2.3017 iter time (s): 0.512 samples/sec:
  124.9``; utils/timer.py: ``epoch=0/micro_step=8/global_step=2, RunningAvgSamplesPerSec=...``;
  runtime/pipe/module.py: ``stage=0 layers=7`` and ``Using topology: {ProcessCoord(pipe=0, ...``;
- ``report_memory``: ``[Rank 5] (after 1 iterations) memory (MB) | allocated: ... | max allocated:
  ... |``, in units of 2^20 bytes;
- `` > number of parameters on (tensor, pipeline) model parallel rank (2, 12): 805560320``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.words import duration
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample

FORMAT = "log of Megatron-LM or DeepSpeed"
MiB = 2**20

_ITERATION = re.compile(r"iteration\s+(\d+)/\s*(\d+) \|(.*)")
_PIPE = re.compile(r"steps: (\d+) loss: (\S+) .*?iter time \(s\): ([\d.]+) samples/sec: ([\d.]+)")
_SPEED = re.compile(
    r"micro_step=(\d+)/global_step=(\d+), RunningAvgSamplesPerSec=([\d.]+), "
    r"CurrSamplesPerSec=([\d.]+)"
)
_MEMORY = re.compile(
    r"\[Rank (\d+)\] \(after (\d+) iterations\) memory \(MB\) \| allocated: ([\d.]+) \| "
    r"max allocated: ([\d.]+) \| reserved: ([\d.]+) \| max reserved: ([\d.]+)"
)
_STAGE = re.compile(r"stage=(\d+) layers=(\d+)")
_COORD = re.compile(r"ProcessCoord\(([^)]*)\): (\d+)")
_PARAMETERS = re.compile(
    r"number of parameters on \(tensor, pipeline\) model parallel rank \((\d+), (\d+)\): (\d+)"
)
_SIGNS = (_ITERATION, _PIPE, _SPEED, _MEMORY, _STAGE, _COORD, _PARAMETERS)

#: Field of an iteration line -> our name; the rest keeps its own name.
_FIELDS = {
    "elapsed time per iteration (ms)": "seconds",
    "lm loss": "loss",
    "lm-loss": "loss",
    "grad norm": "grad_norm",
    "learning rate": "learning_rate",
    "global batch size": "global_batch_size",
    "throughput per GPU (TFLOP/s/GPU)": "tflops",
    "TFLOPs": "tflops",
    "samples per second": "samples_per_second",
}


@dataclass(frozen=True)
class LogRecord:
    """What a log says.

    iterations: a dictionary per logged iteration: iteration, seconds, loss, samples_per_second,
    ... as far as logged; memory: a dictionary per report: rank, iteration, allocated,
    max_allocated, reserved, max_reserved (bytes); layers: number of layers by stage; parameters:
    by (stage, tensor rank); place: {"pipe", "data", "model"} of each rank, when the topology was
    logged.
    """

    path: Path
    iterations: list[dict[str, float]] = field(default_factory=list, repr=False)
    memory: list[dict[str, float]] = field(default_factory=list, repr=False)
    layers: dict[int, int] = field(default_factory=dict)
    parameters: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    place: dict[int, dict[str, int]] = field(default_factory=dict, repr=False)
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
            stage: {name: float(np.mean([row[name] for row in rows])) for name in names}
            for stage, rows in sorted(stages.items())
        }

    def __str__(self) -> str:
        parts = [f"{FORMAT}, {self.path.name}"]
        if self.stages:
            ranks = f", {len(self.place)} ranks" if self.place else ""
            parts.append(f"{self.stages} stages{ranks}")
        if self.iterations:
            first, last = self.iterations[0], self.iterations[-1]
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
            most_bytes = max(row["max_allocated"] for row in self.memory)
            parts.append(f"at most {most_bytes / 1e9:.1f} GB on a rank")
        return "; ".join(parts)


def read_log(path: str | Path) -> LogRecord:
    """What a log says; raises TraceError when no line of it is known, OSError as ``open`` does."""
    path = Path(path)
    record: dict[str, Any] = {
        "iterations": [], "memory": [], "layers": {}, "parameters": {}, "place": {},
    }  # fmt: skip
    lines = 0
    with Sample.of(path).open() as file:
        for raw in file:
            lines += 1
            _take(raw.decode("utf-8", errors="replace"), record)
    if not any(record.values()):
        raise TraceError(f"{path}: none of its {lines:,} lines is one that pplab knows")
    return LogRecord(path, lines=lines, **record)


def _take(line: str, record: dict[str, Any]) -> None:
    iterations = record["iterations"]
    if match := _ITERATION.search(line):
        iterations.append({"iteration": int(match[1]), **_fields(match[3])})
    elif match := _PIPE.search(line):
        step, loss, seconds, speed = match.groups()
        iterations.append({"iteration": int(step), "seconds": float(seconds),
                           "samples_per_second": float(speed), **_float("loss", loss)})  # fmt: skip
    elif match := _SPEED.search(line):
        micro, step, _, now = match.groups()
        row = {"iteration": int(step), "micro_step": int(micro), "samples_per_second": float(now)}
        if iterations and iterations[-1]["iteration"] == row["iteration"]:
            iterations[-1].update(row)
        else:
            iterations.append(row)
    elif match := _MEMORY.search(line):
        names = ("allocated", "max_allocated", "reserved", "max_reserved")
        sizes = {n: float(text) * MiB for n, text in zip(names, match.groups()[2:], strict=True)}
        record["memory"].append({"rank": int(match[1]), "iteration": int(match[2]), **sizes})
    elif match := _STAGE.search(line):
        record["layers"][int(match[1])] = int(match[2])
    elif match := _PARAMETERS.search(line):
        record["parameters"][int(match[2]), int(match[1])] = int(match[3])
    elif "ProcessCoord(" in line:
        for match in _COORD.finditer(line):
            axes = (item.split("=") for item in match[1].split(","))
            record["place"][int(match[2])] = {name.strip(): int(at) for name, at in axes}


def _fields(text: str) -> dict[str, float]:
    row: dict[str, float] = {}
    for part in text.split("|"):
        name, colon, value = part.rpartition(":")
        if colon:
            name = name.strip()
            row |= _float(_FIELDS.get(name, name), value.strip())
    if "elapsed time per iteration (ms)" in text and "seconds" in row:
        row["seconds"] /= 1e3
    return row


def _float(name: str, text: str) -> dict[str, float]:
    try:
        return {name: float(text)}
    except ValueError:
        return {}


def recognises(sample: Sample) -> bool:
    """Some line of the head, or of the first megabytes (launchers talk a lot first)."""
    if b"\0" in sample.head or sample.text.startswith("{"):
        return False
    with sample.open() as file:
        try:
            text = file.read(4 << 20).decode("utf-8", errors="replace")
        except (OSError, EOFError):
            text = sample.text
    return any(sign.search(text) for sign in _SIGNS)


def read_files(paths: list[Path], options: Options) -> Imported:
    """Refused: a log has no spans."""
    raise TraceError(
        f"{paths[0].name} is a {FORMAT}: it has no spans to make a timeline of. "
        "pplab.traces.read_log reads its iteration times, losses and memory"
    )
