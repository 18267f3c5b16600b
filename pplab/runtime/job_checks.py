"""What a job may not ask for: each refusal a sentence, before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING

from pplab.core.schedule import Schedule
from pplab.core.schedules.weights import updates_midway
from pplab.runtime.hosts.hostfile import spread, started_us

if TYPE_CHECKING:
    from pplab.runtime.job import Job

DTYPES = ("fp32", "bf16")
ENGINES = ("pplab", "deepspeed", "dualpipev", "zero", "plain")
LAUNCHERS = ("local", "deepspeed", "torchrun")
THROUGH = ("pdsh", "openmpi", "slurm")
DEVICES = ("auto", "cpu", "cuda")
#: What settings are called by others.
ELSEWHERE = {
    "learning_rate": "lr", "epochs": "steps", "iterations": "steps", "zero_stage": "zero",
    "gas": "micro_batches", "gradient_accumulation_steps": "micro_batches",
    "batch_size": "micro_batch_size", "num_stages": "stages", "clip": "gradient_clipping",
    "data_parallel": "replicas", "dp": "replicas", "tp": "tensor", "precision": "dtype",
    "ds_config": "config", "timeout": "hang_after",
}  # fmt: skip


def check_names(given: Iterable[str], kind: type[Job]) -> None:
    """TypeError for a setting that a job does not have, with the one that was meant, if any."""
    names = [field.name for field in fields(kind)]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
            named = ELSEWHERE.get(name) or (near[0] if near else "")
            meant = f"did you mean {named}?" if named else "help(pplab.run) tells what there is"
            raise TypeError(f"a run has no setting {name!r}: {meant}")


def check(job: Job) -> None:
    """Raises ValueError (ScheduleError for the schedule itself) with what is wrong."""
    for name, allowed in (
        ("engine", ENGINES),
        ("launcher", LAUNCHERS),
        ("through", THROUGH),
        ("device", DEVICES),
        ("dtype", DTYPES),
    ):
        if getattr(job, name) not in allowed:
            raise ValueError(f"{name} is one of {', '.join(allowed)}, not {getattr(job, name)}")
    for name in (
        "stages", "micro_batches", "steps", "micro_batch_size", "replicas", "tensor", "threads",
    ):  # fmt: skip
        if getattr(job, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(job, name)}")
    if job.engine == "plain" and job.world != 1:
        raise ValueError("the plain loop is one process: stages=1, replicas=1")
    if job.engine == "zero":
        _check_zero(job)
    if job.tensor > 1:
        _check_tensor(job)
    if job.engine == "dualpipev" and job.micro_batches < 2 * job.stages:
        raise ValueError(
            f"DualPipeV needs two micro-batches a rank to fill its V: at least "
            f"{2 * job.stages}, not {job.micro_batches}"
        )
    if job.schedule is not None:
        _check_schedule(job, job.schedule)
    if job.bounds is not None:
        _check_bounds(job, job.bounds)
    if job.speeds is not None:
        _check_speeds(job, job.speeds)
    if job.faults is not None:
        job.faults.check(job)
    if job.checkpoint or job.resume:
        _check_checkpoint(job)
    if job.nsys and (job.launcher != "deepspeed" or job.hosts):
        raise ValueError(
            "nsys=True wraps the `deepspeed` command of this machine: give "
            "launcher='deepspeed', and no other hosts"
        )
    if job.launcher == "torchrun" and not started_us():
        raise ValueError("launcher='torchrun' is for scripts that torchrun has started")
    if job.hosts:
        if job.launcher != "deepspeed":
            raise ValueError("only launcher='deepspeed' starts ranks on other hosts")
        spread(job.hosts, job.world)


def _check_schedule(job: Job, schedule: Schedule) -> None:
    schedule.check()
    if job.engine not in ("pplab", "plain"):
        raise ValueError(f"engine {job.engine!r} has its own schedule; drop the one given")
    stages = schedule.stages if job.engine == "plain" else job.stages
    if (schedule.stages, schedule.micro_batches) != (stages, job.micro_batches):
        raise ValueError(
            f"the schedule is for {schedule.stages} stages and {schedule.micro_batches} "
            f"micro-batches, the run for {job.stages} and {job.micro_batches}"
        )
    if job.engine == "pplab":
        _check_needs(job, schedule)


def _check_needs(job: Job, schedule: Schedule) -> None:
    """What a schedule asks of DeepSpeed and cannot have: refused before anything starts."""
    config = job.deepspeed_config()
    recomputes = config.get("pipeline", {}).get("activation_checkpoint_interval", 0)
    if schedule.splits_backward and recomputes:
        raise ValueError(
            f"{schedule.name} splits backward passes into B and W, and DeepSpeed's activation "
            "checkpointing works in undivided ones only: each half would have to compute the "
            "activations again; run it with activation_checkpoint_interval=0"
        )
    if not updates_midway(schedule):
        return
    why = f"{schedule.name} updates the weights while micro-batches are in flight"
    if config["zero_optimization"]["stage"] != 0:
        raise ValueError(
            f"{why} and so keeps several versions of them; ZeRO-1 keeps one, in a flat buffer "
            "that it steps once a batch: run it with zero=0"
        )
    if job.dtype != "fp32":
        raise ValueError(
            f"{why}; DeepSpeed's {job.dtype} optimizer keeps one fp32 copy of the weights "
            "and steps once a batch: run it with dtype='fp32'"
        )
    if config["gradient_clipping"]:
        raise ValueError(
            f"{why}, each rank at its own time; the norm of all gradients, which clipping "
            "needs, never exists: run it with gradient_clipping=0"
        )


def _check_zero(job: Job) -> None:
    if job.stages != 1 or job.bounds is not None or job.schedule is not None:
        raise ValueError(
            "engine 'zero' has no pipeline, so no schedule, bounds or stages: give replicas; "
            "for ZeRO-0 or 1 with a pipeline give a schedule and leave the engine out"
        )
    if job.checkpoint or job.resume:
        raise ValueError("checkpoints here are by pipeline stage: engine 'zero' has none")


def _check_tensor(job: Job) -> None:
    if job.model.family != "gpt":
        raise ValueError(
            "only the layers of models.gpt know how to share their work with other ranks: "
            "use tensor=1 for other models"
        )
    heads = job.model.settings["heads"]
    if heads % job.tensor:
        raise ValueError(f"{job.tensor} tensor parts cannot share {heads} heads evenly")
    if job.engine != "pplab":
        raise ValueError(f"engine {job.engine!r} is run with tensor=1 here; use 'pplab'")


def _check_bounds(job: Job, bounds: tuple[int, ...]) -> None:
    rising = all(a < b for a, b in pairwise(bounds))
    if len(bounds) != job.slices + 1 or bounds[0] != 0 or not rising:
        raise ValueError(
            f"bounds are {job.slices + 1} rising layer numbers from 0 to the number of "
            f"layers, not {list(bounds)}"
        )


def _check_speeds(job: Job, speeds: tuple[float, ...]) -> None:
    if not job.model.paced:
        raise ValueError(
            "speeds are for paced models: how fast computed layers run is up to the hardware"
        )
    if job.engine == "plain":
        raise ValueError("the plain loop is one process: there are no ranks to give speeds to")
    if len(speeds) != job.stages or not all(0 < s < float("inf") for s in speeds):
        raise ValueError(
            f"speeds are {job.stages} positive numbers, one for each rank of a pipeline "
            f"(0.5: takes twice the model's time), not {list(speeds)}"
        )


def _check_checkpoint(job: Job) -> None:
    if job.engine == "plain":
        raise ValueError("the plain loop has no DeepSpeed engine, and so no checkpoint")
    if job.tensor > 1:
        raise ValueError(
            "with tensor > 1 each rank has a part of every layer, and checkpoints here are "
            "by whole layers: use tensor=1 to write or read one"
        )
