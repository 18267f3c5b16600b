"""Lab 4: repair a broken ZeRO and pipeline config, and budget memory before renting a GPU."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from pplab.advise.check import check
from pplab.core.batch import ideal_bubble
from pplab.core.memory import PipelineMemory, Transformer, size, transformer_memory
from pplab.runtime import models
from pplab.runtime.failure import RunError
from pplab.runtime.run import run
from pplab.teach.lab import Lab, Question
from pplab.teach.labs.judging import number
from pplab.teach.question import Mistake, number_of
from pplab.teach.verdict import Verdict, right, wrong

TITLE = "repair a config and budget memory"
RANKS, STAGES, SAMPLES = 8, 4, 64
#: Question 6: bytes of a device, and the largest bubble.
DEVICE, BUBBLE = 40e9, 0.20
#: What an article recommends for 8 GPUs and 4 stages, put together from real ones.
_CONFIG: dict[str, Any] = {
    "train_batch_size": SAMPLES,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 3},
    "pipeline": {"enabled": True, "pipe_parallel_size": 4, "activation_checkpointing": True},
    "bf16": {"enabled": True},
    "elastic_pipeline": True,
}
CASES = {
    "config": lambda: copy.deepcopy(_CONFIG),
    "model": lambda: Transformer(layers=32, hidden=4096, heads=32, sequence=2048, vocabulary=32000),
}
#: Rules of the checker for keys that nothing reads.
_SILENT = {"dead-key", "foreign-key", "unknown-key", "misplaced-key"}


def _memory(lab: Lab, zero: int, stages: int = STAGES, **more: Any) -> PipelineMemory:
    """The 7-billion model on 8 ranks, without recomputing unless `more` says so."""
    settings = {"precision": "bf16-fp32", "recompute": "none", **more}
    micro_batches = settings.pop("micro_batches", 16)
    micro_batch = settings.pop("micro_batch", 1)
    return transformer_memory(
        lab.case("model"),
        stages,
        micro_batches,
        micro_batch,
        zero=zero,
        replicas=RANKS // stages,
        **settings,
    )


# -- the checks ------------------------------------------------------------------------------------


def _stages(answer: Any, lab: Lab) -> Verdict:
    without = check(lab.case("config"), ranks=RANKS, pipeline=False).resolved["stages"] or 1
    return number(
        answer,
        without,
        "every rank holds the whole model: nothing in the file makes a pipeline.",
        Mistake(
            4,
            "no JSON key turns a pipeline on. DeepSpeed reads four keys of the section `pipeline`, "
            "and neither `enabled` nor `pipe_parallel_size` is one of them; it ignores the rest "
            "without a word.",
            "key-turns-it-on",
        ),
        Mistake(0, "a model that nobody cuts is one stage: the whole of it."),
        Mistake(RANKS, "those are the processes: each would hold a copy of the whole model."),
        within=1e-6,
    )


def _silent(answer: Any, lab: Lab) -> Verdict:
    report = check(lab.case("config"), ranks=RANKS, stages=STAGES)
    dead = {finding.key for finding in report.findings if finding.rule in _SILENT}
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        return wrong("a collection of keys is asked for, such as {'pipeline.enabled', ...}.")
    mine = {str(key).strip() for key in answer}
    extra, missing = mine - dead, dead - mine
    short = sorted(extra & {key.rpartition(".")[2] for key in dead})
    if short:
        return wrong(
            f"{', '.join(short)}: write a key with the section it stands in, such as "
            "'pipeline.enabled'."
        )
    if extra:
        return wrong(f"DeepSpeed does read {', '.join(sorted(extra))}.")
    if missing:
        on = "pipeline.enabled" in missing or "pipeline.pipe_parallel_size" in missing
        return wrong(
            f"{len(missing)} more {'is' if len(missing) == 1 else 'are'} ignored."
            + (" No key turns a pipeline on." if on else ""),
            "key-turns-it-on" if on else "",
        )
    return right("the job runs exactly as if they were not there.")


def _repair(answer: Any, lab: Lab) -> Verdict:
    if not isinstance(answer, dict):
        return wrong("a config is asked for: a dictionary.")
    stage = answer.get("zero_optimization", {}).get("stage", 0)
    if stage in (2, 3):
        return wrong(
            f"DeepSpeed stops at ZeRO-{stage} with a pipeline: it would talk at every micro-batch. "
            "ZeRO-1 talks once a step.",
            "zero3-saves-more",
        )
    report = check(answer, ranks=RANKS, stages=STAGES)
    bad = [finding for finding in report.findings if finding.severity != "note"]
    if bad:
        on = bad[0].key in ("pipeline.enabled", "pipeline.pipe_parallel_size")
        return wrong(f"{bad[0].key}: {bad[0].message}", "key-turns-it-on" if on else "")
    resolved = report.resolved
    if resolved["train_batch_size"] != SAMPLES:
        return wrong(f"the batch has to stay at {SAMPLES} samples; yours has "
                     f"{resolved['train_batch_size']}.")  # fmt: skip
    if stage != 1:
        return wrong("it would start, but without ZeRO each replica keeps all optimizer states.")
    if not answer.get("pipeline", {}).get("activation_checkpoint_interval", 0):
        return wrong("the author wanted activations to be recomputed: find the key that does it.")
    return _started(answer, int(resolved["micro_batches"]), f"{resolved['bubble']:.1%}")


def _started(config: dict[str, Any], micro_batches: int, bubble: str) -> Verdict:
    """Start DeepSpeed with the sections that matter, on two stages of this machine."""
    sections = {key: config[key] for key in ("zero_optimization", "pipeline")}
    try:
        done = run(
            None,
            models.gpt(layers=2, width=32, context=16),
            engine="deepspeed",
            stages=2,
            micro_batches=micro_batches,
            config=sections,
            quiet=True,
            keep=False,
        )
    except RunError as error:
        text = f"the checker has only notes, but started for real it stops: {error.cause}."
        if "does not require grad" in str(error):
            text += (
                " The first layer takes integer ids, and DeepSpeed's default (reentrant) "
                "checkpointing cannot have them: read the note on the interval."
            )
        return wrong(text)
    return right(
        f"nothing is ignored, and DeepSpeed starts with it. {micro_batches} micro-batches in 4 "
        f"stages: ideal bubble {bubble}.",
        f"two stages trained {len(done.losses)} steps with these sections",
    )


def _worst(answer: Any, lab: Lab) -> Verdict:
    memory = _memory(lab, zero=1)
    rank = number_of(answer)
    if rank is None or rank not in range(STAGES):
        return wrong(f"ranks are 0 to {STAGES - 1}, not {answer!r}.")
    if rank == memory.worst.rank:
        return right(memory.sentence())
    mine = memory.ranks[int(rank)]
    if rank == STAGES - 1:
        return wrong(
            f"the last rank needs {size(mine.peak)}, the least of all: it holds one micro-batch. "
            "Who holds most of them?",
            "last-stage-most-memory",
        )
    return wrong(f"it needs {size(mine.peak)}, and another one more.")


def _states(answer: Any, lab: Lab) -> Verdict:
    def total(zero: int) -> float:
        states = _memory(lab, zero=zero).ranks[0].states
        return (states.parameters + states.gradients + states.optimizer) / 1e9

    return number(
        answer,
        total(1),
        "2 bytes for parameters and 4 for summed gradients, whole; 12 for Adam, halved.",
        Mistake(total(0), "that is without ZeRO: the two replicas share Adam's 12 bytes."),
        Mistake(
            total(0) / 2,
            "you have divided everything by two. That is ZeRO-3, which DeepSpeed refuses with a "
            "pipeline; ZeRO-1 divides the optimizer states alone.",
            "zero3-saves-more",
        ),
        within=0.03,
    )


def _budget(answer: Any, lab: Lab) -> Verdict:
    wanted = ("stages", "zero", "micro_batch", "gas", "recompute")
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        return wrong(f"a dict with {', '.join(wanted)} is asked for.")
    stages, zero, micro_batch, gas = (int(answer[name]) for name in wanted[:4])
    if stages < 2 or RANKS % stages:
        return wrong(f"2, 4 or 8 stages divide {RANKS} GPUs; {stages} does not make a pipeline.")
    if zero >= 2:
        return wrong(f"DeepSpeed refuses ZeRO-{zero} with a pipeline.", "zero3-saves-more")
    replicas = RANKS // stages
    if micro_batch * gas * replicas != SAMPLES:
        product = f"{micro_batch} x {gas} x {replicas}"
        return wrong(
            f"{product} = {micro_batch * gas * replicas} samples, and the batch has {SAMPLES}."
        )
    memory = _memory(
        lab,
        zero,
        stages,
        micro_batch=micro_batch,
        micro_batches=gas,
        recompute=str(answer["recompute"]),
    )
    if not memory.fits(DEVICE):
        return wrong(f"rank {memory.worst.rank} needs {size(memory.peak)} of {size(DEVICE)}.")
    bubble = ideal_bubble(stages, gas)
    if bubble > BUBBLE:
        return wrong(f"it fits, with a bubble of {bubble:.1%}; {BUBBLE:.0%} is the most.")
    return right(f"{memory.sentence()} Ideal bubble {bubble:.1%}.")


def _own(answer: Any, lab: Lab) -> Verdict:
    try:
        config, ranks, stages = answer
    except (TypeError, ValueError):
        return wrong("three things are asked for: (config, ranks, stages).")
    report = check(config, ranks=int(ranks), stages=int(stages))
    bad = [finding for finding in report.findings if finding.severity != "note"]
    if bad or not report.readable:
        first = bad[0].message if bad else "it cannot be read."
        return wrong(f"{len(bad)} finding(s), the first one: {first}")
    return right("DeepSpeed will do what this file says.", report.batch_line())


QUESTIONS = {
    "q1": Question(
        "how many stages does this config make?",
        4,
        "easy",
        _stages,
        (
            "Who reads `enabled`?",
            "A pipeline is a PipelineModule handed to deepspeed.initialize. There is none here.",
            "1: one stage, the whole model.",
        ),
        "No JSON key makes a pipeline (runtime/config.py:272 merges the section, nothing reads "
        "it).",
    ),
    "q2": Question(
        "which keys does DeepSpeed ignore?",
        8,
        "medium",
        _silent,
        (
            "pplab.check says it, one finding a key.",
            "Look for the findings called dead-key and foreign-key.",
            "{f.key for f in pplab.check(config, ranks=8, stages=4).findings "
            "if f.rule in ('dead-key', 'foreign-key')}",
        ),
        "Silence is not consent: DeepSpeed reads keys by name and never looks at the others.",
    ),
    "q3": Question(
        "repair it",
        12,
        "hard",
        _repair,
        (
            "Keep what the author wanted: 64 samples, less memory by ZeRO, recomputed activations.",
            "ZeRO-1; GAS such that 4 x GAS x 2 replicas = 64; `activation_checkpoint_interval` for "
            "the recomputing; the ignored keys go.",
            "config['gradient_accumulation_steps'] = 8; config['zero_optimization'] = {'stage': "
            "1}; "
            "config['pipeline'] = {'activation_checkpoint_interval': 1, 'use_reentrant': False}; "
            "del config['elastic_pipeline']",
        ),
        "Each key now does what it says, and the number of stages moves into the code. Without "
        "use_reentrant the first backward pass stops: an embedding's inputs carry no gradient.",
    ),
    "q4": Question(
        "which rank needs the most memory?",
        4,
        "easy",
        _worst,
        (
            "Weights are about equal. What is not?",
            "Rank s holds P - s micro-batches of activations.",
            "memory.worst.rank",
        ),
        "Rank 0: four micro-batches, where the last rank holds one.",
    ),
    "q5": Question(
        "model states under ZeRO-1",
        8,
        "medium",
        _states,
        (
            "Which of the three kinds does ZeRO-1 divide?",
            "2 bytes a parameter for weights, 4 for summed gradients, 12 for Adam; the last are "
            "divided by the replicas.",
            "parameters * (2 + 4 + 12 / 2) / 1e9, with the parameters of rank 0.",
        ),
        "12 bytes a parameter instead of 18: ZeRO-1 takes a third off, and talks once a step.",
    ),
    "q6": Question(
        "fit it into 40 GB",
        10,
        "hard",
        _budget,
        (
            "Activations of four micro-batches take 31 GB on rank 0: that is what has to shrink.",
            "Recompute them ('full'). Then choose stages; GAS follows from 64 samples.",
            "dict(stages=4, zero=1, micro_batch=1, gas=32, recompute='full')",
        ),
        "Without recomputing nothing fits; with it, 4 stages leave two fifths of the memory free.",
    ),
    "own": Question(
        "bring your own",
        10,
        "open",
        _own,
        (
            "Any config of yours, or one from an article.",
            "pplab.check(config, ranks=..., stages=...) lists what is wrong; .fixed mends what is "
            "mechanical.",
            "(pplab.check(config, ranks=8, stages=4).fixed, 8, 4)",
        ),
        "A config is a claim. Check it before you rent anything.",
    ),
}
