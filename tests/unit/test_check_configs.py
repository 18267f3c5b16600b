"""Configs met in the wild (section B of shared/cases.md), rebuilt from their recorded facts.

Legal ones must pass: nothing worse than a note. The others must get the finding that their verdict
names. Facts only; no file is copied.
"""

from typing import Any, NamedTuple

import pytest

from pplab.advise.check import check

ADAM = {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8}}
OFFLOAD = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
WARMUP = {
    "type": "WarmupDecayLR",
    "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-5, "warmup_num_steps": 9,
               "total_num_steps": 99},
}  # fmt: skip


def numbers(train: int | None = None, micro: int | None = None, gas: int | None = None):
    """The batch keys that are not None."""
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {k: v for k, v in zip(keys, (train, micro, gas), strict=True) if v is not None}


def fp16(power: int = 16, **more: Any) -> dict[str, Any]:
    """An fp16 section."""
    return {"fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": power} | more}


def zero(stage: int, **more: Any) -> dict[str, Any]:
    """A zero_optimization section."""
    return {"zero_optimization": {"stage": stage, **more}}


class Config(NamedTuple):
    """id, config or text, job, rules that must speak ((): legal)."""

    id: str
    config: Any
    job: dict[str, Any]
    rules: tuple[str, ...] = ()


NEOX_20B = {
    "pipe-parallel-size": 4, "model-parallel-size": 2, "num-layers": 44, "hidden-size": 6144,
    "num-attention-heads": 64, "seq-length": 2048, "pos-emb": "rotary", "train-iters": 150000,
    "optimizer": ADAM, **zero(1, overlap_comm=True), **numbers(micro=4, gas=32),
    **fp16(12, fp16=True), "gradient_clipping": 1.0, "wall_clock_breakdown": False,
}  # fmt: skip

