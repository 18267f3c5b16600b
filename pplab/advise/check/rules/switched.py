"""What is off or on against the will of the config.

Sections without "enabled" where that is false by default, one whose "enabled" means nothing, and
settings that DeepSpeed reads and forgets.
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import shown
from pplab.advise.check.rules.keys import is_remark

#: Sections that do nothing without "enabled": true.
OFF_BY_DEFAULT = (
    "fp16", "bf16", "bfloat16", "torch_autocast", "tensorboard", "wandb", "csv_monitor", "comet",
    "flops_profiler", "autotuning", "data_efficiency", "hybrid_engine", "expert_parallel",
)  # fmt: skip
#: Key, its default, and where its value ends up.
UNUSED = (
    ("zero_optimization.allgather_partitions", True, "runtime/engine.py:1745"),
    ("disable_allgather", False, "runtime/config.py:491"),
    ("optimizer.legacy_fusion", False, "runtime/engine.py:1532"),
)


def off(job: Job) -> Iterator[Finding]:
    """Settings of something that is off."""
    for name in OFF_BY_DEFAULT:
        section = job.section(name)
        keys = [key for key in section if not is_remark(key)]
        if not keys or "enabled" in section or job.framework:
            continue
        mode = name in ("fp16", "bf16", "bfloat16")
        less = ": this is an fp32 run" if mode and job.dtype == "fp32" else ""
        yield job.finding(
            "not-enabled", "note" if mode and not less else "wrong", name,
            f'"{name}" has no "enabled", which is false by default, so nothing in it acts{less}.',
            f'Write "enabled": true in it, or remove "{name}".',
            evidence=("runtime/precision_config.py:105", "monitor/config.py:20"),
        )  # fmt: skip


def on(job: Job) -> Iterator[Finding]:
    """comms_logger is on when the section is there, whatever its "enabled" says."""
    section = job.config.get("comms_logger")
    if not isinstance(section, dict) or job.switched_on("comms_logger", "enabled"):
        return
    says = '"enabled": false' if "enabled" in section else 'a section without "enabled"'
    yield job.finding(
        "comms-logger-on", "wrong", "comms_logger",
        f"The logger is on although this is {says}: DeepSpeed only asks whether the section is "
        "there. It waits for the device after every message, so that nothing overlaps.",
        'Remove "comms_logger".', evidence=("comm/config.py:22", "utils/comms_logging.py:79"),
        repair=(Edit("remove", ("comms_logger",)),),
    )  # fmt: skip


def unused(job: Job) -> Iterator[Finding]:
    """Settings that DeepSpeed reads, keeps, and never looks at again."""
    for path, default, place in UNUSED:
        value = job.get(path, default)
        if value in (default, "auto"):
            continue
        yield job.finding(
            "unused-key", "wrong", path,
            f"DeepSpeed {job.schema.version} reads {path} and does nothing with it: the job runs "
            f"as with {shown(default)}.",
            "Remove it.", evidence=(place,), repair=(Edit("remove", tuple(path.split("."))),),
        )  # fmt: skip


RULES = (off, on, unused)
