"""``pplab.profile``: from a model to what each of its layers costs."""

from __future__ import annotations

import os
import sys
from typing import Any

from pplab.core.profile import LayerProfile, Profile
from pplab.runtime import by_value, client
from pplab.runtime.failure import RunError, explain
from pplab.runtime.hardware import hardware
from pplab.runtime.job import Job
from pplab.runtime.profiling.progress import Progress, where
from pplab.runtime.profiling.subject import describe, pack

WHO = "the profile"


def profile(
    model: Any = None,
    sample: Any = None,
    *,
    repeats: int = 20,
    warmup: int = 3,
    seconds: float = 60.0,
    micro_batch_size: int = 4,
    context: int | None = None,
    dtype: str = "fp32",
    device: str = "auto",
    threads: int = 1,
    seed: int = 0,
    hang_after: float = 120.0,
    quiet: bool = False,
) -> Profile:
    """Measure every layer of a model: time of F and B, parameters, activations, what it hands on.

    model: ``pplab.models.gpt()`` (default), ``.paced()``, ``.own()``; or, with a `sample` of the
    input, a list of ``nn.Module`` / ``LayerSpec`` / functions, an ``nn.Sequential``, or a function
    that returns one (so that the notebook need not import torch); or a Hugging Face config (the
    object, a function that makes it, a dictionary or the path of a config.json with its
    "model_type"), whose model is built with random weights and never downloaded.
    sample: one micro-batch of inputs: a tensor, an array or nested list of numbers, a tuple of
    these where the first layer takes a tuple, or a function that returns one. Floats are cast to
    `dtype`. A Hugging Face model may do without: random ids of `micro_batch_size` x `context`
    (default: 128, or as many as the model can take).
    repeats: measured passes a layer; fewer, but at least three, when they would take longer than
    `seconds`. warmup: passes before them that do not count. hang_after: seconds without any layer
    starting or ending before it is stopped. quiet: show no progress. micro_batch_size, seed,
    threads, dtype ("fp32", "bf16"), device ("auto", "cpu", "cuda"): as for ``pplab.run``.

    How: the model is built in a process of its own, like a rank's (one thread, training mode), and
    micro-batches go through it forward and backward, gradients adding up as from the second
    micro-batch of a step on. Every other time it is cut between all layers: each gets a leaf tensor
    and its own backward call, under ``torch.profiler`` with one ``record_function`` range a layer
    and pass. The other times it runs undivided and unprofiled, timed by the clock. The cuts and the
    profiler cost time, some 5 to 30 %: per pass, what the ranges take longer than the undivided
    model is taken off again, in proportion to the operations that the profiler saw in each range.
    So the layers add up to the undivided model. On a GPU, CUDA events take the place of both.
    Times are medians over the repeats, `spread` is half the interquartile range of F + B.
    A loss is counted with the last layer. ``notes`` of the result say what else a reader must know.

    The model never runs in this process. Raises ValueError or TypeError before anything starts;
    RunError, with the layer and pass it happened in, when something fails, dies or hangs.
    """
    from pplab.runtime import models

    if repeats < 3 or warmup < 1:
        raise ValueError(
            "a median needs at least 3 repeats, and the first pass (warmup) never counts"
        )
    what = describe(models.gpt() if model is None else model, sample)
    job = Job(
        model=what,
        stages=1,
        micro_batches=1,
        steps=1,
        engine="plain",
        micro_batch_size=micro_batch_size,
        dtype=dtype,
        device=device,
        threads=threads,
        seed=seed,
        hang_after=hang_after,
    )
    start = {
        "job": job.as_json(),
        "task": {"repeats": repeats, "warmup": warmup, "seconds": seconds, "context": context},
        "cells": by_value.cells() if what.payload is not None else {},
        "path": [path for path in sys.path if path],
        "directory": os.getcwd(),
        "records": None,
    }
    blobs, show = pack(what), Progress(repeats, quiet)
    found: dict[str, dict[str, Any]] = {}
    try:
        for event, _ in client.events(start, blobs):
            found[event["event"]] = event
            if event["event"] == "placed":
                show.say(where(event))
            elif event["event"] == "repeat":
                show.reach(event["done"])
        result = _profile(job, found)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        show.close("stopped; its process has ended" if stopped else "failed")
        raise
    show.close(where(found["placed"]))
    return result


def _profile(job: Job, found: dict[str, dict[str, Any]]) -> Profile:
    """The Profile from the events of the process; raises RunError when it failed."""
    if "failed" in found:
        raise failure(found["failed"])
    if "done" not in found or "result" not in found:
        raise RunError("the process that measured ended without a word: was it killed?")
    result, placed = found["result"], found["placed"]
    return Profile(
        tuple(LayerProfile(**layer) for layer in result["layers"]),
        source=_source(job, placed),
        unit="s",
        samples=result["samples"],
        hardware={**hardware().as_json(), "versions": placed["hardware"]["versions"]},
        notes=tuple(result["notes"]),
    )


def _source(job: Job, placed: dict[str, Any]) -> str:
    if job.model.paced:
        return "measured: paced"
    if placed["device"] == "cuda":
        return f"measured: computed on a GPU, {job.dtype}"
    return f"measured: computed, {job.threads} thread{'s' * (job.threads > 1)}, {job.dtype}"


def failure(event: dict[str, Any]) -> RunError:
    """The error of a profile in its own words: there is one process, not a pipeline of ranks."""
    error = explain(event, None)
    cause = error.cause
    if event["kind"] == "hang":
        (rank,) = event["ranks"]
        doing, lasting = rank["doing"], f" for {rank['for']:.0f} s" if rank["for"] else ""
        cause = f"{WHO} hangs: nothing has happened{lasting}; it {doing} and does not come back"
        error.details.clear()
    for other in ("rank 0", "the run"):  # there is one process, and it is no run
        if cause.startswith(other):
            cause = WHO + cause.removeprefix(other)
    return RunError(cause, error.details, error.traceback, error.ranks)
