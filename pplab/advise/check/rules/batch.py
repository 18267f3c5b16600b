"""The batch triangle: present, numbers, positive, and equal for the replicas of this job."""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import shown, whole
from pplab.core.batch import KEYS, Batch, proposals, resolve

EVIDENCE = ("runtime/config.py:607", "A01", "A02", "A04")


def numbers(job: Job) -> Iterator[Finding]:
    """The three values are whole numbers."""
    for key in KEYS.values():
        value = job.config.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            continue
        if value == "auto":
            continue  # see ``auto``
        number = None if isinstance(value, bool) else whole(value)
        yield job.finding(
            "wrong-type",
            "error",
            key,
            f'"{key}" must be a whole number, not {shown(value)}: DeepSpeed calculates with it as '
            "it is and stops with a TypeError.",
            f'Write "{key}": {number}.' if number is not None else "Write a whole number.",
            evidence=("runtime/config.py:607", "runtime/pipe/schedule.py:200"),
            repair=(Edit("set", (key,), number),) if number is not None else (),
        )


def triangle(job: Job) -> Iterator[Finding]:
    """train = micro * gas * replicas, with what is missing filled in by floor division."""
    if any(isinstance(job.config.get(key), (str, bool)) for key in KEYS.values()):
        return
    written = job.written
    if written["train"] is None and written["micro"] is None:
        yield from _missing(job)
        return
    batch = job.batch
    if batch is None:
        yield from _for_no_replicas(job)
    elif not batch.ok:
        yield _broken(job, batch)


def _missing(job: Job) -> Iterator[Finding]:
    if job.framework:
        yield job.finding(
            "batch-missing", "note", "train_batch_size",
            "No batch size here: this file is complete only with another one that has it.",
            evidence=("B40",),
        )  # fmt: skip
    else:
        yield job.finding(
            "batch-missing",
            "error",
            "train_batch_size",
            'DeepSpeed stops with "Either train_batch_size or train_micro_batch_size_per_gpu needs '
            'to be provided".',
            'Write "train_micro_batch_size_per_gpu" and "gradient_accumulation_steps".',
            evidence=("runtime/config.py:650",),
        )


def _broken(job: Job, batch: Batch) -> Finding:
    """The triangle fails for a number of replicas that is known."""
    small = batch.too_small if batch.reason != "unequal" else ""
    key = KEYS[small] if small else "train_batch_size"
    found = proposals(batch)
    gas = [p for p in found if p.changed[0][0] == "gas" and len(batch.written) == 3]
    repair = [Edit("set", (KEYS["gas"],), gas[0].changed[0][2])] if gas else []
    d = f"d = {batch.replicas} replica(s)"
    if job.ranks is not None:
        each = f"{job.pipe or 1} stage(s) x {job.slices}" if job.slices > 1 else f"{job.pipe or 1}"
        d += f" = {job.ranks} ranks / {each}{' stage(s)' if job.slices == 1 else ''}"
        d += f" / {job.sequence} that share a sequence" if job.sequence > 1 else ""
    if job.stages is None and job.intended and job.pipeline:
        d += f" (taking the ignored key's {job.intended} stages for what is meant)"
    name = "batch-triangle" if batch.reason in ("unequal", "divided-by-zero") else "batch-too-small"
    if small and small not in batch.filled:
        name = "wrong-value"
    return job.finding(
        name,
        "error",
        key,
        f'{batch.sentence()} {d}; in DeepSpeed\'s message this d is "world_size".',
        _advice(job, batch),
        evidence=(*EVIDENCE, "A03", "A07", "A11"),
        repair=repair,
    )


def _advice(job: Job, batch: Batch) -> str:
    told = []
    for proposal in proposals(batch, 4):
        name, old, new = proposal.changed[0]
        if name == "replicas":
            each = (job.pipe or 1) * job.slices * job.sequence
            noun = "rank" if new * each == 1 else "ranks"
            told.append(f"{new * each} {noun} instead of {old * each}")
        else:
            told.append(f"{KEYS[name]} {new} instead of {old}")
    return f"Nearest that work: {', or '.join(told)}." if told else "Write positive numbers."


def _for_no_replicas(job: Job) -> Iterator[Finding]:
    """The ranks are not known: is there any number of replicas for which it holds?"""
    train, micro, gas = (job.written[k] for k in KEYS)
    if train is None:
        low = [k for k in ("micro", "gas") if job.written[k] is not None and job.written[k] < 1]  # type: ignore[operator]
        if low:
            yield _broken(job, resolve(None, micro, gas, replicas=1))
        return
    each = (1 if micro is None else micro) * (1 if gas is None else gas)
    if min(train, each) < 1:
        yield _broken(job, resolve(train, micro, gas, replicas=1))
    elif train % each:
        batch = resolve(train, micro, gas, replicas=1)
        yield job.finding(
            "batch-triangle",
            "error",
            "train_batch_size",
            f"No number of replicas makes this hold: train_batch_size {train} is not a multiple "
            f"of {' x '.join(str(n) for n in (micro, gas) if n is not None)}.",
            _advice(job, batch),
            evidence=EVIDENCE,
        )


def fits(job: Job) -> list[int]:
    """Numbers of replicas for which the written batch holds; [] when any does or none is known."""
    train, micro, gas = (job.written[k] for k in KEYS)
    if train is None or train < 1 or (micro is None and gas is None):
        return []
    each = (micro or 1) * (gas or 1)
    if each < 1 or train % each:
        return []
    if micro and gas:
        return [train // each]
    whole_ = train // each
    return [d for d in range(1, min(whole_, 4096) + 1) if whole_ % d == 0]


RULES = (numbers, triangle)
