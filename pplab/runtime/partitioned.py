"""``run(..., partition=...)``: from what the learner asks for to bounds, before anything starts.

A method needs the time of every layer. Paced models say it themselves; other models are timed once
(``profiling``) and the times kept while this process lives.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pplab.core.partition import (
    METHODS,
    Partition,
    PartitionError,
    Problem,
    devices,
    solve,
)
from pplab.core.partition.cuts import check_bounds
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedule import Schedule
from pplab.core.schedules import dualpipev, one_f_one_b
from pplab.runtime.job import Job

#: A finished partition, bounds, or the name of a method.
Cut = Partition | Sequence[int] | str


@dataclass(frozen=True)
class Chosen:
    """Where a run will be cut, the speeds of its ranks, and what was predicted (None: nothing,
    since the times of the layers are not known); notes: what a reader should know."""

    bounds: tuple[int, ...]
    speeds: tuple[float, ...] | None
    partition: Partition | None
    notes: tuple[str, ...]


def choose(cut: Cut, job: Job, say: Callable[[str], None] = lambda text: None) -> Chosen:
    """The cut of a job. Raises PartitionError (a ValueError) for what cannot be, DoesNotFit when
    memory caps of the devices cannot be kept.

    say: told when the layers are timed, which takes some seconds.
    """
    if job.engine in ("plain", "zero"):
        raise ValueError(f"engine {job.engine!r} has no pipeline: there is nothing to cut")
    speeds, notes = job.speeds, list[str]()
    found: Partition | None
    if isinstance(cut, Partition):
        found, speeds, notes = retargeted(cut, job)
    elif isinstance(cut, str):
        method = cut.lower()  # as DeepSpeed does
        if method not in METHODS and not method.startswith("type:"):
            text = f"partition is bounds or one of {', '.join(METHODS)}, not {cut!r}"
            if method == "profile":
                text += " (a name DeepSpeed never gave code to; 'optimal' does time the layers)"
            raise PartitionError("no-such-method", text)
        found = solve(problem_of_job(job, profile_of(job, say)), method)
    else:
        if np.ndim(cut) != 1 or not len(cut):
            text = f"partition is a Partition, bounds or one of {', '.join(METHODS)}, not {cut!r}"
            raise PartitionError("not-bounds", text)
        profile = known_profile(job)
        layers = len(profile) if profile else layer_count(job) or cut[-1]
        bounds = check_bounds(cut, layers, job.slices)
        found = Partition(problem_of_job(job, profile), bounds) if profile else None
    bounds = found.bounds if found else bounds
    expected = layer_count(job)
    if expected and bounds[-1] != expected:
        text = f"the partition is of {bounds[-1]} layers, and the model has {expected}"
        raise PartitionError("wrong-end", text)
    ties = found.problem.profile.tied if found else ties_of(job)
    return Chosen(bounds, speeds, found, (*notes, *tied_notes(ties, bounds, job)))


def schedule_of(job: Job) -> Schedule:
    """The schedule a job follows; an engine's own is written down here."""
    if job.schedule is not None:
        return job.schedule
    maker = dualpipev if job.engine == "dualpipev" else one_f_one_b
    return maker(job.stages, job.micro_batches)


def problem_of_job(job: Job, profile: Profile, **options: Any) -> Problem:
    """What is to be cut for a job: its ranks are alike, or as fast as its speeds say."""
    speeds = job.speeds or 1.0
    own = {"devices": devices(job.stages, speed=speeds), **options}
    return Problem(profile, schedule_of(job), **own)


def retargeted(cut: Partition, job: Job) -> tuple[Partition, tuple[float, ...] | None, list[str]]:
    """A partition as it will be run: the run's schedule, and ranks as fast as the run's.

    Ranks of a paced model take the speeds of the partition's devices when the run gives none.
    """
    problem, schedule, notes = cut.problem, schedule_of(job), list[str]()
    if problem.schedule.layout != schedule.layout:
        a, b = problem.schedule.layout, schedule.layout
        text = f"the partition is for {a.stages} ranks x {a.chunks} chunks, the run has "
        raise PartitionError("wrong-count", text + f"{b.stages} x {b.chunks}")
    wanted = tuple(device.speed for device in problem.devices)
    speeds = job.speeds
    if speeds is None and any(speed != 1 for speed in wanted):
        if job.model.paced:
            speeds = wanted
        else:
            notes.append(
                "the cut was made for devices of unlike speed; here each rank is as fast as this "
                "machine lets it be, so its predicted times do not hold"
            )
    samples = problem.profile.samples
    if samples and samples != job.micro_batch_size:
        notes.append(
            f"the layers were timed with {samples} samples a micro-batch and run with "
            f"{job.micro_batch_size}: the predicted times do not hold"
        )
    own = problem.devices
    if speeds is not None:
        own = tuple(replace(d, speed=s) for d, s in zip(own, speeds, strict=True))
    same_plan = (problem.schedule.ops, own) == (schedule.ops, problem.devices)
    if same_plan:
        return cut, speeds, notes
    run_problem = replace(problem, schedule=schedule, devices=own)
    return Partition(run_problem, cut.bounds, cut.method, order=cut.order), speeds, notes


