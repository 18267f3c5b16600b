"""What depends on DeepSpeed's version. Needs ``version``, when it is not the installed one.

Bounds are those of the reports: a first version is where a report saw it, a last one the release
before the mending change.
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job

#: Keys of zero_optimization -> the release that brought them.
SINCE = {
    "zero_hpz_partition_size": "0.10.0",
    "zero_quantized_weights": "0.10.0",
    "zero_quantized_gradients": "0.10.0",
}


def number(version: str) -> tuple[int, ...]:
    """ "0.18.2" as (0, 18, 2); what is no number counts as 0."""
    parts = version.split("+")[0].split(".")
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def between(version: str, first: str, last: str) -> bool:
    """Whether a version lies in a range, both ends included."""
    return number(first) <= number(version) <= number(last)


def keys(job: Job) -> Iterator[Finding]:
    """Keys that this version does not have yet."""
    for key in job.section("zero_optimization"):
        since = SINCE.get(key)
        if since and number(job.deepspeed) < number(since):
            yield job.finding(
                "too-new-key", "error", ("zero_optimization", key),
                f"{key} came with DeepSpeed {since}; {job.deepspeed} stops at it "
                '("extra fields not permitted").',
                f"Upgrade to {since} or later, or remove it.", evidence=("A29",),
            )  # fmt: skip


def pipeline_bugs(job: Job) -> Iterator[Finding]:
    """Bugs of the pipeline engine that were mended."""
    v, m = job.deepspeed, job.micro_batches
    if not job.pipeline:
        return
    if between(v, "0.18.0", "0.18.2") and (m is None or m > 1):
        yield job.finding(
            "version-bug", "wrong", "gradient_accumulation_steps",
            f"DeepSpeed {v} sums the gradients of the micro-batches instead of averaging them "
            "(reported on 0.18.2): the gradient norm grows with GAS.",
            "Upgrade to 0.18.3 or later.", evidence=("A72",),
        )  # fmt: skip
    if between(v, "0.18.3", "0.19.2") and (m is None or m > 1) and (job.pipe or 2) > 1:
        yield job.finding(
            "version-bug", "wrong", "gradient_accumulation_steps",
            f"DeepSpeed {v} divides by GAS once a stage (reported on 0.19.2): stage 0 of two gets "
            "1/GAS^2 of its gradient.",
            "Upgrade: PR #8154 mends it.", evidence=("A73",),
        )  # fmt: skip
    if between(v, "0.12.0", "0.12.4"):
        yield job.finding(
            "version-bug", "wrong", (),
            f"DeepSpeed {v} reports a loss of 0 from a pipeline (reported on 0.12.2; the change "
            "was taken back).",
            "Use another version.", evidence=("A74",),
        )  # fmt: skip
    if number(v) < number("0.13.1"):
        yield job.finding(
            "version-bug", "risky", (),
            f"The balancer of DeepSpeed {v} may leave the last stage empty: 5 equal layers on 4 "
            "stages became 2, 2, 1, 0.",
            "Upgrade, or cut with partition_method=\"uniform\" after looking at the counts.",
            evidence=("A42",),
        )  # fmt: skip
    if number(v) < number("0.8.2"):
        yield job.finding(
            "version-bug", "note", (),
            f"DeepSpeed {v} keeps one pipeline buffer more than needed.", "Upgrade.",
            evidence=("A84",),
        )  # fmt: skip
    interval = job.get("pipeline.activation_checkpoint_interval", 0)
    if number(v) < number("0.19.6") and interval:
        yield job.finding(
            "version-bug", "note", "pipeline.activation_checkpoint_interval",
            "Before mid-2026 set_checkpoint_interval() of a built module had no effect.",
            "Set the interval here or in PipelineModule.", evidence=("A35",),
        )  # fmt: skip


RULES = (keys, pipeline_bugs)
