"""Values in plain sections that DeepSpeed stops at: checkpoint, torch_autocast, timers, profiler.

Found by giving the installed ``DeepSpeedConfig`` random values (see tests/unit/test_check_real.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import shown
from pplab.advise.check.words import DTYPES

TAGS = ("WARN", "IGNORE", "FAIL")
WRITERS = ("MOCK", "PYTHON", "FAST")
UNITS = ("REPLICA", "SOCKET", "MACHINE")


def _stops(job: Job, path: str, value: Any, wanted: str, place: str) -> Finding:
    return job.finding(
        "wrong-type", "error", path,
        f'"{path.rsplit(".", 1)[-1]}" must be {wanted}, not {shown(value)}: DeepSpeed stops.',
        "Correct the value, or remove the key.", evidence=(place,),
    )  # fmt: skip


def inner_sections(job: Job) -> Iterator[Finding]:
    """Sections inside plain sections."""
    for path, place, null in (
        ("timers.throughput", "utils/config.py:28", False),
        ("checkpoint.parallel_write", "runtime/config.py:400", False),
        ("checkpoint.writer", "runtime/model_checkpointing/config.py:36", True),
    ):
        outer, inner = path.split(".")
        section = job.section(outer)
        value = section.get(inner, {})
        if not isinstance(value, dict) and not (null and value is None):
            yield _stops(job, path, value, "a section {...}", place)


def checkpoint(job: Job) -> Iterator[Finding]:
    """Words of the checkpoint section."""
    section = job.section("checkpoint")
    places = (
        ("tag_validation", section, TAGS, "runtime/config.py:390"),
        ("writer.type", section.get("writer"), WRITERS, "runtime/model_checkpointing/config.py:40"),
        ("writer.data_parallel", section.get("writer"), UNITS,
         "runtime/model_checkpointing/config.py:40"),
    )  # fmt: skip
    for name, holder, choices, place in places:
        key = name.rsplit(".", 1)[-1]
        if not isinstance(holder, dict) or key not in holder:
            continue
        value = holder[key]
        if value is None and name != "tag_validation":
            continue
        if not isinstance(value, str) or value.upper() not in choices:
            told = ", ".join(choice.title() for choice in choices)
            yield _stops(job, f"checkpoint.{name}", value, f"one of {told}", place)
    stage = job.get("checkpoint.parallel_write.pipeline_stage", False)
    if stage not in (True, False):
        path = "checkpoint.parallel_write.pipeline_stage"
        yield _stops(job, path, stage, "true or false", "runtime/config.py:402")


def autocast(job: Job) -> Iterator[Finding]:
    """torch_autocast: number type and module names, even when it is off."""
    section = job.section("torch_autocast")
    if "dtype" in section and str(section["dtype"]).lower() not in DTYPES:
        value = section["dtype"]
        yield _stops(job, "torch_autocast.dtype", value, '"bfloat16" or "float16"',
                     "runtime/config.py:186")  # fmt: skip
    names = section.get("lower_precision_safe_modules", [])
    walks = isinstance(names, (list, str, dict))  # text is a list of letters to DeepSpeed
    if not walks or not all(isinstance(name, str) for name in names):
        yield _stops(job, "torch_autocast.lower_precision_safe_modules", names,
                     "a list of class names", "runtime/config.py:197")  # fmt: skip


def switches(job: Job) -> Iterator[Finding]:
    """wall_clock_breakdown and flops_profiler.enabled are joined with "or"."""
    place = "runtime/config.py:533"
    profiler = job.section("flops_profiler").get("enabled", False)
    if not isinstance(profiler, (bool, int)):
        yield _stops(job, "flops_profiler.enabled", profiler, "true or false", place)
    clock = job.config.get("wall_clock_breakdown", False)
    if clock is None or clock == "auto":
        yield _stops(job, "wall_clock_breakdown", clock, "true or false", place)


def others(job: Job) -> Iterator[Finding]:
    """keep_in_fp32_modules and vocabulary_size."""
    kept = job.get("data_types.keep_in_fp32_modules", "auto")
    listed = isinstance(kept, list) and all(isinstance(name, str) for name in kept)
    if kept != "auto" and not listed:
        path = "data_types.keep_in_fp32_modules"
        yield _stops(job, path, kept, '"auto" or a list of names', "runtime/config.py:567")
    size = job.config.get("vocabulary_size")
    if size and not isinstance(size, (int, float)):
        place = "runtime/config.py:718"
        yield _stops(job, "vocabulary_size", size, "a whole number", place)


RULES = (inner_sections, checkpoint, autocast, switches, others)