# -- times of the layers --------------------------------------------------------------------------

_timed: dict[str, tuple[Any, Profile]] = {}  # the payload too: it keeps its id() from being reused


def profile_of(job: Job, say: Callable[[str], None] = lambda text: None) -> Profile:
    """Times of a job's layers: from the model's description (paced), from before, or measured."""
    if (found := known_profile(job)) is not None:
        return found
    from pplab.runtime.profiling import profile

    say(f"times the layers of {job.model} first")
    measured = profile(
        job.model,
        micro_batch_size=job.micro_batch_size,
        dtype=job.dtype,
        device=job.device,
        threads=job.threads,
    )
    _timed[_key(job)] = (job.model.payload, measured)
    return measured


def known_profile(job: Job) -> Profile | None:
    """Times of a job's layers when they need not be measured, else None."""
    if job.model.paced:
        return paced_profile(job)
    _, found = _timed.get(_key(job), (None, None))
    return found


def paced_profile(job: Job) -> Profile:
    """What a paced model says of its layers (see ``nets.paced``), on a rank of speed 1."""
    settings = job.model.settings
    count, width = layer_count(job) or job.slices, settings["width"]
    size = 2 if job.dtype == "bf16" else 4

    def times(value: Any) -> list[float]:
        return value if isinstance(value, list) else [value] * count

    weights = width * width + width
    sample = job.micro_batch_size * width * size
    layers = [
        LayerProfile(
            f"paced {i}",
            forward,
            backward,
            parameters=weights,
            parameter_bytes=weights * size,
            activation_bytes=2 * sample,  # what the linear layer and tanh keep
            output_bytes=sample,
            kind="PacedLayer",
        )
        for i, (forward, backward) in enumerate(
            zip(times(settings["forward"]), times(settings["backward"]), strict=True)
        )
    ]
    return Profile(tuple(layers), "set: paced", samples=job.micro_batch_size)


def _key(job: Job) -> str:
    model = job.model
    own = id(model.payload) if model.payload is not None else None
    where = (job.micro_batch_size, job.dtype, job.device, job.threads)
    return json.dumps([model.family, model.settings, own, *where], default=str)


# -- what a description says ----------------------------------------------------------------------


def layer_count(job: Job) -> int | None:
    """How many layers a model has; None for the learner's own, which only the ranks build."""
    settings = job.model.settings
    if job.model.family == "gpt":
        return int(settings["layers"]) + 2 + bool(settings.get("tied"))
    if job.model.paced:
        return settings["layers"] or job.slices
    return None


def ties_of(job: Job) -> dict[str, tuple[int, ...]]:
    """Layers that share their weights, as far as the description says."""
    count = layer_count(job)
    tied = job.model.family == "gpt" and job.model.settings.get("tied")
    return {"bytes": (0, count - 1)} if tied and count else {}


def tied_notes(
    ties: Mapping[str, Sequence[int]], bounds: Sequence[int], job: Job
) -> tuple[str, ...]:
    """What DeepSpeed does about layers that share weights and lie on several ranks."""
    notes = []
    for key, numbers in ties.items():
        pieces = [bisect_right(bounds, number) - 1 for number in numbers]
        ranks = sorted({job.layout.place_of(piece)[0] for piece in pieces})
        if len(ranks) > 1:
            notes.append(
                f"layers {listed(numbers)} share their weights ({key!r}) and lie on ranks "
                f"{listed(ranks)}: DeepSpeed keeps a copy on each and adds up their gradients at "
                "the end of every step"
            )
    return tuple(notes)


def listed(numbers: Sequence[int]) -> str:
    """Numbers in words: 3; 3 and 4; 3, 4 and 7."""
    texts = list(map(str, numbers))
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
