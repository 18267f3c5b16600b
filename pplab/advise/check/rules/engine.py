"""Settings of the engine: clipping, printing, timers, checkpointing sections, plain values."""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import real, shown, truth, whole


def clipping(job: Job) -> Iterator[Finding]:
    """gradient_clipping: its default, and what its norm covers."""
    value = job.config.get("gradient_clipping")
    default = job.schema.table["defaults"].get("gradient_clipping", 0.0)
    if value is None and default and not job.framework:
        yield job.finding(
            "clipping-default", "note", "gradient_clipping",
            f"It is not written, and DeepSpeed {job.schema.version} then clips at {default}; "
            "older versions did not clip.",
            f'Write "gradient_clipping": {default}, or 0.0 for none.',
            evidence=("runtime/constants.py:203", "facts g3"),
        )  # fmt: skip
    limit = real(default if value is None else value)
    stages = job.pipe or 1
    if job.pipeline and job.dtype == "fp32" and job.zero == 0 and stages > 1 and limit:
        yield job.finding(
            "clipping-one-stage",
            "note",
            "gradient_clipping",
            "In fp32 without ZeRO the norm that decides about clipping is that of stage 0 only.",
            'Use "zero_optimization": {"stage": 1}, or "gradient_clipping": 0.0.',
            evidence=("runtime/utils.py:356", "facts g4"),
        )


def timers(job: Job) -> Iterator[Finding]:
    """wall_clock_breakdown (also through flops_profiler) breaks a pipeline in 0.19.8."""
    keys = {"wall_clock_breakdown": job.config.get("wall_clock_breakdown")}
    keys["flops_profiler.enabled"] = job.section("flops_profiler").get("enabled")
    on = [key for key, value in keys.items() if value is True]
    if not on or not job.pipeline or job.deepspeed != "0.19.8":
        return
    known = job.pipe is not None and job.pipe > 1
    if known:
        yield job.finding(
            "timers-crash",
            "error",
            on[0],
            f"{on[0]} stops every stage but the last in DeepSpeed 0.19.8: "
            '"bwd_microstep timer has already been started".',
            "Set it to false; record a timeline instead (pplab.run, or a profiler trace).",
            evidence=("runtime/pipe/engine.py:804", "facts g1"),
            repair=(Edit("set", tuple(on[0].split(".")), False),),
        )
    elif job.pipe is None:
        yield job.finding(
            "timers-crash", "note", on[0],
            f"{on[0]} stops a pipeline of two or more stages in DeepSpeed 0.19.8.",
            "Set it to false.", evidence=("runtime/pipe/engine.py:804", "facts g1"),
        )  # fmt: skip
    if job.config.get("steps_per_print") is None and not job.framework:
        yield job.finding(
            "timers-need-steps", "note" if job.pipe is None else "error", "steps_per_print",
            f"{on[0]} without steps_per_print ends in a TypeError (the number is None).",
            'Write "steps_per_print": 10.',
            evidence=("runtime/pipe/engine.py:1240", "facts g2"),
            repair=(Edit("set", ("steps_per_print",), 10),),
        )  # fmt: skip


def printing(job: Job) -> Iterator[Finding]:
    """steps_per_print: nothing is printed without it, and 0 divides by zero."""
    value = job.config.get("steps_per_print")
    if value == "auto":
        return  # see ``auto``
    if value is None:
        if job.pipeline and not job.framework and "steps_per_print" not in job.config:
            yield job.finding(
                "no-progress-lines", "note", "steps_per_print",
                "Without it DeepSpeed prints no step, loss or samples/s.",
                'Write "steps_per_print": 10.', evidence=("runtime/constants.py:46", "facts e"),
            )  # fmt: skip
        return
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if number is None or number <= 0:
        yield job.finding(
            "wrong-value" if number is not None else "wrong-type",
            "error",
            "steps_per_print",
            f"steps_per_print is a number of at least 1, not {shown(value)}: the engine divides "
            "by it.",
            "Write a number, or remove the key for no output.",
            evidence=("runtime/pipe/engine.py:377",),
        )


