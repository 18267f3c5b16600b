"""Optimizer and scheduler: names, arguments, and optimizers ZeRO was not tested with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import shown, whole
from pplab.advise.check.schema import closest

#: Classes of torch.optim (2.13), by which DeepSpeed looks up every name that is not its own.
TORCH = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam",
    "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
)  # fmt: skip
#: Schedulers of torch.optim.lr_scheduler (2.13).
TORCH_SCHEDULERS = (
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
)  # fmt: skip
#: Optimizers that were dropped from DeepSpeed; their names are often met. -> the plain one.
DROPPED = {"onebitadam": "Adam", "onebitlamb": "Lamb", "zerooneadam": "Adam"}
#: Names that ZeRO accepts without zero_allow_untested_optimizer.
TESTED = {"adam", "adamw", "adagrad", "lion", "muon"}
#: How other code calls an argument.
ALIASES = {"learning_rate": "lr", "epsilon": "eps", "wd": "weight_decay", "beta": "betas"}
#: Likeness from which another name is a typo that can be mended, and not only a guess.
SURE = 0.88
#: Taken out of the parameters by DeepSpeed before the optimizer sees them.
TAKEN = {"torch_adam", "adam_w_mode", "fp32_optimizer_states", "foreach"}


def named(job: Job) -> str:
    """The optimizer's name as DeepSpeed uses it; "" when there is none."""
    name = job.section("optimizer").get("type")
    if not isinstance(name, str):
        return ""
    return name.lower() if name.lower() in job.schema.table["optimizers"] else name


def name(job: Job) -> Iterator[Finding]:
    """The optimizer's type is one there is."""
    section = job.section("optimizer")
    if not section or job.framework:
        return  # GPT-NeoX builds the optimizer itself
    kind = section.get("type")
    own = job.schema.table["optimizers"]
    if kind is None:
        yield job.finding(
            "missing-key", "wrong", "optimizer.type",
            'Without "type" DeepSpeed ignores the whole section.',
            'Write "type": "AdamW".', evidence=("runtime/config.py:288",),
        )  # fmt: skip
    elif not isinstance(kind, str) or not (kind.lower() in own or kind in TORCH):
        near = closest(str(kind), [*own, *TORCH], cutoff=0.7)
        dropped = DROPPED.get(str(kind).lower())
        advice = f'Write "{near}".' if near else f"DeepSpeed has {', '.join(own)}, and torch.optim."
        if dropped:
            advice = f'Write "{dropped}", and take the arguments out that only the old one had.'
        yield job.finding(
            "unknown-optimizer",
            "error",
            "optimizer.type",
            f"{shown(kind)} "
            + ("was removed from DeepSpeed" if dropped else "is no optimizer of DeepSpeed or torch")
            + f": {job.schema.version} stops at it.",
            advice,
            evidence=("runtime/engine.py:2019",),
            repair=(Edit("set", ("optimizer", "type"), near),)
            if near and not dropped and closest(str(kind), [near], SURE)
            else (),
        )
    for key in section:
        if key not in ("type", "params", "legacy_fusion") and key[0] not in "_/#":
            yield job.finding(
                "misplaced-key", "wrong", ("optimizer", key),
                f'optimizer.{key} is ignored: arguments of the optimizer stand in "params".',
                f"Move it to optimizer.params.{key}.", evidence=("runtime/config.py:295",),
                repair=(Edit("rename", ("optimizer", key), ("optimizer", "params", key)),),
            )  # fmt: skip


def arguments(job: Job) -> Iterator[Finding]:
    """optimizer.params: what the optimizer takes, and numbers that are text."""
    params = job.section("optimizer").get("params")
    kind = named(job)
    if job.framework:
        return
    if not isinstance(params, dict):
        if params is not None:
            yield job.finding(
                "wrong-type", "error", "optimizer.params",
                f"params must be a section {{...}}, not {shown(params)}.", "Write its arguments.",
            )  # fmt: skip
        return
    path = ("optimizer", "params")
    if "max_grad_norm" in params:
        free = "gradient_clipping" not in job.config
        repair = Edit("rename", (*path, "max_grad_norm"), ("gradient_clipping",))
        yield job.finding(
            "max-grad-norm", "error", (*path, "max_grad_norm"),
            "max_grad_norm is no argument of an optimizer: DeepSpeed stops with a ValueError.",
            'Write "gradient_clipping" at the top level.',
            evidence=("runtime/engine.py:2483", "B13"),
            repair=(repair if free else Edit("remove", (*path, "max_grad_norm")),),
        )  # fmt: skip
    yield from _numbers(job, path, params)
    table = job.schema.table["optimizer_arguments"]
    takes = table.get("adam" if kind == "adamw" else kind)
    if takes is None or params.get("torch_adam"):
        return
    for key in params:
        if key in takes or key in TAKEN or key in ("max_grad_norm",):
            continue
        near = ALIASES.get(key) or closest(key, [*takes, *TAKEN], cutoff=0.7)
        yield job.finding(
            "extra-key",
            "error",
            (*path, key),
            f'{job.get("optimizer.type")} has no argument "{key}": it stops with a TypeError.',
            f'Write "{near}".' if near else f"It takes {', '.join(takes)}.",
            evidence=("runtime/engine.py:2493",),
            repair=(Edit("rename", (*path, key), (*path, near)),) if near else (),
        )


