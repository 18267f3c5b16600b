"""A plan: everything needed to run the job one way, and what is predicted of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pplab.advise.check.report import Report
from pplab.advise.tune.candidates import Candidate
from pplab.advise.tune.price import Priced, schedule_of
from pplab.core.memory import PipelineMemory, size
from pplab.core.partition import Partition
from pplab.core.schedule import Schedule
from pplab.core.timeline import Timeline
from pplab.core.words import duration
from pplab.runtime.job import Job
from pplab.runtime.models import Model, paced
from pplab.runtime.record import Run


@dataclass(frozen=True)
class Plan:
    """One way to run the job.

    what: the numbers (see ``Candidate``); priced: what they cost; reason: why it has its place;
    model: the description to run, None when only profiles are known; settings: further fields of
    ``Job``; unit: of the times
    """

    what: Candidate
    priced: Priced
    reason: str = ""
    model: Callable[[int], Model] | None = field(default=None, repr=False, compare=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    unit: str = "s"

    # -- what is predicted ------------------------------------------------------------------------

    @property
    def step(self) -> float:
        """Predicted time of a step, first operation to last."""
        return self.priced.step

    @property
    def bubble(self) -> float:
        """Predicted idle / total."""
        return self.priced.bubble

    @property
    def memory(self) -> PipelineMemory:
        """Predicted bytes of every rank (the process itself not counted)."""
        return self.priced.memory

    @property
    def throughput(self) -> float:
        """Samples per unit of time."""
        return self.what.batch / self.step if self.step else float("nan")

    @property
    def partition(self) -> Partition:
        """Where the model is cut."""
        return self.priced.partition

    @property
    def schedule(self) -> Schedule:
        """The operations of every rank."""
        what = self.what
        return schedule_of(what.schedule, what.stages, what.micro_batches)

    def simulate(self) -> Timeline:
        """The simulated step, gradient reduction and optimizer included (as kind U)."""
        return self.schedule.simulate(self.priced.costs)

    def stage_spread(self) -> float:
        """How far the ranks' predicted work lies apart: (longest - shortest) / longest."""
        loads = self.partition.rank_loads
        return float(1 - loads.min() / loads.max()) if loads.max() else 0.0

    # -- running it -------------------------------------------------------------------------------

    @property
    def job_settings(self) -> dict[str, Any]:
        """The keyword arguments of ``pplab.run`` besides schedule, model and partition."""
        what = self.what
        found = {
            "micro_batch_size": what.micro_batch_size,
            "replicas": what.replicas,
            "zero": what.zero,
            **self.settings,
        }
        if what.tensor > 1:
            found["tensor"] = what.tensor
        if what.recompute:
            found["activation_checkpoint_interval"] = what.recompute
        return found

    def job(self) -> Job:
        """The job that a run would be; raises ValueError for what DeepSpeed cannot do."""
        what = self.what
        layers = self.partition.problem.layers
        model = self.model(what.micro_batch_size) if self.model else paced(0, 0, layers=layers)
        return Job(
            model=model,
            stages=what.stages,
            micro_batches=what.micro_batches,
            schedule=self.schedule,
            bounds=self.partition.bounds,
            **self.job_settings,
        )

    def run(self, model: Model | None = None, **settings: Any) -> Run:
        """``pplab.run`` of this plan; `settings` as there (steps, quiet, profile, ...).

        model: needed when the plan was made from profiles only. Raises ValueError without one.
        """
        import pplab

        chosen = model or (self.model(self.what.micro_batch_size) if self.model else None)
        if chosen is None:
            raise ValueError("this plan was made from a profile: say which model, plan.run(model)")
        own = {**self.job_settings, **settings}
        run: Run = pplab.run(self.schedule, chosen, partition=self.partition, **own)
        return run

    def deepspeed_config(self) -> dict[str, Any]:
        """The DeepSpeed JSON of the plan; cuts and schedule are code, not JSON."""
        return self.job().deepspeed_config()

    def check(self) -> Report:
        """The checker's report on that JSON, for this plan's ranks, stages and cut.

        It warns of schedules that DeepSpeed does not ship: ``run`` brings them along. With several
        chunks a rank the number of layers is not said: the checker's rule for it is
        that of Megatron-LM, which builds only what divides evenly.
        """
        from pplab.advise.check import check

        what, chunks = self.what, self.schedule.chunks
        sizes = np.diff(self.partition.bounds).tolist()
        cut = {"layers": sum(sizes), "parts": sizes} if chunks == 1 and what.stages > 1 else {}
        return check(
            self.deepspeed_config(),
            name="plan",
            ranks=what.world,
            stages=what.stages,
            tensor=what.tensor,
            schedule=what.schedule,
            chunks=chunks,
            **cut,
        )

    def call(self) -> str:
        """The call that runs it, as text."""
        what, settings = self.what, self.job_settings
        maker = {"1f1b": "one_f_one_b"}.get(what.schedule, what.schedule.replace("-", "_"))
        given = "".join(f", {name}={value!r}" for name, value in settings.items())
        return (
            f"pplab.run(pplab.schedules.{maker}(stages={what.stages}, "
            f"micro_batches={what.micro_batches}), model, "
            f"partition={list(self.partition.bounds)}{given})"
        )

    # -- words ------------------------------------------------------------------------------------

    def time(self, value: float) -> str:
        """A time in words."""
        return duration(value, self.unit, 3)

    def __str__(self) -> str:
        cuts = ", ".join(map(str, self.partition.bounds[1:-1]))
        cut = f", cut at {cuts}" if cuts else ""
        return (
            f"{self.what}{cut}: step {self.time(self.step)}, {self.bubble:.0%} idle, "
            f"{size(self.memory.peak)} on the fullest rank"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values; times in `unit`, memory in bytes by stage."""
        what = self.what
        return {
            **{name: getattr(what, name) for name in Candidate.__dataclass_fields__},
            "bounds": list(self.partition.bounds),
            "step": self.step,
            "pipeline": self.priced.pipeline,
            "ends": self.priced.ends,
            "work": self.priced.work,
            "bubble": self.bubble,
            "throughput": self.throughput,
            "memory": [float(rank.peak) for rank in self.memory.ranks],
            "stage_times": np.asarray(self.partition.rank_loads, dtype=float).tolist(),
            "proof": self.partition.proof,
            "unit": self.unit,
            "reason": self.reason,
        }
