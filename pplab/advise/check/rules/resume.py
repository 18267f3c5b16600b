"""Resuming: a checkpoint of other stages, replicas or tensor-parallel size.

Needs ``saved``: {"stages": 2, "tensor": 1, "replicas": 4, "zero": 1} of the run that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job

UNIVERSAL = (
    "Convert it: python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state, then "
    '"checkpoint": {"load_universal": true} (ZeRO-1 on both sides).'
)


def reshape(job: Job) -> Iterator[Finding]:
    """What changed, and whether DeepSpeed can load it."""
    if not job.saved:
        return
    now = {"stages": job.pipe, "replicas": job.replicas, "tensor": job.slices, "zero": job.zero}
    changed = {
        name: (was, now[name])
        for name, was in job.saved.items()
        if now.get(name) is not None and now[name] != was
    }
    universal = job.get("checkpoint.load_universal") is True
    told = ", ".join(f"{name} {a} -> {b}" for name, (a, b) in changed.items())
    if "tensor" in changed:
        yield job.finding(
            "checkpoint-shape", "error", "checkpoint",
            f"The tensor-parallel size changed ({told}); a universal checkpoint does not help: the "
            "weights stay cut for the old one.",
            "Merge the weights first, or resume with the old size.", evidence=("A97",),
        )  # fmt: skip
    elif universal and job.zero == 0:
        yield job.finding(
            "checkpoint-shape", "error", "checkpoint.load_universal",
            "A universal checkpoint is loaded with ZeRO-1; with stage 0 it fails.",
            'Set "zero_optimization": {"stage": 1}.', evidence=("facts f",),
        )  # fmt: skip
    elif not universal and "stages" in changed:
        yield job.finding(
            "checkpoint-shape", "error", "checkpoint",
            f"The number of stages changed ({told}): optimizer states do not fit, and the message "
            'says something else ("parameter group", "alignment layout").',
            UNIVERSAL, evidence=("facts f", "A108"),
        )  # fmt: skip
    elif not universal and "replicas" in changed and job.zero >= 1:
        yield job.finding(
            "checkpoint-shape", "error", "checkpoint",
            f"The number of replicas changed ({told}): ZeRO-1 does not divide saved states anew.",
            UNIVERSAL, evidence=("A95", "A108"),
        )  # fmt: skip


RULES = (reshape,)
