"""Mistakes, and mistakes of the checker, that real configs from public repositories showed.

Each config is reduced to what matters; no file is copied. What DeepSpeed does with it was read in
its source, or tried with the engine on two CPU ranks.
"""

import json
import re

import pytest

from pplab.advise.check import check
from pplab.advise.check.cli import main
from pplab.advise.check.rules.switched import OFF_BY_DEFAULT, UNUSED
from pplab.advise.check.schema import closest

SMALL = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 16, "steps_per_print": 10,
    "gradient_clipping": 1.0,
}  # fmt: skip
PLAIN = {"ranks": 8, "pipeline": False}
PIPE = {"ranks": 8, "stages": 4}
AUTO = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": 1e-8}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
    "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"},
}  # fmt: skip


def zero(stage, **more):
    """A config with a ZeRO stage and other top-level keys or ZeRO settings in ``z``."""
    return SMALL | {"zero_optimization": {"stage": stage, **more.pop("z", {})}} | more


def found(config, job, rule):
    """(key, severity) of the findings of one rule."""
    return [(f.key, f.severity) for f in check(config, **job).findings if f.rule == rule]


# -- what was missed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "job", "rule", "key", "severity"),
    [
        (SMALL | {"comms_logger": {"enabled": False}}, PLAIN, "comms-logger-on", "comms_logger",
         "wrong"),
        (SMALL | {"comms_logger": {"verbose": False}}, PIPE, "comms-logger-on", "comms_logger",
         "wrong"),
        (SMALL | {"fp16": {"initial_scale_power": 10}}, PLAIN, "not-enabled", "fp16", "wrong"),
        (SMALL | {"fp16": {"loss_scale": 0}, "bf16": {"enabled": True}}, PLAIN, "not-enabled",
         "fp16", "note"),
        (SMALL | {"tensorboard": {"output_path": "x"}}, PLAIN, "not-enabled", "tensorboard",
         "wrong"),
        (zero(1, z={"allgather_partitions": False}), PLAIN, "unused-key",
         "zero_optimization.allgather_partitions", "wrong"),
        (SMALL | {"disable_allgather": True}, PLAIN, "unused-key", "disable_allgather", "wrong"),
        (zero(1, tensor_parallel={"autotp_size": 2}), PIPE, "autotp-with-pipeline",
         "tensor_parallel.autotp_size", "error"),
        (zero(1, z={"allgather_bucket_size": 3}), PLAIN, "zero-conflict",
         "zero_optimization.allgather_bucket_size", "error"),
        (zero(3, prescale_gradients=True), PLAIN, "zero-conflict", "prescale_gradients", "error"),
        (zero(2, gradient_predivide_factor=8), PLAIN, "zero-conflict", "gradient_predivide_factor",
         "error"),
        (zero(1, bf16={"enabled": True, "bf16_master_weights_and_grads": True}), PIPE,
         "master-weights", "bf16.bf16_master_weights_and_grads", "error"),
        (SMALL | {"data_efficiency": {"enabled": True, "num_workers": 2}}, PLAIN, "unknown-key",
         "data_efficiency.num_workers", "risky"),
        (zero(2, z={"sub_group_size": 1e9}), PLAIN, "other-stage",
         "zero_optimization.sub_group_size", "note"),
        (SMALL | {"monitor_config": {"enabled": True}}, PLAIN, "foreign-key", "monitor_config",
         "wrong"),
        (zero(1, fp16={"enabled": False, "auto_cast": True}, bf16={"enabled": True}), PIPE,
         "cast-without-fp16", "fp16.auto_cast", "error"),
        (SMALL | {"fp16": {"enabled": False, "auto_cast": True}}, PLAIN, "cast-without-fp16",
         "fp16.auto_cast", "risky"),
        (SMALL | {"expert_parallel": {"enabled": True, "autoep_size": 8}}, PIPE,
         "ranks-not-divisible", "expert_parallel.autoep_size", "error"),
        ({"train_batch_size": 8, "wall_clock_breakdown": True}, {"ranks": 1, "stages": 1},
         "timers-need-steps", "steps_per_print", "error"),
    ],
)  # fmt: skip
def test_is_said(config, job, rule, key, severity):
    assert (key, severity) in found(config, job, rule)


