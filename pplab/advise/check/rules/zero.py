"""ZeRO and offload: what works with a pipeline, and what is written in vain."""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.job import Job
from pplab.advise.check.lax import real, whole

STAGE = "zero_optimization.stage"
#: Settings without "stage3_" in their name that reach ZeRO-3 alone (``runtime/engine.py:2715``).
ONLY_THREE = {
    "sub_group_size", "prefetch_bucket_size", "param_persistence_threshold", "leaf_module",
    "model_persistence_threshold", "max_live_parameters", "max_reuse_distance",
    "gather_16bit_weights_on_model_save", "module_granularity_threshold",
    "zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_nontrainable_weights",
}  # fmt: skip


def with_pipeline(job: Job) -> Iterator[Finding]:
    """ZeRO-2 and 3 are refused by the pipeline engine."""
    if not job.pipeline or job.zero < 2:
        return
    one = (
        " One stage is no way out: a PipelineModule brings the pipeline engine even then."
        if job.pipe == 1
        else ""
    )
    yield job.finding(
        "zero-with-pipeline",
        "error",
        STAGE,
        f'The pipeline engine stops at ZeRO-{job.zero}: "ZeRO-2 and ZeRO-3 are incompatible with '
        'pipeline parallelism". They reduce (ZeRO-3 also gathers) at every micro-batch, which a '
        f"pipeline with many micro-batches would pay for each time.{one}",
        "Use stage 1 with the pipeline, or ZeRO-3 without a PipelineModule (check with "
        "--no-pipeline).",
        evidence=("runtime/pipe/engine.py:76", "A20", "A21", "A23", "A24", "A27"),
        repair=(Edit("set", ("zero_optimization", "stage"), 1),)
        if isinstance(job.config.get("zero_optimization"), dict)
        else (),
    )


def alone(job: Job) -> Iterator[Finding]:
    """ZeRO-1 divides by the replicas; one replica has nothing to divide."""
    if job.zero == 1 and job.replicas == 1:
        yield job.finding(
            "zero-alone", "note", STAGE,
            "With one replica (d = 1) ZeRO-1 saves no memory: it divides optimizer states by d.",
            evidence=("A26",),
        )  # fmt: skip


def offload(job: Job) -> Iterator[Finding]:
    """Offload sections that do nothing, or lack their path."""
    for name in ("offload_param", "offload_optimizer"):
        section = job.get(f"zero_optimization.{name}")
        device = section.get("device", "none") if isinstance(section, dict) else "none"
        if device not in ("cpu", "nvme"):
            continue
        path = ("zero_optimization", name)
        if name == "offload_param" and job.zero < 3:
            yield job.finding(
                "offload-ignored",
                "wrong",
                path,
                f"Parameters are offloaded by ZeRO-3 only; with stage {job.zero} this section does "
                "nothing.",
                'Remove it; "offload_optimizer" works with stage 1 and a pipeline.',
                evidence=("runtime/zero/config.py:164", "claims 1.24"),
                repair=(Edit("remove", path),),
            )
        elif name == "offload_optimizer" and job.zero == 0:
            yield job.finding(
                "offload-without-zero",
                "error",
                path,
                "Without ZeRO the parameters stay on the GPU, but DeepSpeed makes a CPU Adam for "
                "them, which stops with \"CPUAdam param is on cuda and must be 'cpu'\".",
                'Set "stage": 1, or remove the section.',
                evidence=("runtime/engine.py:1562", "ops/adam/cpu_adam.py:148"),
                repair=(Edit("set", ("zero_optimization", "stage"), 1),),
            )
        elif device == "nvme":
            yield from _nvme(job, path, section)


def _nvme(job: Job, path: tuple[str, str], section: dict) -> Iterator[Finding]:
    if job.zero < 3:
        yield job.finding(
            "nvme-is-cpu", "risky", (*path, "device"),
            f"ZeRO-{job.zero} knows one kind of offload: nvme becomes CPU memory.",
            'Write "cpu", and count with the host\'s memory.',
            evidence=("runtime/zero/stage_1_and_2.py:220", "claims 1.24"),
            repair=(Edit("set", (*path, "device"), "cpu"),),
        )  # fmt: skip
    elif not section.get("nvme_path"):
        yield job.finding(
            "missing-key", "error", (*path, "nvme_path"),
            'Offload to nvme needs "nvme_path": DeepSpeed stops without it.',
            "Write the folder on the NVMe disk.",
            evidence=("runtime/zero/partition_parameters.py:1229", "runtime/zero/stage3.py:840"),
        )  # fmt: skip


