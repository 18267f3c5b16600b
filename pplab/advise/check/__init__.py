"""A checker for DeepSpeed configs that knows pipelines.

    report = check("ds_config.json", ranks=8, stages=4)
    report                      # findings with causes and fixes, and the resolved batch triangle
    report.fixed                # the config with everything mechanical mended

DeepSpeed reads keys by name and never looks at the others, so most mistakes are silent. The rules
follow DeepSpeed 0.19.8, or the installed version's own list of keys (see ``schema``), and the
cases people reported. Nothing here imports torch or DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pplab.advise.check.command import parse
from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.load import load
from pplab.advise.check.other import ADVICE
from pplab.advise.check.reader import Document, ReadError
from pplab.advise.check.report import Report
from pplab.advise.check.rules import RULES, Rule
from pplab.advise.check.schema import known
from pplab.core.batch import KEYS, ideal_bubble

__all__ = ["Edit", "Finding", "ReadError", "Report", "check", "run_check"]


def check(config: Any = None, *, name: str = "", **job: Any) -> Report:
    """Check a DeepSpeed config for a job; never raises for what is in the config.

    config:  a dict, a path, JSON text, or base64 of it; may be left out when `command` names one
    ranks:   processes of the job (GPUs)
    stages:  pipeline stages; without it, what ignored keys seem to want, else 1
    tensor:  tensor-parallel size (default 1)
    pipeline: False for a job without a PipelineModule (default True)
    layers, parts: number of layers, and how many each stage gets when cut by hand
    model:   a pplab Profile (parameters and class of each layer); partition: DeepSpeed's method
    schedule, chunks: "1f1b" (default), "interleaved", ... and chunks a rank
    command, env, hostfile: how it is started (see ``rules/launch.py``)
    version: DeepSpeed's version of the job, when it is not the installed one; it adds what is known
             of that version, the list of keys stays that of the table
    ramp_up: (start, increment, ...) of a growing batch, in samples
    samples, steps, eval_micro_batch: the data (see ``rules/data.py``)
    boundary: tensors between stages (see ``rules/boundary.py``)
    saved:   shape of the run whose checkpoint is loaded (see ``rules/resume.py``)
    used_by: "lightning" when that framework starts it; device_bytes: memory of a device (80e9)
    """
    job = {key: value for key, value in job.items() if value is not None}
    if job.get("command"):
        job = {**_from_command(job["command"]), **job}
        config = job.pop("config", None) if config is None else config
        job.pop("config", None)
    try:
        source, document = load(config)
    except ReadError as error:
        finding = Finding(
            error.kind, "error", "", error.sentence, ADVICE.get(error.kind, ADVICE[""]), error.line,
        )  # fmt: skip
        shown = name or (config if isinstance(config, str) and len(config) < 200 else "config")
        return Report(str(shown), {}, (finding,), version=known().version, readable=False)
    full = Job(document.value, document=document, **job)
    if full.stages is None and full.neox.get("pipe_parallel_size") == 0:
        full = replace(full, pipeline=False)  # GPT-NeoX makes no PipelineModule then
    return _report(full, name or source)


def _report(job: Job, name: str) -> Report:
    found = tuple(finding for rule in RULES for finding in _guarded(rule, job))

    def recheck(config: dict[str, Any]) -> Report:
        # Stages that a dead key asked for are still meant when that key is gone.
        again = replace(job, config=config, document=Document(), stages=job.pipe)
        return _report(again, name)

    return Report(name, job.config, found, resolved(job), job.deepspeed, recheck=recheck)


def _guarded(rule: Rule, job: Job) -> Iterator[Finding]:
    """The rule's findings; a rule that fails on a strange value says so and stops nobody."""
    try:
        yield from rule(job)
    except Exception as error:  # a value no rule was written for
        name = f"{rule.__module__.rsplit('.', 1)[-1]}.{rule.__name__}"
        yield Finding(
            "rule-failed", "note", "",
            f"The rule {name} could not read this config ({type(error).__name__}: {error}).",
            "Its subject is unchecked.",
        )  # fmt: skip


def resolved(job: Job) -> dict[str, Any]:
    """The triangle and the pipeline as DeepSpeed will have them; None for what is not known."""
    from pplab.advise.check.rules.batch import fits

    batch, stages = job.batch, job.pipe
    numbers: dict[str, Any] = {key: job.written[short] for short, key in KEYS.items()}
    filled: list[str] = []
    if batch is not None and batch.reason != "nothing-given":
        numbers = {key: getattr(batch, short) for short, key in KEYS.items()}
        filled = [KEYS[short] for short in batch.filled]
    m = job.micro_batches
    if m is not None and numbers["gradient_accumulation_steps"] is None:
        numbers["gradient_accumulation_steps"] = m
        filled.append("gradient_accumulation_steps")
    bubble = ideal_bubble(stages, m) if stages and m and m > 0 else None
    replicas = job.replicas if job.replicas is not None else batch.replicas if batch else None
    return {
        **numbers,
        "filled": filled,
        "replicas": replicas,
        "replicas_that_fit": fits(job),
        "stages": stages,
        "micro_batches": m,
        "bubble": bubble,
        "zero": job.zero,
        "dtype": job.dtype,
        "accumulation": job.accumulation,
    }


def _from_command(text: str) -> dict[str, Any]:
    """What a command says about the job."""
    try:
        parsed = parse(text)
    except ValueError:
        return {}
    found: dict[str, Any] = {
        "ranks": parsed.ranks,
        "stages": parsed.stages,
        "tensor": parsed.tensor,
        "layers": parsed.number(("num_layers",)),
        "ramp_up": parsed.ramp_up,
        "config": parsed.config or None,
    }
    if "no_pipeline_parallel" in parsed.options:
        found["pipeline"] = False
    return {key: value for key, value in found.items() if value is not None}


def run_check(paths: Sequence[str | Path], **options: Any) -> int:
    """Check files and print; the exit code of ``pplab check``. See ``pplab.advise.check.cli``."""
    from pplab.advise.check.cli import run_check as run

    return run(paths, **options)
