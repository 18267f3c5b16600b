"""Data: a last batch that is too short, a loader that ends too soon, another batch in eval.

Needs ``samples``, ``steps`` or ``eval_micro_batch`` beside the config.
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job


def short_batch(job: Job) -> Iterator[Finding]:
    """Samples of a replica that do not divide by the micro-batch."""
    micro = job.written["micro"] or (job.batch.micro if job.batch and job.batch.ok else None)
    if not job.samples or not job.replicas or not micro or not job.pipeline:
        return
    mine = -(-job.samples // job.replicas)  # DistributedSampler pads to equal shares
    rest = mine % micro
    if rest and job.config.get("dataloader_drop_last") is not True:
        yield job.finding(
            "short-last-batch",
            "error",
            "dataloader_drop_last",
            f"{job.samples} samples over {job.replicas} replicas are {mine} each, which leaves a "
            f"last micro-batch of {rest} instead of {micro}: stages expect one shape and stop.",
            'Write "dataloader_drop_last": true.',
            evidence=("runtime/pipe/engine.py:259", "A67", "A68"),
            repair=(Edit("set", ("dataloader_drop_last",), True),),
        )


def loader_length(job: Job) -> Iterator[Finding]:
    """Enough micro-batches for the steps."""
    micro = job.written["micro"] or (job.batch.micro if job.batch and job.batch.ok else None)
    if not job.samples or not job.steps or not job.replicas or not micro or not job.micro_batches:
        return
    there = -(-job.samples // job.replicas) // micro
    wanted = job.steps * job.micro_batches
    if wanted > there:
        yield job.finding(
            "loader-too-short",
            "risky",
            (),
            f"{job.steps} steps x {job.micro_batches} micro-batches take {wanted} micro-batches, "
            f"an epoch has {there}: when the iterator ends, the first and last stage stop and the "
            "stages between wait for ever.",
            "Wrap the loader in deepspeed.utils.RepeatingLoader, or stop after "
            f"{there // job.micro_batches} steps.",
            evidence=("runtime/pipe/engine.py:259", "A69"),
        )


def evaluation(job: Job) -> Iterator[Finding]:
    """eval_batch exchanges the shapes of training."""
    micro, other = job.written["micro"], job.eval_micro_batch
    if job.pipeline and micro and other and micro != other:
        yield job.finding(
            "eval-micro-batch", "error", "train_micro_batch_size_per_gpu",
            f"Evaluation with micro-batches of {other} after training with {micro}: the stages "
            "keep the receive buffers of training.",
            f"Evaluate with {micro}, or call engine.reset_activation_shape() on all ranks between.",
            evidence=("runtime/pipe/engine.py:316", "A70", "A71"),
        )  # fmt: skip


RULES = (short_batch, loader_length, evaluation)
