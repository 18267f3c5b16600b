"""Ranks, stages, micro-batches and the schedule: what divides, and what will stand idle."""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import whole
from pplab.core.batch import BatchError, ideal_bubble, least_micro_batches, ramp, replicas_of

GAS = "gradient_accumulation_steps"
#: Schedules that DeepSpeed ships (``runtime/pipe/schedule.py``, ``runtime/pipe/dualpipev.py``).
SHIPPED = {"1f1b", "dualpipev"}
#: Schedules that fold the pipeline, so that the first rank also holds the last layers.
FOLDED = {"dualpipev", "zb-v", "zbv"}


def ranks(job: Job) -> Iterator[Finding]:
    """stages * tensor divides the ranks."""
    for name, value in (("ranks", job.ranks), ("stages", job.pipe), ("tensor", job.slices)):
        if value is not None and value < 1:
            yield job.finding("wrong-value", "error", (), f"{name} must be at least 1.")
            return
    if job.ranks is None or job.pipe is None:
        return
    try:
        replicas_of(job.ranks, job.pipe, job.slices)
    except BatchError as error:
        stop = ""
        if job.ranks % job.pipe:
            stop = (
                f' DeepSpeed stops with "num_stages ({job.pipe}) must divide distributed world '
                f'size ({job.ranks})".'
            )
        yield job.finding(
            "ranks-not-divisible",
            "error",
            (),
            f"{error}.{stop}",
            "Ranks = stages x tensor-parallel size x replicas.",
            evidence=("runtime/pipe/module.py:175", "A09", "A17"),
        )


def shares(job: Job) -> Iterator[Finding]:
    """Experts are shared by the ranks of one stage, so that their size divides these."""
    if not job.ranks or job.ranks % (job.pipe or 1):
        return
    stage = job.ranks // (job.pipe or 1)
    expert = whole(job.get("expert_parallel.autoep_size", 1)) or 1
    wide = whole(job.get("expert_parallel.expert_tensor_parallel_size", 1)) or 1
    size = expert * wide
    if job.enabled("expert_parallel") and size > 0 and stage % size:
        yield job.finding(
            "ranks-not-divisible",
            "error",
            "expert_parallel.autoep_size",
            f"{size} ranks are to share the experts, and a stage has {stage} ({job.ranks} ranks / "
            f"{job.pipe or 1} stage(s)), which is no multiple of it.",
            f"Use a size that divides {stage}.",
            evidence=("module_inject/auto_ep_folding.py:112",),
        )


def micro_batches(job: Job) -> Iterator[Finding]:
    """Enough micro-batches to fill the pipeline."""
    p, m = job.pipe, job.micro_batches
    if not job.pipeline or p is None or p < 2 or m is None or m < 1:
        return
    bubble = ideal_bubble(p, m)
    told = "" if GAS in job.config else f" ({GAS} is not written, so it is {m})"
    good = least_micro_batches(p, 0.2)
    if m < p:
        yield job.finding(
            "few-micro-batches",
            "risky",
            GAS,
            f"{p} stages share {m} micro-batch(es) a step{told}: at least {bubble:.1%} of the time "
            f"is idle ((P-1)/(M+P-1)), and memory still grows with every further micro-batch up to "
            f"{p}.",
            f"Raise it, with smaller micro-batches if the global batch must stay: {p} fills the "
            f"pipeline once ({ideal_bubble(p, p):.0%} idle), {good} brings the ideal bubble to "
            f"{ideal_bubble(p, good):.0%}.",
            evidence=("runtime/pipe/engine.py:93", "A10", "A12", "A82", "B11"),
        )
    elif bubble >= 0.10:
        yield job.finding(
            "bubble",
            "note",
            GAS,
            f"Ideal bubble of {m} micro-batches in {p} stages: {bubble:.1%}; utilisation is at "
            f"most M/(M+P-1) = {1 - bubble:.1%}.",
            f"{good} micro-batches would bring the bubble to {ideal_bubble(p, good):.0%}."
            if good > m else "",
            evidence=("A13", "A103", "A91"),
        )  # fmt: skip


def schedule(job: Job) -> Iterator[Finding]:
    """What the schedule asks of the number of micro-batches."""
    p, m, name = job.pipe, job.micro_batches, job.schedule.lower()
    if name == "dualpipev" and p and m and m < 2 * p:
        yield job.finding(
            "few-micro-batches", "error", GAS,
            f"DualPipeV needs at least 2 x {p} micro-batches, not {m}: DeepSpeed asserts it.",
            f"Set {GAS} to {2 * p} or more.", evidence=("runtime/pipe/dualpipev.py:103",),
        )  # fmt: skip
    if name in FOLDED:
        yield job.finding(
            "folded-schedule", "note", (),
            "A V-shaped schedule puts the embedding and the output layer on the same rank 0.",
            "Budget its memory for both.", evidence=("A87",),
        )  # fmt: skip
    if name not in SHIPPED:
        yield job.finding(
            "schedule-not-shipped",
            "risky",
            (),
            f"DeepSpeed ships 1F1B and DualPipeV only, not {job.schedule}: no key selects another "
            "schedule.",
            "Override engine._train_schedule (pplab.run does), or use another framework.",
            evidence=("runtime/pipe/engine.py:500", "A93"),
        )
    interleaved = name == "interleaved" or (job.chunks > 1 and name not in FOLDED)
    if interleaved and p and m and m % p:
        yield job.finding(
            "interleaved-micro-batches",
            "error",
            GAS,
            f"The interleaved schedule deals micro-batches out in rounds of {p} stages; {m} is not "
            "a multiple of it.",
            f"Use {max(p, m // p * p)} or {(m // p + 1) * p}.",
            evidence=("A14", "A18"),
        )
    if interleaved and p == 2:
        yield job.finding(
            "interleaved-two-stages", "note", (),
            "Some versions of Megatron-LM refuse interleaving with 2 stages.", evidence=("A15",),
        )  # fmt: skip


def ramp_up(job: Job) -> Iterator[Finding]:
    """Every batch size of a ramp-up divides by micro-batch x replicas, and fills the pipeline."""
    given = job.ramp_up or job.config.get("rampup_batch_size")
    train, micro = job.written["train"], job.written["micro"]
    if not isinstance(given, (list, tuple)) or len(given) < 2:
        return
    start, increment = whole(given[0]), whole(given[1])
    if not train or not micro or not job.replicas or not start or not increment or start < 1:
        return
    if increment < 1:
        return
    sizes = ramp(start, increment, train, micro=micro, replicas=job.replicas)
    bad = [size for size, gas in sizes if gas is None]
    step = micro * job.replicas
    if bad:
        yield job.finding(
            "ramp-up",
            "error",
            "rampup_batch_size" if "rampup_batch_size" in job.config else (),
            f"The ramp-up {start}, {start + increment}, ... {train} has {len(bad)} sizes that do "
            f"not divide by micro-batch x replicas = {micro} x {job.replicas} = {step}, the first "
            f"is {bad[0]}.",
            f"Start and grow by multiples of {step}, or begin with fewer replicas.",
            evidence=("A102", "B25"),
        )
    first = sizes[0][1]
    if first is not None and job.pipe and first < job.pipe:
        yield job.finding(
            "ramp-up",
            "risky",
            (),
            f"The ramp-up starts with {first} micro-batch(es) for {job.pipe} stages: "
            f"{ideal_bubble(job.pipe, first):.0%} idle while it lasts.",
            f"Start at {job.pipe * step} samples or more.",
            evidence=("A90",),
        )


RULES = (ranks, shares, micro_batches, schedule, ramp_up)