CONFIGS = [
    Config("B01", numbers(256, 8) | {"optimizer": ADAM, "steps_per_print": 10,
           "wall_clock_breakdown": False}, {"ranks": 8, "stages": 2}),
    Config("B01b", numbers(256, 8) | {"optimizer": ADAM}, {}),
    Config("B02", numbers(256, gas=1) | zero(1) | fp16(auto_cast=True) | {"gradient_clipping": 0,
           "zero_allow_untested_optimizer": True, "cuda_visible_devices": 0}, {"ranks": 4},
           ("unknown-key",)),
    Config("B03", numbers(65536, 64) | fp16() | {"optimizer": {"type": "Lamb", "params": {
           "lr": 4e-3, "max_coeff": 0.3, "min_coeff": 0.01}}, "sparse_attention":
           {"mode": "fixed"}}, {"ranks": 64}, ("removed-key",)),
    Config("B03b", numbers(65536, 64) | fp16() | {"optimizer": {"type": "Lamb", "params": {
           "lr": 4e-3, "max_coeff": 0.3, "min_coeff": 0.01}}}, {"ranks": 64}),
    Config("B04", numbers(24, 3) | fp16() | {"optimizer": ADAM}, {"ranks": 8}),
    Config("B04b", numbers(24, 3) | fp16() | {"optimizer": ADAM}, {"ranks": 16},
           ("batch-too-small",)),
    Config("B05", {"train_micro_batch_size_per_gpu": "auto", "autotuning": {"enabled": True}} |
           fp16() | zero(2), {"ranks": 8, "stages": 2}, ("zero-with-pipeline",)),
    Config("B05b", {"train_micro_batch_size_per_gpu": "auto", "autotuning": {"enabled": True}} |
           fp16() | zero(2), {"ranks": 8, "pipeline": False}),
    Config("B06", numbers(micro=4, gas=1) | zero(3) | {"bf16": {"enabled": True,
           "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
           "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, {"pipeline": False}),
    Config("B06b", numbers(micro=4, gas=1) | zero(3) | {"bf16": {"enabled": True,
           "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
           {"stages": 2}, ("zero-with-pipeline",)),
    Config("B07", '{\n "train_batch_size": ${BATCH},\n "bf16": {"enabled": ${BF16}}\n}', {},
           ("placeholder",)),
    Config("B08", numbers(4, gas=1) | zero(1) | fp16() | {"optimizer": ADAM}, {"ranks": 4}),
    Config("B08b", numbers(4, gas=1) | zero(1) | fp16(), {"ranks": 8}, ("batch-too-small",)),
    Config("B09", numbers(8, gas=1) | zero(2, cpu_offload=True) | fp16(), {"ranks": 2, "stages": 2},
           ("deprecated-key", "zero-with-pipeline")),
    Config("B10", numbers(micro=8, gas=3) | zero(0) | fp16() | {"optimizer": ADAM}, {"ranks": 2}),
    Config("B11", numbers(micro=1, gas=1) | {"gradient_clipping": 1.0, "steps_per_print": 1}, {}),
    Config("B11b", numbers(micro=1, gas=1) | {"gradient_clipping": 1.0}, {"ranks": 2, "stages": 2},
           ("few-micro-batches",)),
    Config("B12", numbers(micro=8, gas=256) | zero(1, **OFFLOAD, contiguous_gradients=True,
           overlap_comm=False) | fp16(12) | {"optimizer": ADAM, "scheduler": WARMUP,
           "steps_per_print": 25, "gradient_clipping": 1.0}, {"ranks": 8, "stages": 8}),
    Config("B13", numbers(512, gas=1) | {"optimizer": {"type": "Adam", "params":
           {"lr": 1e-4, "max_grad_norm": 1.0}}}, {"ranks": 8}, ("max-grad-norm",)),
    Config("B14", numbers(16, 16) | zero(1) | {"bf16": {"enabled": True}, "data_types":
           {"grad_accum_dtype": "fp32"}}, {"ranks": 1}),
    Config("B14b", numbers(16, 16) | zero(1) | {"bf16": {"enabled": True}, "data_types":
           {"grad_accum_dtype": "fp32"}}, {"ranks": 4, "stages": 2}, ("batch-too-small",)),
    Config("B15", numbers(256, 16) | zero(0) | {"bf16": {"enabled": True}, "steps_per_print": 100},
           {"ranks": 8, "stages": 4}),
    Config("B16", '{"train_batch_size": CONFIG_BATCH_SIZE, "curriculum_learning": '
           '{"enabled": CONFIG_CL_ENABLED}}', {}, ("placeholder",)),
    Config("B16b", numbers(256, 4) | {"curriculum_learning": {"enabled": True,
           "curriculum_type": "seqlen"}}, {"ranks": 8}, ("removed-key",)),
    Config("B17", numbers(64, 8) | zero(3, offload_optimizer={"device": "cpu", "ratio": 0.3}),
           {"ranks": 8, "stages": 2}, ("zero-with-pipeline",)),
    Config("B17b", numbers(64, 8) | zero(3, offload_optimizer={"device": "cpu", "ratio": 0.3}),
           {"ranks": 8, "pipeline": False}),
    Config("B18", numbers(2048, 16) | {"fp16": {"enabled": False}, "bf16": {"enabled": False},
           "prescale_gradients": True, "gradient_clipping": 1.0}, {"ranks": 8, "stages": 4}),
    Config("B19", numbers(16, 1) | zero(1) | fp16(12), {"ranks": 4, "stages": 2}),
    Config("B20", numbers(16, 1) | zero(0) | {"bf16": {"enabled": True}},
           {"ranks": 4, "stages": 2}),
    Config("B21", {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"} |
           zero(2, cpu_offload=True, overlap_comm=True) | fp16(32), {"ranks": 4, "stages": 2},
           ("deprecated-key", "steep-loss-scale", "auto-value")),
    Config("B22", numbers(micro=4, gas=16) | zero(3, stage3_param_persitence_threshold=10_000) |
           fp16(12), {"ranks": 64, "pipeline": False}, ("extra-key",)),
    Config("B23", numbers(micro=4, gas=256) | zero(0) | fp16(12) | {"prescale_gradients": True,
           "gradient_clipping": 1.0, "steps_per_print": 2000, "wall_clock_breakdown": False},
           {"ranks": 64, "stages": 16, "tensor": 4}),
    Config("B24", numbers(2048, 2) | zero(0) | {"bf16": {"enabled": True}, "gradient_clipping": 1.0,
           "steps_per_print": 2000}, {"ranks": 192, "stages": 12, "tensor": 4, "layers": 70,
           "ramp_up": [192, 16, 9_765_625]}),
    Config("B25", numbers(1024, 1) | zero(1) | fp16(12), {"ranks": 512, "stages": 4, "tensor": 2,
           "layers": 40, "ramp_up": [16, 16, 5_000_000]}, ("ramp-up",)),
    Config("B26", NEOX_20B, {"ranks": 96}, ("extra-key",)),
    Config("B27", {"pipe-parallel-size": 1, "model-parallel-size": 1, "num-layers": 96,
           "hidden-size": 12288, "seq-length": 2048} | numbers(micro=4) | zero(1), {"ranks": 128},
           ("does-not-fit",)),
    Config("B27b", {"pipe-parallel-size": 2, "model-parallel-size": 1, "num-layers": 24,
           "hidden-size": 2048, "seq-length": 2048, "optimizer": {"type": "sm3", "params":
           {"lr": 1e-4, "max_grad_norm": 1.0}}} | numbers(micro=4, gas=16) |
           zero(1, cpu_offload=False) | fp16(), {"ranks": 8}),
    Config("B28", numbers(micro=4) | {"gradient_accumulation_steps ": 8}, {"ranks": 8},
           ("misspelt-key",)),
    Config("B29", numbers(128, 1) | fp16(fused_optimizer=True) | {"dataloader_drop_last": True},
           {"ranks": 8, "stages": 8}, ("extra-key",)),
    Config("B30", numbers(128, 16) | fp16(12) | {"optimizer": ADAM, "scheduler": WARMUP,
           "gradient_clipping": 1.0}, {"ranks": 8, "stages": 4, "tensor": 1}),
    Config("B31", numbers(128, 1) | zero(1, **OFFLOAD) | fp16(12) | {"optimizer": ADAM, "scheduler":
           WARMUP, "wandb": {"enabled": True, "team": None, "group": None, "project": "p"},
           "activation_checkpointing": {"number_checkpoints": None, "profile": False}},
           {"ranks": 8, "stages": 8}),
    Config("B32", numbers(micro=1, gas=128) | zero(1, **OFFLOAD) | {"bf16": {"enabled": True}},
           {"ranks": 8, "stages": 8, "partition": "uniform"}),
    Config("B33", numbers(64, 4, 4) | {"pipeline": {"enabled": True, "parallel_size": 4,
           "micro_batches": 4}}, {}, ("dead-key",)),
    Config("B33b", numbers(64, 4, 4), {"ranks": 16, "stages": 4}),
    Config("B34", numbers(128, 2, 8) | {"pipeline": {"parallel_size": 4}}, {"ranks": 16},
           ("dead-key", "batch-triangle")),
    Config("B35", numbers(32, 2) | zero(1) | {"pipeline": {"engine": "deepspeed", "num_layers": 24,
           "pipe_partitioned": True, "grad_partition": True, "partition_method": "uniform"}},
           {"ranks": 4, "stages": 4}, ("dead-key", "misspelt-key")),
    Config("B36", numbers(32, 2) | zero(0) | {"local_rank": 0, "pipeline": {"stages": 4,
           "partition": "uniform", "pipe_chunk_size": 2}}, {"ranks": 4}, ("dead-key",
           "unknown-key")),
    Config("B37", numbers(micro=1, gas=8) | {"pipeline": {"pipe_partitioned": "auto"}},
           {"stages": 4}, ("wrong-type",)),
    Config("B38", numbers(micro=1, gas=16) | {"bf16": {"enabled": True, "immediate_grad_update":
           True}, "pipeline": {"pipe_partitioned": False, "grad_partitioned": False},
           "gradient_clipping": 1.0, "steps_per_print": 1, **zero(0)}, {"ranks": 8, "stages": 2,
           "tensor": 2}),
    Config("B39", numbers(micro=1, gas=8) | zero(1) | fp16(16) | {"pipeline":
           {"activation_checkpoint_interval": 1}}, {"ranks": 4, "stages": 4}),
    Config("B40", {"pipe-parallel-size": 1, "num-layers": 32, "hidden-size": 4096, "seq-length":
           4096, "norm": "rmsnorm", "precision": "bfloat16"}, {"ranks": 8},
           ("other-framework",)),
]  # fmt: skip


@pytest.mark.parametrize("one", CONFIGS, ids=lambda one: one.id)
def test_verdict(one):
    report = check(one.config, **one.job)
    assert "rule-failed" not in report.rules()
    if one.rules:
        assert set(one.rules) <= report.rules(), report.text()
    else:
        assert report.ok, report.text(notes=False)
        assert report.exit_code == 0


@pytest.mark.parametrize(
    ("id", "fits"),
    [("B01b", [1, 2, 4, 8, 16, 32]), ("B04", [1, 2, 4, 8]), ("B33", [4]), ("B08", [1, 2, 4])],
)
def test_replicas_for_which_a_batch_holds(id, fits):
    one = next(one for one in CONFIGS if one.id == id)
    assert check(one.config, **one.job).resolved["replicas_that_fit"] == fits


def test_resolved_numbers_of_a_neox_config():
    resolved = check(NEOX_20B, ranks=96).resolved
    assert resolved["train_batch_size"] == 1536
    assert (resolved["replicas"], resolved["stages"], resolved["micro_batches"]) == (12, 4, 32)
    assert resolved["filled"] == ["train_batch_size"]
    assert resolved["bubble"] == pytest.approx(3 / 35)


def test_a_known_crash_of_the_installed_version_is_told():
    """wall_clock_breakdown stops a pipeline in 0.19.8 (facts g1), legal as the key is."""
    config = numbers(128, 1) | {"wall_clock_breakdown": True, "steps_per_print": 10}
    assert check(config, ranks=8, stages=8).rules("error") == {"timers-crash"}
    assert check(config, ranks=8, stages=1).ok
    assert check(config, ranks=8, pipeline=False).ok
    assert check(config).ok  # nobody says how many stages
    assert check(config, ranks=8, stages=8, version="0.18.4").rules("error") == set()
