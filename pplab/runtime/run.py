"""``pplab.run``: from a schedule and a model to a finished Run."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pplab.core.schedule import Schedule
from pplab.runtime import allowance, client, models, nsys
from pplab.runtime.checkpoint import check_continues, inherited, resume_from
from pplab.runtime.collect import Collected
from pplab.runtime.hosts import torchrun
from pplab.runtime.hosts.hostfile import launcher_environment, on_hosts
from pplab.runtime.job import Job
from pplab.runtime.job_checks import check_names
from pplab.runtime.partitioned import Chosen, Cut, choose
from pplab.runtime.progress import Progress, progress
from pplab.runtime.record import Run, load_record, logs_html, new_directory


def run(
    plan: Schedule | None = None,
    model: models.Model | None = None,
    *,
    partition: Cut | None = None,
    resume: Run | str | Path | None = None,
    hostfile: str | Path | Sequence[tuple[str, int]] | None = None,
    slurm: bool = False,
    loader: str = "layers",
    quiet: bool = False,
    keep: bool = True,
    on_loss: Callable[[int, float], None] | None = None,
    **settings: Any,
) -> Run:
    """Train a model on real processes under DeepSpeed, following a schedule; returns a Run.

    plan: the schedule every rank follows (``one_f_one_b(stages=4, micro_batches=8)``). Leave it
    out for DeepSpeed's own, untouched (engine="deepspeed": 1F1B, engine="dualpipev"), and give
    stages and micro_batches instead; or for no pipeline, and give micro_batches: engine="zero"
    (replicas=4, zero=3: data-parallel ranks) or engine="plain" (one process).
    model: ``pplab.models.gpt()`` (default), ``.paced()`` or ``.own()``.
    partition: where to cut the model: a ``Partition``, bounds such as [0, 3, 6, 8], or a method
    ("optimal", "minimax", "uniform", "parameters", "type:regex", "block"), for which the layers
    are timed first, unless the model says what they take. Without it: equal layer counts. The
    result keeps what was predicted (``Run.partition``).
    resume: a run with checkpoint=True (or the directory of its record): continue from where it
    ended, with its model, schedule and settings where none are given; steps are further steps.
    Another cut, schedule, number of ranks or replicas, or ZeRO-0 instead of 1, make no difference
    to what is computed. loader: see ``Resume``.
    hostfile: run on these machines: a file as `deepspeed` reads it ("HOST slots=N" a line), or
    pairs (host, slots). slurm: run on those of the Slurm allocation this process is in. The ranks
    are started by the `deepspeed` command, and their times are put on one clock; how wrong that
    can be stands in ``Run.placement["clock_error"]`` (seconds).
    In a script that torchrun started, its processes become the ranks; the Run is that of rank 0's
    process, the others get None (see ``hosts.torchrun``).
    settings: fields of ``Job``: steps, micro_batch_size, replicas, zero, dtype, lr, seed, bounds,
    launcher, device, config (merged over the DeepSpeed JSON), profile (torch.profiler, a trace per
    rank), nsys (Nsight Systems, see ``Run.reports``), keep_parameters, speeds,
    checkpoint, ...
    quiet: show no progress. keep: write the record (see ``record``). on_loss: called while the run
    runs, with the number of micro-batches seen so far and the latest loss.

    The model never runs in this process. Raises ScheduleError or ValueError before anything
    starts; RunError when a rank fails, dies or hangs: by then all its processes have ended.
    """
    begin = time.perf_counter_ns()
    if partition is not None and settings.get("bounds") is not None:
        raise ValueError("partition and bounds both say where to cut: give one of them")
    if hostfile is not None or slurm:
        settings = {**on_hosts(hostfile, slurm), **settings}
    elif torchrun.started_us():
        settings = {"launcher": "torchrun", **settings}
    earlier = load_record(resume) if isinstance(resume, str | Path) else resume
    job = job_of(plan, model, settings, earlier, loader)
    if job.launcher == "torchrun":
        torchrun.check_world(job.world)
        if os.environ["RANK"] != "0":
            torchrun.follow()
            return None  # type: ignore[return-value]  # the Run is rank 0's
    show, cut = progress(job, quiet), None
    if partition is not None:
        try:
            cut = choose(partition, job, show.say)
        except BaseException:
            show.close("nothing was run")
            raise
        begin = time.perf_counter_ns()  # timing the layers is no part of the start of a run
    return run_job(
        job, begin, quiet=quiet, keep=keep, on_loss=on_loss, show=show, cut=cut, earlier=earlier
    )


def job_of(
    plan: Schedule | None,
    model: models.Model | None,
    settings: dict[str, Any],
    earlier: Run | None = None,
    loader: str = "layers",
) -> Job:
    """The job of ``run``, without its cut; raises ValueError for what cannot be run, TypeError for
    a setting that does not exist."""
    check_names(settings, Job)
    if earlier is not None:
        settings = inherited(earlier, plan, model, settings)
        settings["resume"] = resume_from(earlier, loader)
        plan, model = settings.pop("schedule"), settings.pop("model")
    model = models.as_model(model or models.gpt())
    if plan is not None:
        stages = 1 if settings.get("engine") == "plain" else plan.stages
        settings = {"stages": stages, "micro_batches": plan.micro_batches, **settings}
    elif settings.get("engine") in ("zero", "plain"):
        settings = {"stages": 1, **settings}
    elif settings.get("engine", "pplab") == "pplab":
        raise ValueError("give a schedule, or engine='deepspeed' with stages and micro_batches")
    if missing := [name for name in ("stages", "micro_batches") if name not in settings]:
        raise ValueError(f"without a schedule, say how many: {' and '.join(missing)}")
    if settings.get("speeds") is not None:
        settings = {**settings, "speeds": tuple(map(float, settings["speeds"]))}
    if settings.get("nsys"):
        nsys.check()
        settings = {"launcher": "deepspeed", **settings}
    job = Job(model=model, schedule=plan, **settings)
    if earlier is not None:
        check_continues(earlier, job)
    return job


def run_job(
    job: Job,
    begin: int | None = None,
    *,
    quiet: bool = False,
    keep: bool = True,
    on_loss: Callable[[int, float], None] | None = None,
    show: Progress | None = None,
    cut: Chosen | None = None,
    earlier: Run | None = None,
) -> Run:
    """Run a job; see ``run``. show: a progress display that exists already; cut: where the model
    is cut instead of where the job says; earlier: the run that it continues."""
    allowance.check(job.world)
    begin = begin or time.perf_counter_ns()
    warnings: list[str] = list(cut.notes) if cut else []
    if cut is not None:
        job = job.changed(bounds=cut.bounds, speeds=cut.speeds)
    kept = keep or job.profile or job.nsys or job.checkpoint
    directory = _directory(warnings, earlier) if kept else None
    if job.checkpoint and directory is None:
        raise OSError(f"no place for the checkpoint: {warnings[-1]}")
    start = {
        "job": job.as_json(),
        "cells": _cells(job),
        "path": [path for path in sys.path if path],
        "directory": os.getcwd(),
        "records": str(directory) if directory else None,
        "environment": launcher_environment() if job.distant else {},
    }
    show = show or progress(job, quiet)
    collected = Collected(job, begin)
    try:
        for event, blobs in client.events(start, _payload(job)):
            collected.take(event, blobs)
            if event["event"] == "placed":
                show.say(event["why"])
            elif event["event"] == "step":
                show.step(event["loss"], event["seconds"])
                if on_loss:
                    done = event["step"] - job.first_step + 1
                    on_loss(job.batch_number(done, 0), event["loss"])
            elif event["event"] == "stream":
                show.stream(event["micro_batch"], event["loss"])
                if on_loss:
                    on_loss(event["micro_batch"] + 1, event["loss"])
        result = collected.finish(directory, warnings)
        result.partition = cut.partition if cut else None
        if job.nsys and not result.reports:
            result.warnings.append(
                "Nsight Systems left no report: its own words are in the log of `deepspeed`"
            )
        result.earlier_losses = earlier.all_losses if earlier else []
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        show.close("stopped; all its processes have ended" if stopped else "failed")
        raise
    show.close(logs=logs_html(result.logs, result.warnings))
    if directory is not None:
        try:
            result.save(directory)
        except OSError as error:
            result.warnings.append(f"the record could not be written: {error}")
    return result


def _payload(job: Job) -> list[bytes]:
    if job.model.payload is None:
        return []
    from pplab.runtime import by_value

    return [by_value.dumps(job.model.payload)]


def _cells(job: Job) -> dict[str, list[str]]:
    """The text of this notebook's cells, when code of theirs goes to the ranks."""
    if job.model.payload is None:
        return {}
    from pplab.runtime import by_value

    return by_value.cells()


def _directory(warnings: list[str], earlier: Run | None = None) -> Path | None:
    with contextlib.suppress(OSError):
        return new_directory(spare=earlier.directory if earlier else None)
    warnings.append("no record is kept: its directory cannot be made (disk full? see $PPLAB_RUNS)")
    return None
