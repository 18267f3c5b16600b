"""From the events of a run to a Run: spans of all ranks on one timeline, labelled.

Nothing that a rank sends is executed: events are JSON, arrays come with their shape and type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pplab.core.ops import CODE
from pplab.core.timeline import Timeline
from pplab.runtime.failure import RunError, explain
from pplab.runtime.hardware import hardware
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from pplab.runtime.wire import array_from_blob


class Collected:
    """Puts a Run together from the events of a run."""

    def __init__(self, job: Job, begin: int) -> None:
        self.job, self.begin = job, begin
        self.placed: dict[str, Any] = {}
        self.losses: list[float] = []
        self.step_times: list[float] = []
        self.bounds: tuple[int, ...] = ()
        self.results: dict[int, dict[str, Any]] = {}
        self.spans: list[dict[str, Any]] = []
        self.parameters: dict[str, Any] = {}
        self.micro_losses: list[list[float]] = []
        self.warnings: list[str] = []
        self.end: dict[str, Any] | None = None

    def take(self, event: dict[str, Any], blobs: list[bytes]) -> None:
        """Note one event."""
        kind = event["event"]
        if kind == "placed":
            self.placed = event
        elif kind == "ready":
            self.bounds = tuple(event["bounds"])
        elif kind == "step":
            self.losses.append(event["loss"])
            self.step_times.append(event["seconds"])
        elif kind == "result":
            self.results[event["rank"]] = event
            if event["part"]:
                return  # the parts of a stage wait for each other in every layer: one is shown
            columns = dict(
                zip(event["columns"], array_from_blob(event["spans"], blobs[0]).T, strict=True)
            )
            length = len(columns["start"])
            columns["rank"] = np.full(length, event["stage"])
            columns["replica"] = np.full(length, event["replica"])
            self.spans.append(columns)
            if event["replica"] == 0:
                self.micro_losses = self.micro_losses or event["micro_losses"]
                for (name, about), blob in zip(event["parameters"].items(), blobs[1:], strict=True):
                    self.parameters[name] = array_from_blob(about, blob)
        elif kind == "warning":
            self.warnings.append(event["text"])
        elif kind == "left":
            pids = ", ".join(map(str, event["pids"]))
            self.warnings.append(f"processes of this run could not be ended: {pids}")
        elif kind in ("done", "failed"):
            self.end = event

    def finish(self, directory: Path | None, warnings: list[str]) -> Run:
        """The Run; raises RunError when it failed."""
        end = self.end
        if end is None:
            raise RunError(
                "the run's supervisor ended without a word: was it killed?", directory=directory
            )
        if end["event"] == "failed":
            raise explain(end, directory)
        if end["log_error"]:
            warnings.append(f"the logs are incomplete: {end['log_error']}")
        warnings += self.warnings
        about = self.placed
        about["hosts"] = [self.results[rank].get("host", "") for rank in sorted(self.results)]
        timeline = self.timeline()
        first = float(timeline.start.min()) if len(timeline) else 0.0
        startup = first - self.begin / 1e9 if len(timeline) else 0.0
        if self.job.distant:
            startup = 0.0  # not known: the first operation is on rank 0's clock, not on this one's
        return Run(
            job=self.job,
            timeline=timeline.shifted(-first) if len(timeline) else timeline,
            losses=self.losses,
            step_times=self.step_times,
            memory=[self.results[rank]["memory"] for rank in sorted(self.results)],
            config=self.job.deepspeed_config(),
            bounds=self.bounds,
            versions=about["hardware"]["versions"],
            hardware=hardware().as_json(),
            placement={
                **{k: about[k] for k in ("device", "backend", "staged", "why")},
                "cuda_devices": about["hardware"]["cuda_devices"],
                "hosts": about["hosts"] if self.job.distant else [],
                "clock_error": max(result["clock_error"] for result in self.results.values()),
            },
            startup=startup,
            logs=end["logs"],
            warnings=warnings,
            parameters=self.parameters,
            directory=directory,
            micro_losses=self.micro_losses,
            traffic=[self.results[rank].get("traffic", []) for rank in sorted(self.results)],
        )

    def timeline(self) -> Timeline:
        """All ranks' spans; times in seconds of this machine's monotonic clock."""
        job, names = self.job, self.spans[0].keys()
        columns = {name: np.concatenate([span[name] for span in self.spans]) for name in names}
        columns["start"] = columns["start"] / 1e9
        columns["end"] = columns["end"] / 1e9
        engines = {
            "deepspeed": "DeepSpeed's 1F1B",
            "dualpipev": "DeepSpeed's DualPipeV",
            "plain": "no pipeline",
            "zero": f"ZeRO-{job.zero_stage}, no pipeline",
            "pplab": job.schedule.name if job.schedule else "",
        }
        if job.engine in ("deepspeed", "dualpipev"):
            columns = waits_taken_out(columns)
        return Timeline.of(
            columns,
            job.layout,
            source=source_label(job, self.placed),
            schedule=engines[job.engine],
            unit="s",
            hardware=hardware().as_json(),
        )


def waits_taken_out(columns: dict[str, Any]) -> dict[str, Any]:
    """Cut each optimizer step of the stock engine where the last rank ends its backward passes.

    DeepSpeed's step begins with collective operations that wait for all ranks. Up to that moment
    the rank waits (kind G); only then can the optimizer (kind U) do anything.
    """
    extra: dict[str, list[Any]] = {name: [] for name in columns}
    work = np.isin(columns["kind"], [CODE[kind] for kind in "FBW"])
    for step in np.unique(columns["step"]):
        mine = columns["step"] == step
        done = columns["end"][mine & work].max()
        for row in np.flatnonzero(mine & (columns["kind"] == CODE["U"])):
            if columns["start"][row] < done < columns["end"][row]:
                for name in columns:
                    extra[name].append(columns[name][row])
                extra["kind"][-1], extra["end"][-1] = CODE["G"], done
                columns["start"][row] = done
    return {
        name: np.concatenate([column, np.array(extra[name], dtype=column.dtype)])
        for name, column in columns.items()
    }


def source_label(job: Job, placed: dict[str, Any]) -> str:
    """Where a measured timeline comes from, as printed on every picture of it."""
    hosts = len(set(placed["hosts"])) if job.distant else 0
    if job.model.paced:
        speeds = ", ".join(f"{speed:g}" for speed in job.speeds or ())
        where = f", {hosts} hosts" if hosts else ""
        faults = ", with planted faults" if job.faults else ""
        return f"measured: paced{where}" + (
            f", ranks of speed {speeds}{faults}" if speeds else faults
        )
    if hosts:
        return f"measured: computed, {placed['backend']} on {hosts} hosts"
    if placed["device"] == "cpu":
        here = hardware().cores
        return f"measured: computed, {placed['backend']} on {here} core{'s' * (here != 1)}"
    staged = ", staged through the CPU" if placed["staged"] else ""
    return f"measured: computed, {placed['backend']}{staged} on GPU"
