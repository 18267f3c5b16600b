"""The field's cases that a static check can know (section A of shared/cases.md), one row each.

A row is what was reported, written anew: the config, what is known about the job, and the rule that
must speak, with its least severity. Paraphrased facts; nothing is copied.
"""

from typing import Any, NamedTuple

import pytest

from pplab.advise.check import check
from pplab.advise.check.finding import SEVERITIES
from pplab.core.profile import LayerProfile, Profile

ZERO1 = {"zero_optimization": {"stage": 1}}
BF16 = {"bf16": {"enabled": True}}
SMALL = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 16}
INTERVAL = {"pipeline": {"activation_checkpoint_interval": 1}}


class Case(NamedTuple):
    """id in cases.md, config, job, expected rule, least severity, key or "" for any."""

    id: str
    config: Any
    job: dict[str, Any]
    rule: str
    severity: str = "note"
    key: str = ""


def batch(train: int | None = None, micro: int | None = None, gas: int | None = None, **more: Any):
    """A config with the three numbers that are not None."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    numbers = zip(names, (train, micro, gas), strict=True)
    return {name: value for name, value in numbers if value is not None} | more


def zero(stage: int, **more: Any) -> dict[str, Any]:
    """A config with a ZeRO stage."""
    return SMALL | {"zero_optimization": {"stage": stage}} | more


def profile(*layers: tuple[str, int]) -> Profile:
    """A model of (class, trainable parameters)."""
    return Profile(
        tuple(
            LayerProfile(f"{i}", 1.0, 2.0, parameters=n, parameter_bytes=4 * n, kind=kind)
            for i, (kind, n) in enumerate(layers)
        )
    )


BASE64_NEOX = (
    "eyJ0cmFpbl9iYXRjaF9zaXplIjogOCwgInRyYWluX21pY3JvX2JhdGNoX3NpemVfcGVyX2dwdSI6IDQsICJmcDE2Ijog"
    "eyJmcDE2IjogdHJ1ZSwgImVuYWJsZWQiOiB0cnVlfSwgInplcm9fb3B0aW1pemF0aW9uIjogeyJzdGFnZSI6IDMsICJv"
    "dmVybGFwX2NvbW0iOiB0cnVlfX0="
)
MASK = {"name": "mask", "dtype": "bool", "grad": False}
IDS = {"name": "ids", "dtype": "int64", "grad": False}
HIDDEN = {"name": "hidden", "dtype": "float32", "grad": True}
ROTARY = {"name": "rotary", "dtype": "float32", "grad": False}
LENGTHS = {"name": "hidden", "dtype": "float32", "shapes": [[4, 2262], [4, 2361]]}

CASES = [
    # A1 batch triangle
    Case("A01", batch(64, 4, 8), {"ranks": 1}, "batch-triangle", "error"),
    Case("A02", batch(256, 2), {"ranks": 7}, "batch-triangle", "error"),
    Case("A03", batch(256, 8), {"command": "deepspeed --num_gpus 8 train.py "
         "--gradient_accumulation_steps 4 --deepspeed_config x.json"}, "two-sources", "wrong"),
    Case("A03b", batch(256, 8, 1), {"ranks": 8}, "batch-triangle", "error"),
    Case("A06", batch(micro=2, gas=4), {"used_by": "lightning", "pipeline": False},
         "owned-by-framework", "error", "gradient_accumulation_steps"),
    Case("A07", batch(4), {"ranks": 8}, "batch-too-small", "error"),
    Case("A09", SMALL, {"ranks": 4, "stages": 4, "tensor": 2}, "ranks-not-divisible", "error"),
    Case("A10", batch(micro=1, gas=1, batch_accumulation_per_replica=1), {"ranks": 8, "stages": 8},
         "few-micro-batches", "risky"),
    Case("A10b", batch(micro=1, batch_accumulation_per_replica=1), {"ranks": 8, "stages": 8},
         "foreign-key", "wrong", "batch_accumulation_per_replica"),
    Case("A11", batch(64, 8, 4), {"ranks": 8, "stages": 2}, "batch-triangle", "error"),
    # A2 world size, stages, micro-batches
    Case("A12", batch(micro=4, gas=1), {"ranks": 8, "stages": 8}, "few-micro-batches", "risky"),
    Case("A13", batch(micro=4, gas=2), {"ranks": 4, "stages": 2}, "bubble"),
    Case("A14", batch(micro=1, gas=3), {"stages": 6, "schedule": "interleaved", "chunks": 2},
         "interleaved-micro-batches", "error"),
    Case("A15", batch(micro=1, gas=8), {"stages": 2, "schedule": "interleaved", "chunks": 2},
         "interleaved-two-stages"),
    Case("A17", SMALL, {"ranks": 4, "stages": 2, "env": {"WORLD_SIZE": "2", "RANK": "0",
         "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}}, "wrong-world", "error"),
    Case("A18", batch(micro=1, gas=6), {"stages": 4, "schedule": "interleaved", "chunks": 2},
         "interleaved-micro-batches", "error"),
    # A3 ZeRO-2/3 with a pipeline
    Case("A20", batch(2, 1, zero_optimization={"stage": 2}, fp16={"enabled": True}),
         {"ranks": 2, "stages": 2}, "zero-with-pipeline", "error", "zero_optimization.stage"),
    Case("A21", zero(2), {"stages": 4}, "zero-with-pipeline", "error"),
    Case("A23", zero(3), {"ranks": 4, "stages": 1, "tensor": 4}, "zero-with-pipeline", "error"),
    Case("A24", BASE64_NEOX, {"ranks": 4, "stages": 2}, "zero-with-pipeline", "error"),
    Case("A24b", BASE64_NEOX, {"ranks": 4, "stages": 2}, "extra-key", "error", "fp16.fp16"),
    Case("A26", zero(1), {"ranks": 8, "stages": 8}, "zero-alone"),
    Case("A27", zero(2), {"command": "deepspeed --num_gpus 4 pretrain_gpt.py "
         "--pipeline-model-parallel-size 2"}, "zero-with-pipeline", "error"),
    # A4 keys
    Case("A28", SMALL | {"gradient_clipp1ng": 1.0}, {}, "misspelt-key", "wrong",
         "gradient_clipp1ng"),
    Case("A29", {**SMALL, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
         {"version": "0.9.5", "pipeline": False}, "too-new-key", "error"),
    Case("A30", SMALL | {"zero_optimization": True}, {}, "deprecated-form", "risky",
         "zero_optimization"),
    Case("A31", SMALL | {"activation_checkpointing": {"partition_activations": True}},
         {"stages": 4}, "checkpointing-section"),
    # A5 activation checkpointing
    Case("A32", SMALL | INTERVAL, {"stages": 4}, "checkpointed-inputs"),
    Case("A33", SMALL | {"pipeline": {"activation_checkpoint_interval": 8}},
         {"ranks": 8, "stages": 4}, "checkpointed-inputs"),
    Case("A34", SMALL | INTERVAL, {"stages": 2, "boundary": [HIDDEN, IDS]},
         "boundary-checkpointed", "error"),
    Case("A35", SMALL | INTERVAL, {"stages": 2, "version": "0.18.5"}, "version-bug"),
    Case("A37", SMALL, {"stages": 2, "boundary": [HIDDEN, None]}, "boundary-not-tensor", "error"),
    Case("A38", batch(micro=4, gas=1), {"stages": 2, "boundary": [HIDDEN, ROTARY]},
         "boundary-float-without-grad", "error"),
    # A6 partition, layers, tied and frozen weights
    Case("A40", SMALL, {"stages": 2, "partition": "type:block",
         "model": profile(("Embedding", 900), *[("Block", 100)] * 6)}, "uneven-parameters"),
    Case("A42", SMALL, {"stages": 4, "layers": 3}, "empty-stages", "error"),
    Case("A42b", SMALL, {"stages": 4, "layers": 5, "version": "0.10.3"}, "version-bug", "risky"),
    Case("A43", zero(1), {"ranks": 2, "stages": 2, "partition": "type:embed",
         "model": profile(("Embedding", 100), ("Softmax", 0))}, "stage-without-parameters",
         "error"),
    Case("A44", zero(1, **BF16), {"ranks": 8, "stages": 8,
         "model": profile(("Embedding", 1245), *[("Block", 805)] * 6, ("EmbeddingOut", 1245))},
         "stage-only-embedding", "risky"),
    Case("A45", SMALL, {"stages": 2, "parts": [2, 2], "layers": 4, "model":
         profile(("Frozen", 0), ("Frozen", 0), ("Block", 9), ("Block", 9))},
         "stage-without-parameters", "error"),
    Case("A46", SMALL, {"stages": 4, "layers": 30}, "uneven-layers"),
    Case("A47", batch(micro=1, gas=16), {"stages": 16, "layers": 80, "chunks": 2,
         "schedule": "interleaved"}, "layers-do-not-divide", "error"),
    Case("A48", SMALL, {"stages": 2, "layers": 48, "parts": [11, 13]}, "parts-do-not-sum", "error"),
    Case("A49", SMALL, {"stages": 2, "model": profile(("Embedding", 900), ("Norm", 0)),
         "partition": "uniform"}, "stage-without-parameters", "error"),
    Case("A53", SMALL, {"stages": 4, "layers": 27, "parts": [6, 6, 6, 6]}, "parts-do-not-sum"),
    Case("A54", SMALL, {"stages": 2, "partition": "uniform", "model":
         profile(("Projector", 50), ("Frozen", 0), ("Frozen", 0), ("Frozen", 0))},
         "stage-without-parameters", "error"),
    Case("A55", SMALL, {"stages": 8, "layers": 60}, "uneven-layers"),
    # A7 what crosses the boundary
    Case("A56", SMALL, {"stages": 2, "boundary": [LENGTHS]}, "boundary-shapes", "error"),
    Case("A59", SMALL, {"stages": 3, "boundary": [HIDDEN, MASK, ROTARY]},
         "boundary-float-without-grad", "error"),
    Case("A60", SMALL, {"stages": 2, "tensor": 2, "boundary": [HIDDEN, MASK]}, "boundary-bool"),
    Case("A63", SMALL, {"stages": 3, "boundary": [IDS, HIDDEN]}, "boundary-order", "wrong"),
    Case("A65", SMALL, {"stages": 2, "boundary": [{"name": "dict"}]}, "boundary-not-tensor"),
    # A8 data
    Case("A67", batch(256, 8), {"ranks": 8, "stages": 2, "samples": 50_000}, "short-last-batch",
         "error"),
    Case("A68", batch(micro=16, gas=4), {"ranks": 2, "stages": 2, "samples": 1001},
         "short-last-batch", "error"),
    Case("A69", batch(micro=4, gas=8), {"ranks": 3, "stages": 3, "samples": 64, "steps": 10},
         "loader-too-short", "risky"),
    Case("A70", batch(micro=8, gas=4), {"stages": 2, "eval_micro_batch": 2}, "eval-micro-batch",
         "error"),
    # A9 versions
    Case("A72", batch(micro=2, gas=16), {"stages": 2, "version": "0.18.2"}, "version-bug", "wrong"),
    Case("A73", batch(micro=2, gas=8), {"stages": 2, "version": "0.19.2"}, "version-bug", "wrong"),
    Case("A74", SMALL, {"ranks": 4, "stages": 2, "version": "0.12.2"}, "version-bug", "wrong"),
    # A10 accumulation
    Case("A78", zero(1, **BF16), {"stages": 4}, "accumulation-dtype"),
    Case("A79", zero(0, **BF16, data_types={"grad_accum_dtype": "fp32"}), {"stages": 2},
         "accumulation-dtype", "error", "data_types.grad_accum_dtype"),
    Case("A80", zero(0, **BF16), {"stages": 2}, "accumulation-dtype"),
    # A11 memory
    Case("A82", batch(micro=1, gas=2), {"ranks": 64, "stages": 8}, "few-micro-batches"),
    Case("A84", SMALL, {"stages": 4, "version": "0.8.1"}, "version-bug"),
    Case("A85", batch(micro=1, gas=2), {"stages": 4}, "few-micro-batches"),
    Case("A87", SMALL, {"stages": 4, "schedule": "zb-v", "chunks": 2}, "folded-schedule"),
    # A12 slow
    Case("A90", batch(2048, 1), {"ranks": 384, "stages": 12, "tensor": 4,
         "ramp_up": [16, 16, 9_000_000]}, "ramp-up", "risky"),
    Case("A93", SMALL, {"stages": 4, "schedule": "interleaved"}, "schedule-not-shipped", "risky"),
    # A13 checkpoints
    Case("A95", zero(1), {"ranks": 8, "stages": 2, "saved": {"stages": 2, "replicas": 2}},
         "checkpoint-shape", "error"),
    Case("A97", zero(1, checkpoint={"load_universal": True}), {"ranks": 4, "stages": 2,
         "saved": {"tensor": 2}}, "checkpoint-shape", "error"),
    # A14 launch
    Case("A98", SMALL, {"ranks": 2, "stages": 2, "env": [
         {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a",
          "MASTER_PORT": "1", "HOSTNAME": "n1"},
         {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a",
          "MASTER_PORT": "1", "HOSTNAME": "n1"}]}, "local-rank", "error"),
    Case("A98b", SMALL, {"command": "srun -n 8 python train.py"}, "local-rank", "risky"),
    Case("A99", SMALL, {"env": [
         {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "10.0.0.1",
          "MASTER_PORT": "1", "HOSTNAME": "n1"},
         {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "10.0.0.1",
          "MASTER_PORT": "1", "HOSTNAME": "n2"}]}, "network-interface", "risky"),
    Case("A100", SMALL, {"hostfile": "n1 slots=4\nn2 slots=8\n"}, "uneven-hosts", "risky"),
    Case("A101", SMALL, {"command": "python train.py --deepspeed"}, "no-launcher", "error"),
    # A15 diary
    Case("A102", batch(1024, 1), {"ranks": 256, "stages": 4, "tensor": 2,
         "ramp_up": [16, 16, 5_000_000]}, "ramp-up", "error"),
    Case("A103", batch(1024, 1), {"ranks": 512, "stages": 4, "tensor": 2}, "bubble"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_rule_speaks(case):
    report = check(case.config, **case.job)
    mine = [f for f in report.findings if f.rule == case.rule and case.key in ("", f.key)]
    assert mine, f"{case.rule} said nothing; found {sorted(report.rules())}"
    worst = min(SEVERITIES.index(finding.severity) for finding in mine)
    assert worst <= SEVERITIES.index(case.severity)
    assert "rule-failed" not in report.rules()


def test_sentences_name_the_cause():
    """The reported numbers are in the words, as far as the cases demand it."""
    for case_id, words in {
        "A01": ("64", "= 32", "gradient_accumulation_steps 16", "2 ranks", "train_batch_size 32"),
        "A02": ("18", "train_batch_size 252", "266", "8 ranks"),
        "A12": ("87.5%", "8 stages"),
        "A09": ("4 stages", "2 tensor-parallel", "does not divide 4"),
        "A18": ("4 or 8",),
        "A23": ("PipelineModule", "One stage is no way out"),
        "A30": ('{"stage": 1}',),
        "A46": ("8", "28"),
        "A67": ("12500", "last micro-batch of 4", "dataloader_drop_last"),
        "A102": ("32",),
    }.items():
        case = next(case for case in CASES if case.id == case_id)
        report = check(case.config, **case.job)
        text = " ".join(f"{f.message} {f.fix}" for f in report.findings if f.rule == case.rule)
        for word in words:
            assert word in text, f"{case_id}: {word!r} is not in {text!r}"


def test_what_can_be_mended_is_mended():
    """A second check of the mended config finds no error with a repair."""
    for case in CASES:
        report = check(case.config, **case.job)
        again = report.recheck(report.fixed)
        left = [f for f in again.of("error") if f.repair]
        assert not left, f"{case.id}: {left}"