@pytest.mark.parametrize(
    ("config", "job", "rule"),
    [
        (SMALL | {"comms_logger": {"enabled": True}}, PIPE, "comms-logger-on"),
        (SMALL | {"fp16": {"enabled": "auto", "auto_cast": True}}, PLAIN, "cast-without-fp16"),
        (SMALL | {"expert_parallel": {"enabled": True, "autoep_size": 2}}, PIPE,
         "ranks-not-divisible"),
        (SMALL | {"tensorboard": {}, "fp16": {"_comment": "later"}}, PLAIN, "not-enabled"),
        (zero(1, z={"allgather_partitions": True}), PLAIN, "unused-key"),
        (zero(1, tensor_parallel={"autotp_size": 2}), PLAIN, "autotp-with-pipeline"),
        (zero(2, z={"allgather_bucket_size": 2e8}), PLAIN, "zero-conflict"),
        (zero(2, gradient_predivide_factor=8, z={"reduce_scatter": False}), PLAIN, "zero-conflict"),
        (zero(2, prescale_gradients=True, gradient_allreduce_op="sum"), PLAIN, "zero-conflict"),
        (zero(0, prescale_gradients=True, gradient_predivide_factor=8), PLAIN, "zero-conflict"),
        (zero(2, fp16={"enabled": True, "fp16_master_weights_and_grads": True},
              z={"cpu_offload": True}), PLAIN, "master-weights"),
        (zero(3, bf16={"enabled": True, "bf16_master_weights_and_grads": True,
                       "bf16_optimizer_states": True}), PLAIN, "master-weights"),
    ],
)  # fmt: skip
def test_is_left_alone(config, job, rule):
    assert found(config, job, rule) == []


def test_the_switches_are_what_the_installed_version_has():
    """Sections without "enabled" are off, comms_logger is on, and three settings stay unused."""
    config = pytest.importorskip("deepspeed.runtime.config")
    comm = pytest.importorskip("deepspeed.comm.config")
    assert comm.DeepSpeedCommsConfig({"comms_logger": {"enabled": False}}).comms_logger_enabled
    job = config.DeepSpeedConfig.__new__(config.DeepSpeedConfig)
    job._initialize_params({name: {} for name in OFF_BY_DEFAULT} | {"train_batch_size": 1})
    monitors = job.monitor_config
    on = [
        job.float16_config.enabled, job.bfloat16_config.enabled, job.torch_autocast_enabled,
        monitors.tensorboard.enabled, monitors.wandb.enabled, monitors.csv_monitor.enabled,
        monitors.comet.enabled, job.flops_profiler_config.enabled, job.autotuning_config.enabled,
        job.data_efficiency_enabled, job.hybrid_engine.enabled, job.expert_parallel_config.enabled,
    ]  # fmt: skip
    assert len(on) == len(OFF_BY_DEFAULT) - 1 and not any(on)  # bfloat16 is bf16
    assert job.zero_config.allgather_partitions is True and job.disable_allgather is False
    assert len(UNUSED) == 3


# -- false alarms and wrong words -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "among", "near"),
    [
        ("dynamic_loss_scale", ["loss_scale", "min_loss_scale"], None),
        ("max_loss_scale", ["min_loss_scale"], None),
        ("activation_checkpoint_func", ["activation_checkpoint_interval"], None),
        ("warmup_min_lr", ["warmup_min_ratio", "warmup_num_steps"], None),
        ("comm_overlap", ["overlap_comm"], "overlap_comm"),
        ("trainbatchsize", ["train_batch_size"], "train_batch_size"),
        ("gradient_accumulation", ["gradient_accumulation_steps"], "gradient_accumulation_steps"),
        ("stage3_param_persitance_threshold", ["stage3_param_persistence_threshold"],
         "stage3_param_persistence_threshold"),
    ],
)  # fmt: skip
def test_a_misspelling_has_the_words_of_its_key(word, among, near):
    assert closest(word, among) == near


