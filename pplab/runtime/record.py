"""What remains of a run: its timeline, losses, memory, and everything needed to repeat it.

Kept as JSON and plain arrays; nothing read back from disk is ever executed.

    DIRECTORY/run.json       job, DeepSpeed JSON, versions, hardware, losses, step times, memory
    DIRECTORY/timeline.npz   the spans
    DIRECTORY/partition.json what was predicted of the cut, when it was asked for
    DIRECTORY/checkpoint     see ``checkpoint``, when one was asked for
    DIRECTORY/parameters.npz trained parameters, when they were asked for
    DIRECTORY/rank-N.log     output of each rank
"""

from __future__ import annotations

import html
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.breakdown import Breakdown, breakdown
from pplab.core.costs import Costs
from pplab.core.partition import Partition
from pplab.core.timeline import Timeline
from pplab.runtime.job import Job
from pplab.runtime.measured import measured_costs
from pplab.runtime.partition_json import partition_from_json, partition_to_json
from pplab.runtime.stage_times import StageTimes
from pplab.runtime.zero.sent import Sent

KEEP = 40  # directories of old runs


@dataclass
class Run:
    """A finished run.

    timeline: spans of all steps (seconds); losses: mean loss of each step; micro_losses: loss of
    each micro-batch, a row a step (of replica 0; [] for DeepSpeed's own schedules); step_times:
    seconds of each step, barrier to barrier; memory: bytes by rank (see ``memory_note``); logs:
    end of each process's output; config: the DeepSpeed JSON used; bounds: first layer of each
    slice of the model; parameters: "layer.name" -> float32 array, when keep_parameters was set;
    startup: seconds from the call to the first recorded operation; partition: what was predicted
    of its cut, when it was asked for one; earlier_losses: of the runs it continues, step by step;
    traffic: what DeepSpeed sent, by rank (see ``sent``).
    """

    job: Job
    timeline: Timeline
    losses: list[float]
    step_times: list[float]
    memory: list[dict[str, Any]]
    config: dict[str, Any]
    bounds: tuple[int, ...]
    versions: dict[str, str]
    hardware: dict[str, Any]
    placement: dict[str, Any]
    startup: float = 0.0
    logs: dict[str, str] = field(default_factory=dict, repr=False)
    warnings: list[str] = field(default_factory=list)
    parameters: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)
    directory: Path | None = None
    micro_losses: list[list[float]] = field(default_factory=list, repr=False)
    partition: Partition | None = field(default=None, repr=False)
    earlier_losses: list[float] = field(default_factory=list, repr=False)
    traffic: list[list[dict[str, Any]]] = field(default_factory=list, repr=False)

    memory_note = (
        "parameters, optimizer: counted storage by storage between two steps; gradients: all of "
        "them, before they are reduced (first step; under ZeRO-2 and 3 the most at once); "
        "activation_bytes: what autograd keeps for the backward pass of one micro-batch, all "
        "chunks of the rank, and activation_peak: of all micro-batches in flight at the worst "
        "moment (saved-tensor hooks, first step); held_peak: the same with the outputs that "
        "DeepSpeed keeps until their backward pass; parameters_peak: of a forward pass, buckets: "
        "ZeRO's reduction buffers, in_buckets: what of those was used, whole_parameters: a "
        "number, not bytes (engine 'zero'); "
        "weight_versions: the most bytes that versions of the weights took at once, and "
        "weight_versions_held how many those were (schedules that update within a step); "
        "tensor_sums, tensor_sum_bytes: all-reduces of the tensor parts in a step, and what they "
        "add up; resident: the process, shared pages included, and "
        "resident_growth: its peak during the steps beyond that before them (Linux); "
        "peak_allocated: CUDA allocator, GPU runs only"
    )

    @cached_property
    def costs(self) -> Costs:
        """Measured costs per stage: give them to ``plan.simulate`` to predict this run."""
        return measured_costs(self.timeline)

    @cached_property
    def stage_times(self) -> StageTimes:
        """Measured seconds of F and B per micro-batch, by slice of the model; prints as a table
        beside what was predicted of the cut, where something was."""
        return StageTimes(
            np.asarray(self.costs.forward),
            np.asarray(self.costs.backward),
            self.bounds,
            self.partition,
            self.step_time,
            self.costs,
        )

    @property
    def all_losses(self) -> list[float]:
        """Losses from the first step of the first run of a chain that continue each other."""
        return [*self.earlier_losses, *self.losses]

    @property
    def sent(self) -> Sent:
        """Messages of DeepSpeed's in the last step, as seen from rank 0 (see ``zero.traffic``)."""
        return Sent.of(self.traffic[0] if self.traffic else [], self.job.micro_batches)

    @property
    def step_time(self) -> float:
        """Seconds of the typical step, first operation to last."""
        return self.timeline.typical.step_time

    @property
    def bubble(self) -> float:
        """Idle share of the typical step."""
        return self.timeline.typical.bubble

    @property
    def traces(self) -> list[Path]:
        """Files of the PyTorch profiler, one per rank, of a run with ``profile=True``."""
        return sorted(self.directory.glob("trace-rank-*.json")) if self.directory else []

    @property
    def reports(self) -> list[Path]:
        """What Nsight Systems wrote of a run with ``nsys=True``, exported to SQLite."""
        return sorted(self.directory.glob("nsys*.sqlite")) if self.directory else []

    def simulate(self) -> Timeline:
        """What the simulator predicts for this run's schedule from its measured costs."""
        if self.job.schedule is None:
            raise ValueError("this run used an engine's own schedule; simulate a schedule yourself")
        return self.job.schedule.simulate(self.costs)

    def breakdown(self) -> Breakdown:
        """Where the typical step's time went, in named parts that add up to it."""
        if self.job.schedule is None:
            raise ValueError("this run used an engine's own schedule: use pplab.breakdown")
        return breakdown(self.timeline, self.job.schedule)

    # -- words ------------------------------------------------------------------------------------

    def __str__(self) -> str:
        first, last = self.losses[0], self.losses[-1]
        return (
            f"{self.timeline.source}: {self.timeline.typical}; "
            f"loss {first:.4f} to {last:.4f} in {len(self.losses)} steps"
        )

    def __repr__(self) -> str:
        return f"[measured] {self}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """A notebook shows a run as the timeline of its typical step."""
        from pplab.view.show import timeline_bundle  # a display is the one reason to look up

        return timeline_bundle(self.timeline.typical)

    # -- keeping it -------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays, as plain JSON values."""
        names = (
            "losses", "step_times", "memory", "config", "versions", "hardware", "placement",
            "startup", "logs", "warnings", "micro_losses", "earlier_losses",
            "traffic",
        )  # fmt: skip
        return {
            "format": 1,
            "job": self.job.as_json(),
            "bounds": list(self.bounds),
            **{name: getattr(self, name) for name in names},
        }

    def save(self, directory: str | Path) -> Path:
        """Write the record into a directory (made if needed); raises OSError when it cannot."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps(self.as_json(), indent=1))
        self.timeline.save(directory / "timeline.npz")
        if self.partition is not None:
            text = json.dumps(partition_to_json(self.partition), indent=1)
            (directory / "partition.json").write_text(text)
        if self.parameters:
            arrays: dict[str, Any] = dict(self.parameters)
            np.savez_compressed(directory / "parameters.npz", **arrays)
        return directory

    @classmethod
    def load(cls, directory: str | Path) -> Run:
        """Read what ``save`` wrote. A learner's own model comes back as its source text only."""
        directory = Path(directory)
        data = json.loads((directory / "run.json").read_text())
        if data.pop("format") != 1:
            raise ValueError(f"{directory} was written by another version of pplab")
        partition = None
        if (directory / "partition.json").exists():
            text = (directory / "partition.json").read_text()
            partition = partition_from_json(json.loads(text))
        parameters = {}
        if (directory / "parameters.npz").exists():
            with np.load(directory / "parameters.npz", allow_pickle=False) as arrays:
                parameters = dict(arrays)
        return cls(
            job=Job.from_json(data.pop("job")),
            bounds=tuple(data.pop("bounds")),
            timeline=Timeline.load(directory / "timeline.npz"),
            parameters=parameters,
            partition=partition,
            directory=directory,
            **data,
        )


