"""The "pipeline" section: four keys are read, every other one is silently ignored.

``runtime/config.py:272-285`` merges the section into a dict of defaults without looking at its
keys, and the engine asks that dict for four of them (``runtime/pipe/engine.py:133-138, 210-218``).
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check import words
from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import shown, whole
from pplab.advise.check.rules.keys import is_remark, misspelt
from pplab.advise.check.schema import closest, simplify

#: Defaults that DeepSpeed itself prints; copied from a log they promise nothing.
PRINTED = {"stages": "auto", "partition": "best", "seed_layers": False}


def unread(job: Job) -> Iterator[Finding]:
    """Keys that nothing asks for."""
    section = job.section("pipeline")
    if section and not job.pipeline:
        yield job.finding(
            "pipeline-without-module",
            "wrong",
            "pipeline",
            "A job without a PipelineModule never looks at this section.",
            "Remove it, or pass a PipelineModule to deepspeed.initialize.",
            evidence=("__init__.py:553", "claims 2.2"),
            repair=(Edit("remove", ("pipeline",)),),
        )
        return
    read = job.schema.plain("pipeline") or []
    for key, value in section.items():
        if key in read or is_remark(key):
            continue
        path, name = ("pipeline", key), simplify(key)
        if key in PRINTED and value == PRINTED[key]:
            yield job.finding(
                "dead-key", "note", path,
                f'"{key}" is a default that DeepSpeed prints and never reads.',
                evidence=("runtime/config.py:274",), repair=(Edit("remove", path),),
            )  # fmt: skip
        elif name in words.PIPELINE_WORDS:
            yield job.finding(
                "dead-key",
                "wrong",
                path,
                f'Nothing reads pipeline.{key}: the job runs as if "{key}": {shown(value)} were '
                "not there.",
                _advice(name, value),
                evidence=("runtime/config.py:272", "B33", "B36", "claims 2.4"),
                repair=(Edit("remove", path),),
            )
        else:
            yield _other(job, path, read)


def _advice(name: str, value: object) -> str:
    """What to do, with the method of partition that is asked for."""
    advice = words.PIPELINE_WORDS[name]
    method = str(value).lower()
    if method == "uniform" or method.startswith("type:"):
        advice = advice.replace('partition_method="parameters"', f'partition_method="{value}"')
    return advice


def _other(job: Job, path: tuple[str, str], read: list[str]) -> Finding:
    key = path[1]
    near = closest(key, read, cutoff=0.75)
    if near:
        return misspelt(job, path, near, "Nothing reads it, silently.")
    if key in job.schema.top:
        return job.finding(
            "misplaced-key",
            "wrong",
            path,
            f'"{key}" inside "pipeline" is ignored: DeepSpeed reads it at the top level.',
            "Move it to the top level.",
            evidence=("runtime/config.py:272",),
            repair=(Edit("rename", path, (key,)),),
        )
    return job.finding(
        "dead-key",
        "wrong",
        path,
        f"Nothing reads pipeline.{key}: of this section DeepSpeed reads {', '.join(read)}.",
        "Remove it.",
        evidence=("runtime/config.py:272", "B35", "B36"),
        repair=(Edit("remove", path),),
    )


def values(job: Job) -> Iterator[Finding]:
    """Values of the four keys that are read."""
    section = job.section("pipeline")
    if not job.pipeline:
        return
    for key in ("pipe_partitioned", "grad_partitioned"):
        if key in section and not isinstance(section[key], bool):
            yield job.finding(
                "wrong-type",
                "error",
                ("pipeline", key),
                f'"{key}" must be true or false, not {shown(section[key])}: the engine asserts it, '
                'and "auto" is not replaced here.',
                "Write true, or remove the key (it only matters with tensor parallelism).",
                evidence=("runtime/pipe/engine.py:135", "B37"),
                repair=(Edit("remove", ("pipeline", key)),),
            )
    if "use_reentrant" in section and not isinstance(section["use_reentrant"], (bool, type(None))):
        yield job.finding(
            "wrong-type",
            "wrong",
            "pipeline.use_reentrant",
            f"Only the JSON word false turns reentrant checkpointing off; "
            f"{shown(section['use_reentrant'])} leaves it on.",
            "Write true or false.",
            evidence=("runtime/pipe/engine.py:210",),
        )


def checkpoint_interval(job: Job) -> Iterator[Finding]:
    """activation_checkpoint_interval: its type, and what it does to the first layer."""
    section = job.section("pipeline")
    value = section.get("activation_checkpoint_interval", 0)
    path = "pipeline.activation_checkpoint_interval"
    if isinstance(value, bool) or not isinstance(value, int):
        works = isinstance(value, (bool, float))
        yield job.finding(
            "wrong-type",
            "wrong" if isinstance(value, bool) else "error",
            path,
            f"The interval is a number of layers, not {shown(value)}"
            + (": true counts as 1, false as 0." if isinstance(value, bool) else
               ": the engine cannot count with it." if works else
               ": the engine compares it with 0 and stops."),
            "Write 1 to checkpoint every layer by itself, 0 for no checkpointing.",
            evidence=("runtime/pipe/engine.py:217",),
            repair=(Edit("set", ("pipeline", path.split(".")[1]), int(value)),)
            if isinstance(value, bool) else (),
        )  # fmt: skip
    elif value < 0:
        yield job.finding(
            "wrong-value", "wrong", path,
            f"An interval of {value} is not greater than 0, so nothing is checkpointed.",
            "Write 1 or more.", evidence=("runtime/pipe/engine.py:217",),
        )  # fmt: skip
    elif value > 0 and job.pipeline and section.get("use_reentrant") is not False:
        yield job.finding(
            "checkpointed-inputs",
            "note",
            path,
            "Reentrant checkpointing needs inputs that carry a gradient. A first layer that takes "
            "integer ids (an embedding), or tensors between stages that carry none (masks, rotary "
            'tables), end in "element 0 of tensors does not require grad".',
            'Name the layers to checkpoint, PipelineModule(checkpointable_layers=["Block"]), or '
            'set "use_reentrant": false.',
            evidence=("runtime/pipe/module.py:672", "A32", "A33", "A34"),
        )


def tensors(job: Job) -> Iterator[Finding]:
    """tensor_parallel.autotp_size: looks for the layers of a Hugging Face model."""
    size = whole(job.get("tensor_parallel.autotp_size", 0))
    if not job.pipeline or size is None or size < 2:
        return
    told = any(job.get(f"tensor_parallel.{key}") for key in ("partition_config", "preset_model"))
    yield job.finding(
        "autotp-with-pipeline",
        "risky" if told else "error",
        "tensor_parallel.autotp_size",
        "AutoTP cuts the layers of a Hugging Face model, and in a PipelineModule it finds none: "
        '"Not able to determine model policy automatically".',
        "Give the tensor-parallel size in the code, with layers that are cut themselves: "
        'PipelineModule(topology=...) with a "model" axis.',
        evidence=("runtime/engine.py:940",),
    )


RULES = (unread, values, checkpoint_interval, tensors)