def test_keys_that_are_another_thing_are_no_misspellings():
    config = zero(1, sequence_parallel={"size": 4}, fp16={"dynamic_loss_scale": True},
                  pipeline={"pipe_partition_method": "type:Block"})  # fmt: skip
    report = check(config, **PIPE)
    assert "misspelt-key" not in report.rules()
    assert "misspelling" not in report.text()
    assert 'partition_method="type:Block"' in report.text()
    assert report.fixed["sequence_parallel"] == {"size": 4}
    assert "fp16" not in report.fixed  # nothing is left of it


def test_settings_of_loss_scaling_do_not_belong_into_bf16_nor_elsewhere():
    config = SMALL | {"bf16": {"enabled": True, "loss_scale": 0, "hysteresis": 2}}
    report = check(config, **PLAIN)
    assert {f.key for f in report.of("error")} == {"bf16.loss_scale", "bf16.hysteresis"}
    assert "scales no loss" in report.text() and "Move it" not in report.text()
    assert report.fixed == SMALL | {"bf16": {"enabled": True}}


def test_words_of_other_times_get_their_name_of_today():
    config = zero(1, aio={"thread_count": 2}, tensor_parallel={"tp_size": 2, "enabled": True},
                  bf16={"enabled": True, "accumulate_grads_via_hooks": True},
                  compile={"enabled": False, "backend": "inductor"})  # fmt: skip
    fixed = check(config, **PLAIN).fixed
    assert fixed["aio"] == {"intra_op_parallelism": 2}
    assert fixed["tensor_parallel"] == {"autotp_size": 2}
    assert fixed["bf16"] == {"enabled": True, "immediate_grad_update": True}
    assert "compile" not in fixed
    assert "tensor_parallel" not in check(config, **PIPE).fixed  # a topology says it there


def test_true_is_a_number_for_clipping():
    report = check(SMALL | {"gradient_clipping": True}, **PLAIN)
    assert not report.of("error") and report.rules("risky") == {"wrong-type"}
    assert report.fixed["gradient_clipping"] == 1.0


def test_the_autotuner_may_try_several_values():
    config = zero([0, 1, 2, 3], autotuning={"enabled": True})
    report = check(config, **PLAIN)
    assert not report.of("error") and "tuning-space" in report.rules("note")
    del config["autotuning"]
    assert check(config, **PLAIN).of("error")


def test_gpt_neox_turns_its_pipeline_off_with_0():
    config = {"pipe-parallel-size": 0, "num-layers": 40, "hidden-size": 512, "seq-length": 2048,
              "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}  # fmt: skip
    assert "zero-with-pipeline" not in check(config, ranks=8).rules()
    assert "zero-with-pipeline" in check(config | {"pipe-parallel-size": 1}, ranks=8).rules()


def test_ranks_that_share_a_sequence_are_one_replica():
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": 1, "sequence_parallel_size": 2}  # fmt: skip
    assert check(config, **PLAIN).resolved["replicas"] == 4
    assert not check(config, **PLAIN).of("error")
    told = check(config | {"gradient_accumulation_steps": 2}, **PLAIN).text()
    assert "8 ranks / 1 stage(s) / 2 that share a sequence" in told
    assert "4 ranks instead of 8" in told
    assert check(config, **PIPE).resolved["replicas"] == 2  # the grid of a pipeline counts


def test_sentences_say_what_is_so():
    told = check(SMALL, ranks=8, stages=2, tensor=8).text()
    assert "does not divide 8" in told and "must divide distributed world size" not in told
    told = check({"train_batch_size": 4}, ranks=8, stages=2).text()
    assert "1 micro-batch(es) a step (gradient_accumulation_steps is not written, so it is 1): at" \
        in told  # fmt: skip
    told = check({"train_batch_size": 1, "gradient_accumulation_steps": 1}, ranks=8).text()
    assert "1 rank instead of 8" in told
    told = check(SMALL | {"amp": {"enabled": False}}, **PLAIN).text()
    assert re.search(r"See https://github.com/\S+\.\n", told)
    scheduler = {"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_num_steps": 3.0}}
    assert "-> Write 3." in check(SMALL | {"scheduler": scheduler}, **PLAIN).text()
    onebit = {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}}
    assert 'Write "Adam"' in check(SMALL | onebit, **PLAIN).text()