def load_record(directory: str | Path) -> Run:
    """``Run.load``; raises ValueError, with a sentence, when the directory holds no record."""
    try:
        return Run.load(directory)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{directory} is not the record of a run: {error}") from error


def logs_html(logs: dict[str, str], warnings: list[str]) -> str:
    """Per-rank logs behind a fold, warnings in front of it."""
    noted = "".join(f"<p><b>Note:</b> {html.escape(text)}</p>" for text in warnings)
    inside = "".join(
        f"<h5>{html.escape(name)}</h5><pre>{html.escape(text.strip() or '(nothing)')}</pre>"
        for name, text in sorted(logs.items())
    )
    return f"{noted}<details><summary>Output of each rank</summary>{inside}</details>"


def new_directory(spare: Path | None = None) -> Path:
    """A fresh directory for a run's record; the oldest ones, but `spare`, are removed beyond
    ``KEEP``.

    Under $PPLAB_RUNS, else in the user's state directory. Raises OSError when it cannot be made.
    """
    default = Path.home() / ".local" / "state" / "pplab" / "runs"
    root = Path(os.environ.get("PPLAB_RUNS") or default)
    root.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        path = root / f"{stamp}-{os.getpid()}-{number}"
        try:
            path.mkdir(mode=0o700)
            break
        except FileExistsError:
            continue
    old = sorted(p for p in root.iterdir() if p.is_dir() and p not in (path, spare))
    for directory in old[: max(0, len(old) - KEEP)]:
        shutil.rmtree(directory, ignore_errors=True)
    return path
