"""Keys and values inside sections: those read into models refuse what they do not know.

A section that DeepSpeed reads into a pydantic model (zero_optimization, fp16, bf16, monitors, ...)
forbids other keys, so a typo there stops the job (``runtime/config_utils.py:110``); plain sections
(activation_checkpointing, flops_profiler, aio, checkpoint, ...) ignore it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import refusal, shown, truth
from pplab.advise.check.reader import dotted
from pplab.advise.check.rules.keys import EVERYWHERE, is_remark, may_hold, misspelt
from pplab.advise.check.schema import closest
from pplab.advise.check.words import INSIDE, TENSOR

#: Sections that other rules look into key by key.
ELSEWHERE = {"pipeline", "optimizer", "scheduler"}
#: Sections that may be null: DeepSpeed then takes its defaults.
NULLABLE = {"aio", "bf16", "datastates_ckpt", "model_info"}
#: Sections that are read together, through a model that drops "auto".
MONITORS = {"tensorboard", "wandb", "csv_monitor", "comet"}
#: Plain sections whose keys are open.
OPEN = {"datastates_ckpt", "model_info"}


def kinds(job: Job) -> Iterator[Finding]:
    """Sections that are no sections."""
    for name in job.schema.sections:
        if name not in job.config or isinstance(job.config[name], dict):
            continue
        value = job.config[name]
        unread = name == "bfloat16" and isinstance(job.config.get("bf16"), dict)
        if unread or (value == "auto" and name in MONITORS):
            continue
        if name == "zero_optimization" and isinstance(value, bool):
            stage = int(value)
            yield job.finding(
                "deprecated-form",
                "risky",
                name,
                f"{shown(value)} is the form of 2020: DeepSpeed reads it as stage {stage}, with a "
                "warning, and every other ZeRO setting keeps its default.",
                f'Write "zero_optimization": {{"stage": {stage}}}.',
                evidence=("runtime/zero/config.py:60", "A30"),
                repair=(Edit("set", (name,), {"stage": stage}),),
            )
        elif not (value is None and name in NULLABLE) and name != "datastates_ckpt":
            example = '{"stage": 1}' if name == "zero_optimization" else '{"enabled": true}'
            example = {"pipeline": "{}", "optimizer": '{"type": "AdamW", "params": {...}}'}.get(
                name, example
            )
            yield job.finding(
                "wrong-type",
                "wrong" if name == "timers" and isinstance(value, (str, list)) else "error",
                name,
                f'"{name}" must be a section {{...}}, not {shown(value)}: DeepSpeed stops with a '
                "TypeError or AttributeError.",
                f'Write "{name}": {example}, or leave it out.',
                evidence=("A30",),
            )


def models(job: Job) -> Iterator[Finding]:
    """Sections that are read into models: unknown, deprecated and removed keys, refused values."""
    for section, model in job.schema.table["sections"].items():
        if section == "bfloat16" and isinstance(job.config.get("bf16"), dict):
            continue  # not read when there is a bf16
        value = job.get(section)
        if isinstance(value, dict):
            yield from _model(job, tuple(section.split(".")), value, model)


def _model(
    job: Job, path: tuple[str, ...], section: dict[str, Any], name: str
) -> Iterator[Finding]:
    fields = job.schema.model(name)
    for key, value in section.items():
        here = (*path, key)
        if isinstance(value, str) and value == "auto" and key in fields:
            continue  # dropped with its key
        if path == ("zero_optimization",) and key in job.schema.table["removed_zero"]:
            text = job.schema.table["removed_zero"][key]
            yield job.finding(
                "removed-key", "error", here, f"DeepSpeed stops at this key. {text}",
                f'Remove "{key}".', evidence=("runtime/config.py:119",),
                repair=(Edit("remove", here),),
            )  # fmt: skip
        elif key not in fields:
            yield _extra(job, here, name, value)
        else:
            if fields[key].get("deprecated"):
                yield _deprecated(job, here, value, fields[key], section)
            why = refusal(value, fields[key])
            if why and path[0] == "zero_optimization" and _tuned(job, value):
                yield job.finding(
                    "tuning-space", "note", here,
                    f"{shown(value)} are values to try, which only the autotuner understands.",
                    "Start with deepspeed --autotuning run, or write one value.",
                    evidence=("autotuning/autotuner.py:432", "B05"),
                )  # fmt: skip
            elif why and not (key == "leaf_module" and value is None):  # null is its default
                yield job.finding(
                    "wrong-type",
                    "error",
                    here,
                    f'"{key}" {why}: DeepSpeed stops with a ValidationError.',
                    "Correct the value.",
                    evidence=("runtime/config_utils.py:110",),
                )
            kind = fields[key]["type"]
            if isinstance(kind, dict) and "model" in kind and isinstance(value, dict):
                yield from _model(job, here, value, kind["model"])


def _tuned(job: Job, value: Any) -> bool:
    """Whether a value is a space to search, in a config for the autotuner."""
    return job.enabled("autotuning") and (isinstance(value, list) or value == "all")


def _extra(job: Job, here: tuple[str, ...], model: str, value: Any) -> Finding:
    """A key that a model forbids."""
    key, section = here[-1], dotted(here[:-1])
    why, renamed = INSIDE.get(dotted(here), ("", ""))
    if renamed == "autotp_size" and job.pipeline:
        why, renamed = TENSOR, ""
    near = renamed or (None if why else closest(key, job.schema.names(model), cutoff=0.8))
    homes = job.schema.homes().get(key, [])
    homes = [home for home in homes if home != section and not home.startswith(section + ".")]
    stop = f'DeepSpeed stops with "Extra inputs are not permitted" ({section} takes no other keys).'
    if value == "auto":
        stop = 'With the value "auto" it is dropped silently.'
    repair: tuple[Edit, ...] = (Edit("remove", here),)
    if near:
        holder = job.get(section) or {}
        about = job.schema.model(model)[near]
        switch = isinstance(value, bool) and about["type"] in ("int", "float")
        fits = not switch and not refusal(value, about)
        advice = f'Write "{near}".' if fits else f'Write "{near}", with a value that fits it.'
        if near not in holder and fits:
            repair = (Edit("rename", here, (*here[:-1], near)),)
        message = f'"{key}" is a misspelling of "{near}". {stop}'
        if renamed:
            message = f'{section} has no key "{key}". {why} {stop}'
    elif homes and not why and key not in EVERYWHERE:
        there = homes[0] if "." in homes[0] else "the top level"
        advice = f"Move it to {there}."
        if may_hold(job, homes[0]):
            repair = (Edit("rename", here, tuple(homes[0].split("."))),)
        reads = f"as {there}" if "." in homes[0] else f"at {there}"
        message = f'"{key}" does not belong here: DeepSpeed reads it {reads}. {stop}'
    else:
        advice = f'Remove "{key}".'
        message = " ".join(filter(None, (f'{section} has no key "{key}".', why, stop)))
    return job.finding(
        "extra-key",
        "wrong" if value == "auto" else "error",
        here,
        message,
        advice,
        evidence=("runtime/config_utils.py:110", "A24", "A29", "B22"),
        repair=repair,
    )


def _deprecated(
    job: Job, here: tuple[str, ...], value: Any, about: dict[str, Any], section: dict[str, Any]
) -> Finding:
    """A key that has a successor."""
    key, new = here[-1], about.get("new", "")
    fields = job.schema.model("DeepSpeedZeroConfig")
    successor = fields.get(new, {}).get("alias", new) if new else ""
    repair: list[Edit] = [Edit("remove", here)]
    if new in ("offload_optimizer", "offload_param"):
        on = isinstance(value, (bool, int, str)) and truth(value)
        advice = f'Write "{new}": {{"device": "cpu"}}.' if on else f'Remove "{key}".'
        if on and new not in section:
            repair.append(Edit("set", (*here[:-1], new), {"device": "cpu"}))
    elif " or " in new:
        advice = 'Remove it; the offload sections have "pin_memory".'
    else:
        advice = f'Write "{successor}".'
        repair = [Edit("rename", here, (*here[:-1], successor))]
    both = new in section or (successor and successor in section)
    if both and " or " not in new:
        message = (
            f'"{key}" is deprecated, and its successor "{successor}" is there as well: DeepSpeed '
            "stops, it will not take both."
        )
        repair = [Edit("remove", here)]
    else:
        message = f'"{key}" is deprecated: DeepSpeed still reads it, with a warning.'
    off = value is False  # asks for nothing: harmless until the key goes
    return job.finding(
        "deprecated-key",
        "error" if both and " or " not in new else "note" if off else "risky",
        here,
        message,
        advice,
        evidence=("runtime/zero/config.py:209", "B09", "B21"),
        repair=repair,
    )


def plain(job: Job) -> Iterator[Finding]:
    """Sections that ignore what they do not know."""
    for path in job.schema.table["plain"]:
        section = job.get(path)
        if path in ELSEWHERE or path in OPEN or not isinstance(section, dict):
            continue
        names = job.schema.plain(path) or []
        for key in section:
            if key in names or is_remark(key):
                continue
            here = (*path.split("."), key)
            why, renamed = INSIDE.get(dotted(here), ("", ""))
            near = None if renamed else closest(key, names, cutoff=0.7)
            if near:
                yield misspelt(job, here, near, "DeepSpeed ignores it silently.")
            else:
                ignored = f'{path} is never asked for "{key}"; DeepSpeed ignores it silently.'
                free = renamed and renamed not in section
                yield job.finding(
                    "unknown-key", "wrong" if renamed else "risky", here,
                    f"{ignored} {why}".rstrip(),
                    f'Write "{renamed}".' if renamed else f"It reads {', '.join(names)}.",
                    evidence=("A28",),
                    repair=(Edit("rename", here, (*here[:-1], renamed)),) if free else (),
                )  # fmt: skip


RULES = (kinds, models, plain)