# -- "auto" ---------------------------------------------------------------------------------------


def test_auto_is_one_finding_with_all_its_keys():
    text = json.dumps(AUTO, indent=1)
    report = check(text, **PIPE)
    [finding] = [f for f in report.findings if f.rule == "auto-value"]
    assert finding.severity == "error" and "--no-pipeline" in finding.fix
    assert finding.key == "train_batch_size" and finding.line == 2
    assert "lr and betas in optimizer.params; warmup_num_steps in scheduler.params" in str(finding)
    assert "steps_per_print" in finding.message and "reduce_bucket_size" not in finding.message
    assert not [f for f in report.of("error") if f.rule != "auto-value"]
    plain = check(text, **PLAIN)
    assert plain.ok and plain.rules("note") >= {"auto-value"}
    tuned = {**SMALL, "train_micro_batch_size_per_gpu": "auto", "autotuning": {"enabled": True}}
    assert "auto-value" not in check(tuned, **PIPE).rules()


# -- mending --------------------------------------------------------------------------------------


def test_mending_what_runs_does_not_make_it_stop():
    """lr_scheduler was never read, and as a scheduler it would raise."""
    cosine = {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_max_lr": 1e-4}}
    for more in (
        {"lr_scheduler": cosine},
        {"data_types": {"params_dtype": "fp32"}, "bf16": {"enabled": True}},
    ):
        config = zero(1, gradient_clipp1ng=0.5, **more)
        del config["gradient_clipping"]
        report = check(config, **PLAIN)
        assert not report.of("error")
        assert not report.recheck(report.fixed).of("error")
        assert report.fixed["gradient_clipping"] == 0.5  # the harmless repair is made
        key = next(iter(more))
        assert report.fixed[key] == more[key]
    good = zero(1, lr_scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 9}})
    assert "scheduler" in check(good, **PLAIN).fixed


def test_a_ratio_is_no_rate():
    params = {"total_num_steps": 9, "warmup_min_lr": 1e-6, "warmup_max_lr": 1e-4}
    report = check(SMALL | {"scheduler": {"type": "WarmupCosineLR", "params": params}}, **PLAIN)
    assert len(report.of("error")) == 2 and not report.can_fix
    assert "warmup_min_ratio" in report.text() and "optimizer.params.lr" in report.text()


def test_a_key_is_not_moved_into_a_section_that_would_turn_something_on():
    config = zero(1, z={"verbose": True}, prof_all=True)
    fixed = check(config, **PLAIN).fixed
    assert "comms_logger" not in fixed and fixed["prof_all"] is True
    moved = check(SMALL | {"offload_optimizer": {"device": "cpu"}}, **PLAIN).fixed
    assert moved["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    top = check(zero(2, z={"zero_allow_untested_optimizer": True}), **PLAIN)
    assert "Move it to the top level." in top.text()
    assert top.fixed["zero_allow_untested_optimizer"] is True


def test_a_file_with_comments_is_written_anew(tmp_path, capsys):
    path = tmp_path / "c.json"
    text = json.dumps(SMALL, indent=1).replace("16,", "16, // 四")
    path.write_text(text, encoding="utf-8")
    assert main([str(path), "--no-pipeline", "--fix"]) == 1
    assert json.loads((tmp_path / "c.fixed.json").read_text()) == SMALL
    bad = zero(3, nebula={}, scheduler={"type": "WarmupCosineLR", "params": {}})
    path.write_text(json.dumps(bad), encoding="utf-8")
    capsys.readouterr()
    main([str(path), "--no-pipeline", "--fix"])
    assert "c.fixed.json; 1 error in it are yours to mend" in capsys.readouterr().out
