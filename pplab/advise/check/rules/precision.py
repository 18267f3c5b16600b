"""Number types: which one computes, which one sums gradients, and loss scaling.

``runtime/engine.py:2294-2325`` decides from three things: fp16/bf16, ZeRO stage and
``data_types.grad_accum_dtype``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import real, shown, whole
from pplab.advise.check.words import DTYPES

ACCUM = "data_types.grad_accum_dtype"
#: A start of dynamic loss scaling from which the first steps are surely lost.
STEEP = 24


def both(job: Job) -> Iterator[Finding]:
    """fp16 and bf16 together."""
    bf16 = "bf16" if job.enabled("bf16") else "bfloat16"
    if job.enabled("fp16") and job.enabled(bf16):
        yield job.finding(
            "two-precisions", "error", "fp16.enabled",
            "fp16 and bf16 are both on: DeepSpeed asserts that they are not.",
            "Turn one of them off.", evidence=("runtime/config.py:512",),
        )  # fmt: skip


def types(job: Job) -> Iterator[Finding]:
    """Names of number types, and param_dtype that contradicts the mode."""
    for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype"):
        value = job.get(f"data_types.{key}")
        if value is None or str(value).lower() in DTYPES:
            continue
        yield job.finding(
            "wrong-value", "error", f"data_types.{key}",
            f"{shown(value)} is no number type DeepSpeed knows.",
            'Write "fp32", "bf16" or "fp16".', evidence=("runtime/config.py:144",),
        )  # fmt: skip
    wanted = DTYPES.get(str(job.get("data_types.param_dtype", "")).lower())
    if wanted and wanted != job.dtype:
        yield job.finding(
            "wrong-value", "error", "data_types.param_dtype",
            f"The parameters are {job.dtype} (from the fp16 and bf16 sections), not {wanted}: "
            "DeepSpeed asserts that they agree.",
            f'Turn on "{wanted}", or remove param_dtype.', evidence=("runtime/engine.py:1827",),
        )  # fmt: skip
    for key in ("communication_data_type", "seq_parallel_communication_data_type"):
        value = job.config.get(key)
        if value is not None and str(value).lower() not in ("fp16", "bf16", "fp32"):
            yield job.finding(
                "wrong-value", "error", key,
                f"{shown(value)} is not one of fp16, bf16, fp32: DeepSpeed stops.",
                'Write "fp32", or remove the key.', evidence=("runtime/config.py:230",),
            )  # fmt: skip


def accumulation(job: Job) -> Iterator[Finding]:
    """In which type the gradients of the micro-batches are summed."""
    kind, total = job.dtype, job.accumulation
    if job.zero == 0 and kind != total:
        yield job.finding(
            "accumulation-dtype",
            "error",
            ACCUM,
            f"Without ZeRO gradients can only be summed in the type of the model ({kind}), not in "
            f"{total}: DeepSpeed stops with NotImplementedError.",
            'Set "zero_optimization": {"stage": 1}: then bf16 with fp32 sums works (the '
            "BF16_Optimizer).",
            evidence=("runtime/engine.py:2323", "A79"),
            repair=(Edit("set", ("zero_optimization", "stage"), 1),)
            if isinstance(job.config.get("zero_optimization", {}), dict)
            else (),
        )
    elif kind == "bf16" and total == "bf16" and job.pipeline and job.zero < 2:
        how = (
            "Without ZeRO a pipeline gets the BF16_Optimizer (optimizer states divided by the "
            "replicas, as in ZeRO-1)"
            if job.zero == 0
            else "ZeRO-1 keeps the gradients in bf16"
        )
        m = job.micro_batches
        several = f"{m} micro-batches" if m else "all micro-batches"
        summed = "the replicas" if m == 1 else several
        yield job.finding(
            "accumulation-dtype",
            "note",
            ACCUM if job.get(ACCUM) else "bf16",
            f"{how}: the gradients of {summed} are summed in bf16, which has 8 bits of precision.",
            'For fp32 sums: "zero_optimization": {"stage": 1} and "data_types": '
            '{"grad_accum_dtype": "fp32"}.',
            evidence=("runtime/engine.py:2318", "A78", "A80"),
        )


def loss_scale(job: Job) -> Iterator[Finding]:
    """fp16 settings that a model takes and training does not."""
    section = job.section("fp16")
    scale = section.get("loss_scale", 0)
    number = real(scale) if not isinstance(scale, bool) else None
    if scale != "auto" and "loss_scale" in section and (number is None or number < 0):
        yield job.finding(
            "wrong-value", "error", "fp16.loss_scale",
            f"The loss scale is 0 (dynamic) or a positive number, not {shown(scale)}.",
            "Write 0.", evidence=("runtime/precision_config.py:132",),
            repair=(Edit("set", ("fp16", "loss_scale"), 0),),
        )  # fmt: skip
    for key in ("loss_scale_window", "min_loss_scale"):
        if isinstance(section.get(key), bool):
            yield job.finding(
                "wrong-type", "error", f"fp16.{key}",
                f"{key} must be a whole number, not {shown(section[key])}: DeepSpeed stops.",
                "Remove it, or write 1000 (window) or 1 (minimum).",
                evidence=("runtime/precision_config.py:173",),
            )  # fmt: skip
    if not job.enabled("fp16"):
        return
    if number == 0 or scale == "auto":
        for key in ("loss_scale_window", "min_loss_scale"):
            value = whole(section.get(key, 1))
            if value is not None and value <= 0 and not isinstance(section.get(key), bool):
                yield job.finding(
                    "wrong-value", "error", f"fp16.{key}",
                    f"Dynamic loss scaling needs {key} above 0, not {value}.",
                    "Remove it, or write 1000 (window) or 1 (minimum).",
                    evidence=("runtime/precision_config.py:193",),
                )  # fmt: skip
    power = whole(section.get("initial_scale_power", 16))
    if power is not None and power > STEEP:
        yield job.finding(
            "steep-loss-scale", "note", "fp16.initial_scale_power",
            f"Dynamic scaling starts at 2^{power}: gradients overflow and steps are skipped until "
            "it has come down to where fp16 can hold them.",
            "12 to 16 is usual.", evidence=("B21", "B23"),
        )  # fmt: skip
    if job.pipeline and job.zero == 0 and job.deepspeed == "0.19.8":
        yield job.finding(
            "unscaled-loss",
            "note",
            "fp16",
            "DeepSpeed 0.19.8 does not scale the loss with fp16 and without ZeRO, but divides the "
            "gradients by the scale: updates come out far too small.",
            'Use "zero_optimization": {"stage": 1}, or bf16.',
            evidence=("runtime/engine.py:3417", "facts g5"),
        )


def cast(job: Job) -> Iterator[Finding]:
    """fp16.auto_cast acts whether fp16 is on or not."""
    unsaid = job.get("fp16.enabled") == "auto" and not job.pipeline  # transformers decides
    if unsaid or job.enabled("fp16") or not job.switched_on("fp16", "auto_cast"):
        return
    yield job.finding(
        "cast-without-fp16",
        "error" if (job.pipe or 1) > 1 else "risky",
        "fp16.auto_cast",
        f"fp16 is off, and auto_cast still turns floating-point inputs to fp16, in a model of "
        f'{job.dtype}: "mat1 and mat2 must have the same dtype".',
        "Write false, and cast the inputs in the first layer.",
        evidence=("runtime/engine.py:2957",),
        repair=(Edit("set", ("fp16", "auto_cast"), False),),
    )


def master_weights(job: Job) -> Iterator[Finding]:
    """Low-precision master weights need ZeRO, and bf16 states need bf16 masters."""
    for section, key in (
        ("fp16", "fp16_master_weights_and_grads"),
        ("bf16", "bf16_master_weights_and_grads"),
        ("bf16", "bf16_optimizer_states"),
    ):
        if job.switched_on(section, key) and job.zero == 0:
            yield job.finding(
                "precision-conflict", "error", f"{section}.{key}",
                f"{key} works with ZeRO only: DeepSpeed asserts it.",
                'Set "zero_optimization": {"stage": 1}, or remove it.',
                evidence=("runtime/config.py:705",),
            )  # fmt: skip
    yield from _on_the_cpu(job)
    states = job.switched_on("bf16", "bf16_optimizer_states")
    if states and not job.switched_on("bf16", "bf16_master_weights_and_grads"):
        yield job.finding(
            "precision-conflict", "error", "bf16.bf16_optimizer_states",
            "bf16_optimizer_states needs bf16_master_weights_and_grads.", "Turn both on, or none.",
            evidence=("runtime/config.py:714", "B06"),
        )  # fmt: skip


def _on_the_cpu(job: Job) -> Iterator[Finding]:
    """Low-precision master weights are DeepSpeedCPUAdam's, unless bf16 states go with them."""
    if job.zero == 0:
        return  # refused anyway
    device = job.get("zero_optimization.offload_optimizer.device", "none")
    offloaded = device in ("cpu", "nvme") or job.switched_on("zero_optimization", "cpu_offload")
    states = job.switched_on("bf16", "bf16_optimizer_states")
    for section in ("fp16", "bf16"):
        key = f"{section}_master_weights_and_grads"
        own = section == "bf16" and job.zero == 1 and job.accumulation == "fp32"
        free = own or (section == "bf16" and states)  # the BF16_Optimizer does not ask
        if not job.switched_on(section, key) or (free and not offloaded):
            continue
        if offloaded and job.get("optimizer.params.torch_adam") is not True:
            continue
        yield job.finding(
            "master-weights", "error", f"{section}.{key}",
            f"{key} needs the optimizer on the CPU, and DeepSpeed's own Adam there: it asserts "
            "both.",
            'Write "offload_optimizer": {"device": "cpu"} in zero_optimization, without torch_adam'
            + (", or turn bf16_optimizer_states on." if section == "bf16" else "."),
            evidence=("runtime/base_optimizer.py:510", "runtime/zero/stage_1_and_2.py:329"),
        )  # fmt: skip


def full_precision(job: Job) -> Iterator[Finding]:
    """Sections that are there and off: an fp32 run that may not be meant."""
    off = [
        name for name in ("fp16", "bf16", "bfloat16") if job.section(name).get("enabled") is False
    ]
    if off and job.dtype == "fp32" and not job.enabled("torch_autocast"):
        yield job.finding(
            "full-precision", "note", off[0],
            f"{' and '.join(off)} off: this is an fp32 run.",
            evidence=("B18",),
        )  # fmt: skip


RULES = (both, types, accumulation, loss_scale, cast, master_weights, full_precision)
