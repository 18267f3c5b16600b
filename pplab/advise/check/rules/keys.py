"""Top-level keys: removed, misspelt, at the wrong level, of another framework, or never read.

DeepSpeed does not look at top-level keys it does not know (``runtime/config.py``: every key is
asked for by name), so a typo there is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check import words
from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.other import pointer
from pplab.advise.check.schema import closest, simplify

#: Keys that stand in so many sections that their name says nothing about where they belong.
EVERYWHERE = {
    "enabled", "type", "params", "device", "dtype", "profile", "mode", "names", "ratio", "verbose",
    "debug", "detailed", "seed", "group", "team", "project", "online", "job_name", "output_path",
}  # fmt: skip
#: Sections that do nothing by being there: a key may be moved into one that is not written yet.
HARMLESS = {"zero_optimization", "pipeline", "activation_checkpointing", "data_types"}

#: Foreign key -> DeepSpeed key with the same value.
SAME_VALUE = {
    "max_grad_norm": "gradient_clipping",
    "clip_grad": "gradient_clipping",
    "grad_clip": "gradient_clipping",
    "gradient_clip_val": "gradient_clipping",
    "clip_grad_norm": "gradient_clipping",
    "global_batch_size": "train_batch_size",
    "num_microbatches": "gradient_accumulation_steps",
    "num_micro_batches": "gradient_accumulation_steps",
    "batch_accumulation_per_replica": "gradient_accumulation_steps",
    "accumulate_grad_batches": "gradient_accumulation_steps",
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "microbatch_size": "train_micro_batch_size_per_gpu",
    "lr_scheduler": "scheduler",
}


def is_remark(key: str) -> bool:
    """True for keys people use as comments: "_comment", "//", "#", "$schema"."""
    return not key or key[0] in "_/#$" or simplify(key).startswith("comment")


def top_level(job: Job) -> Iterator[Finding]:
    """Every top-level key that DeepSpeed does not read."""
    removed = job.schema.table["removed"]
    own = {*removed, *job.schema.top}
    unread = [key for key in job.config if key not in own and not is_remark(key)]
    found = [f for key in unread for f in _unknown(job, key, job.config[key])]
    strange = [f for f in found if f.rule == "unknown-key"]
    if not own & set(job.config) and len(strange) == len(found) > 1:
        yield _other_file(job, [f.key for f in strange])
        return
    for key in job.config:
        if key in removed:
            yield job.finding(
                "removed-key",
                "error" if job.deepspeed == job.schema.version else "risky",
                (key,),
                f"DeepSpeed {job.schema.version} stops at this key. {removed[key]}",
                f'Remove "{key}".',
                evidence=("runtime/config.py:81", "B03", "B16"),
                repair=(Edit("remove", (key,)),),
            )
    yield from found


def _other_file(job: Job, keys: list[str]) -> Finding:
    """None of the keys is DeepSpeed's."""
    where = pointer(job.config)
    shown = ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
    return job.finding(
        "other-file", "error", (),
        f"None of its {len(keys)} keys ({shown}) is one of DeepSpeed's: this is another program's "
        "file.",
        where or "Check the file that deepspeed.initialize is given.",
    )  # fmt: skip


def _unknown(job: Job, key: str, value: object) -> Iterator[Finding]:
    top, name = job.schema.top, simplify(key)
    near = closest(key, top, cutoff=0.92 if job.framework else 0.8)
    if near and (near in job.schema.sections) != isinstance(value, dict):
        near = None  # "data_type": "fp16" is no misspelling of the section data_types
    if near and (simplify(near) == name or not _has_other_meaning(job, name)):
        yield misspelt(job, (key,), near, "DeepSpeed ignores it silently.")
        return
    if job.framework:
        return  # its own keys; see ``framework``
    if name in words.FOREIGN:
        whose, advice = words.FOREIGN[name]
        target = SAME_VALUE.get(name)
        free = target is not None and target not in job.config
        yield job.finding(
            "foreign-key",
            "wrong",
            (key,),
            f'"{key}" is a word of {whose}; DeepSpeed does not read it.',
            advice,
            evidence=("A10", "B33", "claims 2.4"),
            repair=(Edit("rename", (key,), (str(target),)),) if free else (),
        )
        return
    homes = [] if name in EVERYWHERE else job.schema.homes().get(key, [])
    if homes:
        target_path = tuple(homes[0].split("."))
        yield job.finding(
            "misplaced-key",
            "wrong",
            (key,),
            f'"{key}" at the top level is ignored: DeepSpeed reads it as {homes[0]}.',
            f"Move it to {homes[0]}.",
            evidence=("A28",),
            repair=(Edit("rename", (key,), target_path),)
            if len(homes) == 1 and may_hold(job, homes[0])
            else (),
        )
        return
    yield job.finding(
        "unknown-key",
        "risky",
        (key,),
        f'DeepSpeed has no key "{key}" and ignores it silently.',
        "Remove it, unless your own script reads it.",
        evidence=("A28", "B02"),
    )


def may_hold(job: Job, home: str) -> bool:
    """Whether a key can be moved there without turning something on, or into what is off."""
    section = home.split(".")[0] if "." in home else ""
    return not section or section in job.config or section in HARMLESS


def _has_other_meaning(job: Job, name: str) -> bool:
    """True when a key is not a typo but another word, or belongs into a section."""
    return name in words.FOREIGN or name in job.schema.homes()


def misspelt(job: Job, path: tuple[str, ...], near: str, effect: str) -> Finding:
    """A finding for a key that is nearly a known one."""
    key = path[-1]
    target = (*path[:-1], near)
    holder = job.section(path[0]) if len(path) > 1 else job.config
    how = "is a misspelling of"
    if key.strip() != key:
        how = "has a blank at its start or end; it should be"
    elif key.lower() == near.lower() and key != near:
        how = "differs in case from"
    edit = Edit("remove", path) if near in holder else Edit("rename", path, target)
    also = f' ("{near}" is there as well.)' if near in holder else ""
    return job.finding(
        "misspelt-key",
        "wrong",
        path,
        f'"{key}" {how} "{near}". {effect}{also}',
        f'Write "{near}".',
        evidence=("A28", "B28"),
        repair=(edit,),
    )


def framework(job: Job) -> Iterator[Finding]:
    """A config of GPT-NeoX: its own keys are left alone, and said so."""
    if job.framework != "gpt-neox":
        return
    own = [key for key in job.config if key not in job.schema.top]
    yield job.finding(
        "other-framework",
        "note",
        (),
        f"This is a GPT-NeoX config: {len(own)} of its keys are that framework's own and are not "
        "checked. The rest is handed to DeepSpeed and is checked as such.",
        evidence=("B26", "B40"),
    )


RULES = (top_level, framework)
