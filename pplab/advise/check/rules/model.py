"""Layers and stages: what is cut where, which stages end up empty, and whether it can fit.

Needs ``layers``, ``parts`` or a ``model`` (a pplab Profile) beside the config.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import whole

#: Largest over mean parameters of a stage from which it is worth a word.
UNEVEN = 1.2


def layer_count(job: Job) -> int | None:
    """Layers: as given, the model's, or GPT-NeoX's num_layers."""
    if job.layers is not None:
        return job.layers
    if job.model is not None:
        return len(job.model.layers)
    return whole(job.neox.get("num_layers")) if job.neox else None


def counts(job: Job) -> Iterator[Finding]:
    """Layers over stages by number alone."""
    layers, stages = layer_count(job), job.pipe
    if not layers or not stages or stages < 2 or not job.pipeline:
        return
    slices = stages * max(1, job.chunks)
    if layers < slices:
        yield job.finding(
            "empty-stages",
            "error",
            (),
            f"{layers} layers over {slices} stages leave {slices - layers} without a layer. "
            'DeepSpeed does not refuse that: the empty ranks die with "optimizer got an empty '
            'parameter list", and the others wait for them.',
            f"Use at most {layers} stages.",
            evidence=("runtime/utils.py:606", "A42", "A45"),
        )
    elif layers % slices:
        if job.chunks > 1:
            yield job.finding(
                "layers-do-not-divide", "error", (),
                f"{layers} layers are not a multiple of {stages} stages x {job.chunks} chunks: "
                "Megatron-LM builds only what divides and drops the rest.",
                f"Use {layers // slices * slices} or {(layers // slices + 1) * slices} layers.",
                evidence=("A47",),
            )  # fmt: skip
        else:
            size, more = divmod(layers, stages)
            yield job.finding(
                "uneven-layers",
                "note",
                (),
                f"{layers} equal layers do not divide by {stages} stages: DeepSpeed gives the "
                f"first {more} stage(s) {size + 1} and the others {size}. Megatron-LM without a "
                f"layout would build {size * stages}.",
                "Fewer layers belong where the embedding and the output layer are.",
                evidence=("A46", "A55"),
            )


def parts(job: Job) -> Iterator[Finding]:
    """A cut by hand covers every layer once."""
    if job.parts is None:
        return
    layers, sizes = layer_count(job), list(job.parts)
    text = " + ".join(map(str, sizes))
    if layers is not None and sum(sizes) != layers:
        yield job.finding(
            "parts-do-not-sum", "error", (),
            f"{text} = {sum(sizes)}, but the model has {layers} layers: "
            + ("some are dropped without a word." if sum(sizes) < layers else "there are too few."),
            f"The parts must add up to {layers}.", evidence=("A48", "A53"),
        )  # fmt: skip
    if job.pipe and len(sizes) != job.pipe:
        yield job.finding(
            "parts-do-not-sum", "error", (),
            f"{len(sizes)} parts for {job.pipe} stages.", "Give one number a stage.",
        )  # fmt: skip
    if any(size < 1 for size in sizes):
        yield job.finding(
            "empty-stages", "error", (), f"{text}: a stage without layers.",
            "Give every stage at least one layer with trainable parameters.",
            evidence=("A42", "A45"),
        )  # fmt: skip


def stages(job: Job) -> Iterator[Finding]:
    """A profile cut as DeepSpeed would: parameters per stage."""
    if job.model is None or not job.pipe or job.pipe < 2:
        return
    from pplab.core.partition.cuts import PartitionError
    from pplab.core.partition.deepspeed import partition_layers

    layers = job.model.layers
    kinds = [layer.kind or layer.name for layer in layers]
    counts_ = [layer.parameters for layer in layers]
    if job.parts is not None and sum(job.parts) == len(layers) and len(job.parts) == job.pipe:
        bounds: tuple[int, ...] = (0,)
        for size in job.parts:
            bounds = (*bounds, bounds[-1] + size)
    else:
        try:
            bounds = partition_layers(job.partition, job.pipe, counts_, kinds)
        except PartitionError as error:
            yield job.finding(
                "partition-method", "error", (), f"{error}.",
                'Use "parameters", "uniform", or a type:regex that matches your layers.',
                evidence=("runtime/pipe/module.py:418",),
            )  # fmt: skip
            return
    totals = [sum(counts_[a:b]) for a, b in pairwise(bounds)]
    empty = [s for s, total in enumerate(totals) if total == 0]
    if empty:
        yield job.finding(
            "stage-without-parameters",
            "error",
            (),
            f"Stage(s) {', '.join(map(str, empty))} have no trainable parameter "
            f"({job.partition} cuts at {', '.join(map(str, bounds))}): their optimizer stops with "
            '"got an empty parameter list", and with ZeRO the others hang in the gradient norm.',
            "Cut elsewhere, so that every stage learns something (frozen and parameterless layers "
            "do not count).",
            evidence=("A43", "A45", "A49", "A54"),
        )
    mean = sum(totals) / len(totals)
    if not empty and mean and max(totals) / mean > UNEVEN:
        worst = totals.index(max(totals))
        yield job.finding(
            "uneven-parameters", "note", (),
            f"Stage {worst} holds {max(totals) / mean:.2f} times the mean number of parameters "
            f"({', '.join(f'{t / 1e6:.1f}M' for t in totals)}).",
            "Its memory and time will stand out; see pplab.core.partition.",
            evidence=("A40", "A41", "A52"),
        )  # fmt: skip
    for s, (a, b) in enumerate(pairwise(bounds)):
        only = b > a and all(re.search("embed", kind, re.IGNORECASE) for kind in kinds[a:b])
        if only and job.dtype == "bf16" and job.zero == 1:
            yield job.finding(
                "stage-only-embedding", "risky", (),
                f"Stage {s} is an embedding and nothing else; with bf16 and ZeRO-1 such jobs were "
                "seen to hang until the broadcast times out.",
                "Give it a transformer layer as well, or use ZeRO-0 or fp16.", evidence=("A44",),
            )  # fmt: skip


def fits(job: Job) -> Iterator[Finding]:
    """Model states of a GPT-NeoX config against the memory of a device."""
    shape = {key: whole(job.neox.get(key)) for key in ("num_layers", "hidden_size")}
    layers, hidden = shape["num_layers"], shape["hidden_size"]
    if not layers or not hidden or layers < 1 or hidden < 1:
        return
    from pplab.core.memory.states import model_states

    total = 12 * layers * hidden**2
    mine = total / max(1, (job.pipe or 1) * job.slices)
    replicas = job.replicas or 10**6  # however many: the least that is needed
    states = model_states(mine, zero=job.zero, replicas=replicas)
    if states.device > job.device_bytes:
        yield job.finding(
            "does-not-fit",
            "risky",
            (),
            f"About {total / 1e9:.0f} billion parameters need {16 * total / 1e12:.1f} TB of model "
            f"states (16 bytes each); a rank of {job.pipe or 1} stage(s) x {job.slices} holds "
            f"{states.device / 1e9:.0f} GB of them with ZeRO-{job.zero}, a device has "
            f"{job.device_bytes / 1e9:.0f} GB.",
            "Raise pipe-parallel-size and model-parallel-size, or use ZeRO-3 without a pipeline.",
            evidence=("B27", "A82"),
        )


RULES = (counts, parts, stages, fits)