def _numbers(job: Job, path: tuple[str, ...], params: dict[str, Any]) -> Iterator[Finding]:
    """Numbers written as text; for "auto" see the rule of that name."""
    for key, value in params.items():
        if not isinstance(value, str):
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        yield job.finding(
            "number-as-text", "error", (*path, key),
            f"{shown(value)} is text: the arithmetic with it fails.", f"Write {value}.",
            repair=(Edit("set", (*path, key), number),),
        )  # fmt: skip


def untested(job: Job) -> Iterator[Finding]:
    """ZeRO with an optimizer it was not tested with."""
    kind = named(job)
    allowed = job.config.get("zero_allow_untested_optimizer") or job.framework
    if not kind or job.zero == 0 or allowed:
        return
    torch_own = kind in ("Adam", "AdamW", "Adagrad")
    exists = kind in job.schema.table["optimizers"] or kind in TORCH
    if kind not in TESTED and not torch_own and exists:
        yield job.finding(
            "untested-optimizer",
            "error",
            "optimizer.type",
            f'ZeRO-{job.zero} stops at {job.get("optimizer.type")}: "You are using an untested '
            'ZeRO Optimizer".',
            'Write "zero_allow_untested_optimizer": true at the top level, or use Adam.',
            evidence=("runtime/engine.py:2301", "runtime/zero/utils.py:45"),
            repair=(Edit("set", ("zero_allow_untested_optimizer",), True),),
        )


def lamb(job: Job) -> Iterator[Finding]:
    """LAMB asks for dynamic loss scaling."""
    scale = job.section("fp16").get("loss_scale", 0)
    if named(job) == "lamb" and isinstance(scale, (int, float)) and scale:
        yield job.finding(
            "optimizer-conflict", "error", "fp16.loss_scale",
            "LAMB needs dynamic loss scaling: DeepSpeed asserts that loss_scale is 0.",
            "Write 0.", evidence=("runtime/engine.py:2022",),
            repair=(Edit("set", ("fp16", "loss_scale"), 0),),
        )  # fmt: skip


def scheduler(job: Job) -> Iterator[Finding]:
    """The scheduler's type and arguments."""
    section = job.section("scheduler")
    if not section:
        return
    kind, own = section.get("type"), job.schema.table["schedulers"]
    if kind is None:
        yield job.finding(
            "missing-key", "wrong", "scheduler.type",
            'Without "type" DeepSpeed ignores the whole section.', 'Write "type": "WarmupLR".',
            evidence=("runtime/config.py:325",),
        )  # fmt: skip
        return
    if not isinstance(kind, str) or kind not in {*own, *TORCH_SCHEDULERS}:
        near = closest(str(kind), [*own, *TORCH_SCHEDULERS], cutoff=0.7)
        yield job.finding(
            "unknown-scheduler", "error", "scheduler.type",
            f"{shown(kind)} is no scheduler of DeepSpeed or torch: DeepSpeed asserts it.",
            f'Write "{near}".' if near else f"DeepSpeed has {', '.join(own)}.",
            evidence=("runtime/engine.py:1930",),
            repair=(Edit("set", ("scheduler", "type"), near),)
            if near and closest(str(kind), [near], SURE) else (),
        )  # fmt: skip
        return
    params = section.get("params")
    if not isinstance(params, dict):
        yield job.finding(
            "missing-key" if params is None else "wrong-type", "error", "scheduler.params",
            'A scheduler needs a "params" section: without it DeepSpeed stops with a TypeError.',
            'Write "params": {}, with what it takes.', evidence=("runtime/engine.py:1935",),
        )  # fmt: skip
        return
    path = ("scheduler", "params")
    yield from _numbers(job, path, params)
    if kind in own:
        yield from _scheduler_arguments(job, kind, params)


def _scheduler_arguments(job: Job, kind: str, params: dict[str, Any]) -> Iterator[Finding]:
    takes, needs = (job.schema.table["schedulers"][kind][n] for n in ("arguments", "required"))
    path = ("scheduler", "params")
    for key in needs:
        if key not in params:
            yield job.finding(
                "missing-key", "error", (*path, key), f'{kind} needs "{key}".', "Write it.",
                evidence=("runtime/lr_schedules.py",),
            )  # fmt: skip
    for key in params:
        if key not in takes:
            near = closest(key, takes, cutoff=0.7)
            advice = f'Write "{near}".' if near else f"It takes {', '.join(takes)}."
            if kind == "WarmupCosineLR" and key in ("warmup_min_lr", "warmup_max_lr"):
                advice = (
                    "It goes up to optimizer.params.lr, and starts and ends at shares of that: "
                    '"warmup_min_ratio", "cos_min_ratio".'
                )
            yield job.finding(
                "extra-key", "error", (*path, key),
                f'{kind} has no argument "{key}": it stops with a TypeError.',
                advice,
                evidence=("runtime/lr_schedules.py",),
                repair=(Edit("rename", (*path, key), (*path, near)),) if near else (),
            )  # fmt: skip
    steps = params.get("warmup_num_steps")
    if steps is not None and steps != "auto" and kind.startswith("Warmup"):
        exact = isinstance(steps, int) and not isinstance(steps, bool)
        if not exact or steps <= 0:
            number = whole(steps)
            yield job.finding(
                "wrong-value", "error", (*path, "warmup_num_steps"),
                f"warmup_num_steps must be a whole number of at least 1, not {shown(steps)}.",
                f"Write {number}." if number and number > 0 else "Write 1 for no warm-up.",
                evidence=("runtime/lr_schedules.py:733",),
                repair=(Edit("set", (*path, "warmup_num_steps"), max(1, number)),)
                if number is not None else (),
            )  # fmt: skip


RULES = (name, arguments, untested, lamb, scheduler)