def in_vain(job: Job) -> Iterator[Finding]:
    """Settings of another stage, and communication overlap under a pipeline."""
    section = job.section("zero_optimization")
    if job.zero < 3:
        named = [key for key in section if key.startswith("stage3_") or key in ONLY_THREE]
        keys = [key for key in named if section[key] != "auto" and section[key] is not False]
        if keys:
            yield job.finding(
                "other-stage", "note", ("zero_optimization", keys[0]),
                f"{', '.join(keys)}: settings of ZeRO-3, without effect at stage {job.zero}.",
            )  # fmt: skip
    if job.pipeline and job.zero == 1 and section.get("overlap_comm") is True:
        yield job.finding(
            "overlap-disabled", "note", "zero_optimization.overlap_comm",
            "Under a pipeline DeepSpeed turns overlap_comm off, with a warning.",
            evidence=("runtime/engine.py:2665",),
        )  # fmt: skip


def conflicts(job: Job) -> Iterator[Finding]:
    """Settings that ZeRO asserts against each other."""
    section = job.section("zero_optimization")
    path = "zero_optimization"
    ratio = job.get(f"{path}.offload_optimizer.ratio", 1.0)
    number = real(ratio) if ratio != "auto" else 1.0
    if number is not None and number < 1.0 and job.zero < 3:
        yield job.finding(
            "zero-conflict", "error", f"{path}.offload_optimizer.ratio",
            "Partial offload (a ratio below 1) works with ZeRO-3 only: DeepSpeed asserts it.",
            "Remove the ratio.", evidence=("runtime/zero/config.py:399", "B17"),
            repair=(Edit("remove", (path, "offload_optimizer", "ratio")),),
        )  # fmt: skip
    if section.get("compute_grad_norm") is False:
        clipping = real(job.config.get("gradient_clipping", 1.0))
        if job.zero not in (1, 2):
            yield job.finding(
                "zero-conflict", "error", f"{path}.compute_grad_norm",
                "compute_grad_norm: false is supported with ZeRO-1 and 2 only.",
                "Remove it.", evidence=("runtime/zero/config.py:392",),
                repair=(Edit("remove", (path, "compute_grad_norm")),),
            )  # fmt: skip
        elif clipping is None or clipping > 0:
            yield job.finding(
                "zero-conflict", "error", f"{path}.compute_grad_norm",
                "compute_grad_norm: false needs gradient_clipping 0; clipping is on by default.",
                'Write "gradient_clipping": 0.0.', evidence=("runtime/zero/stage_1_and_2.py:213",),
            )  # fmt: skip
    if section.get("legacy_stage1") is True and job.zero:
        yield job.finding(
            "zero-conflict", "error", f"{path}.legacy_stage1",
            "The old ZeRO-1 was removed in DeepSpeed 0.5.9: the engine stops at this key.",
            "Remove it.", evidence=("runtime/engine.py:2652",),
            repair=(Edit("remove", (path, "legacy_stage1")),),
        )  # fmt: skip
    bucket = whole(section.get("allgather_bucket_size", 0))
    if bucket is not None and bucket % 2 and job.zero in (1, 2):
        yield job.finding(
            "zero-conflict", "error", f"{path}.allgather_bucket_size",
            f"{bucket} is odd, and ZeRO-{job.zero} asserts an even number.",
            f"Write {bucket + 1}.", evidence=("runtime/zero/stage_1_and_2.py:389",),
            repair=(Edit("set", (path, "allgather_bucket_size"), bucket + 1),),
        )  # fmt: skip


def before_reducing(job: Job) -> Iterator[Finding]:
    """Gradients that are scaled before they are reduced: not where they are scattered."""
    on = job.switched_on("zero_optimization", "reduce_scatter", default=True)
    summed = str(job.config.get("gradient_allreduce_op", "mean")).lower() == "sum"
    if job.pipeline or not on or job.zero < 2 or (job.zero == 2 and summed):
        return
    two, three = "runtime/zero/stage_1_and_2.py:350", "runtime/zero/stage3.py:395"
    factor = job.config.get("gradient_predivide_factor", 1.0)
    wrong = {"prescale_gradients": job.config.get("prescale_gradients") is True}
    wrong["gradient_predivide_factor"] = factor != "auto" and real(factor) not in (None, 1.0)
    for key in (key for key, there in wrong.items() if there):
        what = "pre-scaled gradients" if key == "prescale_gradients" else "a factor other than 1"
        yield job.finding(
            "zero-conflict", "error", key,
            f"ZeRO-{job.zero} with reduce_scatter does not support {what}: DeepSpeed asserts it.",
            f"Remove {key}, or set reduce_scatter to false.",
            evidence=(two if job.zero == 2 else three,), repair=(Edit("remove", (key,)),),
        )  # fmt: skip


RULES = (with_pipeline, alone, offload, in_vain, conflicts, before_reducing)