def values(job: Job) -> Iterator[Finding]:
    """Plain top-level settings: true or false, numbers, and one of several words."""
    for key, default in job.schema.table["defaults"].items():
        value = job.config.get(key)
        if value is None or value == "auto":
            continue  # see ``plain`` for wall_clock_breakdown
        if isinstance(default, bool) and not isinstance(value, bool):
            yield _not_bool(job, key, value)
    for key in ("gradient_clipping", "gradient_predivide_factor"):
        value = job.config.get(key)
        if value == "auto":
            continue  # see ``auto``
        if isinstance(value, bool):
            yield job.finding(
                "wrong-type", "risky", key,
                f'"{key}" is a number: {shown(value)} counts as {float(value)}.',
                f"Write {float(value)}, or the number that is meant.",
                repair=(Edit("set", (key,), float(value)),),
            )  # fmt: skip
        elif value is not None and (isinstance(value, str) or real(value) is None):
            number = real(value)
            yield job.finding(
                "wrong-type", "error", key,
                f'"{key}" must be a number, not {shown(value)}.', "Write a number.",
                repair=(Edit("set", (key,), number),) if number is not None else (),
            )  # fmt: skip
        elif value is not None and value < 0:
            yield job.finding(
                "wrong-value", "wrong", key, f"{value} is negative: nothing is clipped or divided.",
                "Write 0 or more.",
            )  # fmt: skip
    value = job.config.get("gradient_allreduce_op")
    if value is not None and str(value).lower() not in ("mean", "sum"):
        yield job.finding(
            "wrong-value", "error", "gradient_allreduce_op",
            f'{shown(value)} is not "mean" or "sum": DeepSpeed stops.', 'Write "mean".',
            evidence=("runtime/config.py:247",),
        )  # fmt: skip
    elif str(value).lower() == "sum" and job.zero == 3:
        yield job.finding(
            "zero-conflict", "error", "gradient_allreduce_op",
            '"sum" is not supported with ZeRO-3.', 'Write "mean".',
            evidence=("runtime/config.py:696",),
        )  # fmt: skip
    if job.pipeline and job.config.get("managed_gradient_accumulation") is False:
        yield job.finding(
            "pipeline-conflict", "error", "managed_gradient_accumulation",
            "false is not supported with a pipeline: DeepSpeed asserts it.", "Remove the key.",
            evidence=("runtime/engine.py:2034",),
            repair=(Edit("remove", ("managed_gradient_accumulation",)),),
        )  # fmt: skip


def _not_bool(job: Job, key: str, value: object) -> Finding:
    text = isinstance(value, str)
    meant = truth(value) if text and str(value).lower() in _WORDS else None
    stops = key == "wall_clock_breakdown" and not isinstance(value, int)
    effect = "DeepSpeed stops with a TypeError" if stops else "any text counts as true"
    if not text and not stops:
        effect = "it counts as " + ("true" if value else "false")
    return job.finding(
        "wrong-type",
        "error" if stops else "wrong" if text or not isinstance(value, int) else "risky",
        key,
        f'"{key}" must be true or false, not {shown(value)}: {effect}.',
        "Write true or false without quotes.",
        repair=(Edit("set", (key,), meant),) if meant is not None else (),
    )


_WORDS = {"true", "false", "yes", "no", "on", "off", "1", "0"}


def activation_checkpointing(job: Job) -> Iterator[Finding]:
    """The section alone checkpoints nothing."""
    section = job.section("activation_checkpointing")
    if not section:
        return
    more = ""
    if job.pipeline and not whole(job.get("pipeline.activation_checkpoint_interval", 0)):
        more = (
            " In a pipeline checkpointing is turned on by "
            '"pipeline": {"activation_checkpoint_interval": 1} or by PipelineModule.'
        )
    yield job.finding(
        "checkpointing-section",
        "note",
        "activation_checkpointing",
        "This section turns nothing on: its options act only when the script calls "
        f"deepspeed.checkpointing.configure.{more}",
        "Call it, or remove the section.",
        evidence=("runtime/activation_checkpointing/checkpointing.py:1152", "A31", "claims 2.12"),
    )


RULES = (clipping, timers, printing, values, activation_checkpointing)
