"""The checker's word against the installed ``DeepSpeedConfig``: who stops, and who does not."""

import copy
import logging
import random

import pytest

from pplab.advise.check import check
from pplab.advise.check.schema import known
from tests.unit.test_check_cases import CASES
from tests.unit.test_check_configs import CONFIGS

#: Rules about what happens after the config was read: in the engine, the model, the launcher.
LATER = {
    "zero-with-pipeline", "untested-optimizer", "max-grad-norm", "unknown-optimizer",
    "unknown-scheduler", "accumulation-dtype", "offload-without-zero", "number-as-text",
    "missing-key", "optimizer-conflict", "pipeline-conflict", "timers-crash", "timers-need-steps",
    "too-new-key", "empty-stages", "stage-without-parameters", "parts-do-not-sum", "ramp-up",
    "layers-do-not-divide", "interleaved-micro-batches", "ranks-not-divisible", "partition-method",
    "master-weights", "autotp-with-pipeline",
}  # fmt: skip
#: (rule, key) that the engine stops at, not the config.
LATER_KEYS = {
    ("wrong-type", "steps_per_print"), ("wrong-value", "steps_per_print"),
    ("wrong-type", "gradient_clipping"), ("wrong-type", "gradient_predivide_factor"),
    ("wrong-type", "scheduler.params"), ("wrong-type", "optimizer.params"),
    ("wrong-value", "data_types.grad_accum_dtype"), ("wrong-value", "data_types.param_dtype"),
    ("wrong-value", "data_types.buffer_dtype"),
    ("wrong-type", "pipeline.activation_checkpoint_interval"),
    ("zero-conflict", "zero_optimization.legacy_stage1"),
    ("zero-conflict", "zero_optimization.compute_grad_norm"),
    ("zero-conflict", "zero_optimization.allgather_bucket_size"),
    ("zero-conflict", "prescale_gradients"), ("zero-conflict", "gradient_predivide_factor"),
    # 2.0 micro-batches pass here, and stop the schedule's range()
    ("wrong-type", "train_batch_size"), ("wrong-type", "train_micro_batch_size_per_gpu"),
    ("wrong-type", "gradient_accumulation_steps"),
}  # fmt: skip
BASE = {
    "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "steps_per_print": 10, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "scheduler": {"type": "WarmupLR", "params": {}}, "zero_optimization": {"stage": 1},
    "fp16": {"enabled": False}, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
    "wall_clock_breakdown": False, "pipeline": {"activation_checkpoint_interval": 0},
    "data_types": {"grad_accum_dtype": "fp32"}, "tensorboard": {"enabled": False},
    "checkpoint": {"tag_validation": "Warn"}, "flops_profiler": {"enabled": False},
    "activation_checkpointing": {}, "timers": {"throughput": {"enabled": True}},
    "comms_logger": {"enabled": False}, "torch_autocast": {"enabled": False},
}  # fmt: skip
VALUES = [
    None, True, False, 0, 1, 2, 3, 4, 8, -1, 1.0, 2.5, 1e6, "", "auto", "8", "true", "x", "fp32",
    "cpu", [], {}, {"a": 1}, [1],
]  # fmt: skip


class Replicas:
    """As much of an mpu as the config asks for."""

    def __init__(self, count):
        self.count = count

    def get_data_parallel_world_size(self):
        """Replicas."""
        return self.count


@pytest.fixture(scope="module")
def stops():
    """(config, replicas) -> what DeepSpeed raises while it reads the config, "" for nothing."""
    module = pytest.importorskip("deepspeed.runtime.config")

    def ask(config, replicas=1):
        logging.disable(logging.CRITICAL)
        try:
            job = module.DeepSpeedConfig.__new__(module.DeepSpeedConfig)
            job._param_dict = copy.deepcopy(config)
            module._reject_removed_config_keys(job._param_dict)
            job.global_rank, job.world_size = 0, replicas
            job._initialize_params(copy.copy(job._param_dict))
            job._configure_train_batch_size()
            job._do_sanity_check()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            logging.disable(logging.NOTSET)
        return ""

    return ask


def early(report):
    """Errors about reading the config."""
    return [
        f for f in report.of("error")
        if f.rule not in LATER and (f.rule, f.key) not in LATER_KEYS
        and not f.key.startswith(("optimizer.params.", "scheduler.params."))
    ]  # fmt: skip


def mutated(rng, keys):
    """The base config with one or two random changes."""
    config = copy.deepcopy(BASE)
    for _ in range(rng.choice([1, 1, 2])):
        key = rng.choice([*config, rng.choice(keys)])
        section = config.get(key)
        if isinstance(section, dict) and rng.random() < 0.6:
            model = known().section_model(key)
            names = list(known().model(model)) if model else known().plain(key) or []
            section[rng.choice([*section, *names, "foo"])] = rng.choice(VALUES)
        elif rng.random() < 0.15 and key in config:
            del config[key]
        else:
            config[key] = rng.choice(VALUES)
    return config


def test_random_configs_stop_where_the_checker_says(stops):
    rng = random.Random(11)
    keys = [*known().top, "nebula", "amp", "foo", "elasticity"]
    silent, loud, stopped = [], [], 0
    for _ in range(2500):
        config = mutated(rng, keys)
        if any(config.get(key) == "auto" for key in list(BASE)[:3]):
            continue  # replaced by transformers before DeepSpeed sees it
        if "use_gds" in str(config.get("aio")):
            continue  # depends on the device
        if isinstance(config.get("wall_clock_breakdown"), dict):
            continue  # {} | {} is a dict in Python, and passes
        raised = stops(config)
        report = check(config, ranks=1, pipeline=False)
        stopped += bool(raised)
        if raised and not report.of("error"):
            silent.append((raised, config))
        if not raised and early(report):
            loud.append((early(report)[0], config))
    assert stopped > 500
    assert not silent, silent[:2]
    assert not loud, loud[:2]


def test_deepspeed_takes_the_legal_configs(stops):
    """Every config that the checker passes with known replicas is one DeepSpeed reads."""
    seen = 0
    for one in CONFIGS:
        report = check(one.config, **one.job)
        replicas = report.resolved.get("replicas")
        if report.ok and replicas and not report.rules() & {"other-framework", "auto-value"}:
            if any(value == "auto" for value in one.config.values()):
                continue  # the autotuner writes the number
            assert stops(one.config, replicas) == "", one.id
            seen += 1
    assert seen > 15


def test_deepspeed_stops_where_a_case_says_so(stops):
    """Cases whose error is about reading the config: DeepSpeed raises for the same replicas."""
    seen = 0
    for case in CASES:
        if not isinstance(case.config, dict) or "version" in case.job:
            continue
        report = check(case.config, **case.job)
        replicas = report.resolved["replicas"]
        found = [f for f in early(report) if not f.rule.startswith(("boundary", "checkpoint-"))]
        found = [f for f in found if f.rule in ("batch-triangle", "batch-too-small", "extra-key")]
        if found and replicas:
            assert stops(case.config, replicas), case.id
            seen += 1
    assert seen >= 4
