"""The table of keys against the installed DeepSpeed, and value checks against its models."""

import importlib
import json
import random
import re

import pytest

from pplab.advise.check import check, schema
from pplab.advise.check.derive import SECTION_MODELS, derive
from pplab.advise.check.lax import refusal
from pplab.advise.check.rules import RULES
from pplab.advise.check.rules.optimizer import TESTED, TORCH, TORCH_SCHEDULERS
from pplab.advise.check.schema import closest, installed_root, known

FROZEN = json.loads(schema.FROZEN.read_text())
ROOT = installed_root()
needs_deepspeed = pytest.mark.skipif(ROOT is None, reason="DeepSpeed is not installed")


@needs_deepspeed
def test_the_frozen_table_is_what_the_installed_source_says():
    assert derive(ROOT) == FROZEN
    assert known().version == schema.installed_version() == "0.19.8"


@pytest.fixture(scope="module")
def models():
    """Model name -> the installed pydantic class."""
    pytest.importorskip("deepspeed")
    files = {
        "deepspeed.runtime.zero.config", "deepspeed.runtime.zero.offload_config",
        "deepspeed.runtime.zero.leaf_module_config", "deepspeed.runtime.zenflow.zenflow_config",
        "deepspeed.runtime.precision_config", "deepspeed.runtime.tensor_parallel.config",
        "deepspeed.runtime.config", "deepspeed.monitor.config", "deepspeed.comm.config",
        "deepspeed.utils.config", "deepspeed.compile.config", "deepspeed.inference.config",
    }  # fmt: skip
    modules = [importlib.import_module(name) for name in sorted(files)]
    return {
        name: next(getattr(m, name) for m in modules if hasattr(m, name))
        for name in FROZEN["models"]
    }


def test_every_field_of_every_model_is_known(models):
    for name, cls in models.items():
        theirs = cls.model_fields
        ours = FROZEN["models"][name]
        assert set(ours) == set(theirs), name
        for field, about in ours.items():
            info = theirs[field]
            assert about.get("alias") == info.alias, (name, field)
            extra = info.json_schema_extra or {}
            assert bool(about.get("deprecated")) == bool(extra.get("deprecated")), (name, field)
            bounds = {b for b in ("gt", "ge", "lt", "le") if b in about}
            assert bounds == {
                b for m in info.metadata for b in ("gt", "ge", "lt", "le") if hasattr(m, b)
            }, (name, field)


SAMPLES = [
    None, True, False, 0, 1, 2, 3, 4, 7, -1, 1.0, 2.5, 1e6, 5e8, -0.5, 0.3, float("inf"),
    "", "1", "0", "3", "-4", "2.5", "1.0", "1e3", "true", "False", "yes", "OFF", "cpu", "nvme",
    "none", "auto", "warm", " 5 ", "1_000", "5.", ".5", [], [1], ["a"], {}, {"a": 1},
]  # fmt: skip


def test_values_are_taken_and_refused_as_pydantic_does(models):
    """Every plain field of every model with every sample; sections inside sections are left out."""
    from pydantic import BaseModel, ConfigDict, ValidationError, create_model

    differ, compared = [], 0
    for name, cls in models.items():
        for field, about in FROZEN["models"][name].items():
            kind = about["type"]
            if kind == "any" or (isinstance(kind, dict) and "model" in kind):
                continue
            info = cls.model_fields[field]
            config = ConfigDict(arbitrary_types_allowed=True)
            alone: type[BaseModel] = create_model(
                "One", __config__=config, value=(info.rebuild_annotation(), ...)
            )
            for value in SAMPLES:
                try:
                    alone(value=value)
                    theirs = True
                except ValidationError:
                    theirs = False
                compared += 1
                if theirs != (refusal(value, about) == ""):
                    differ.append((name, field, value, theirs))
    assert not differ, differ[:10]
    assert compared > 3000


def test_the_checker_says_what_deepspeed_would_raise(models):
    """Random keys and values in sections: an error exactly where the model raises."""
    rng = random.Random(5)
    odd = {"zero_optimization": ("stage",), "fp16": ("loss_scale",)}
    for _ in range(400):
        section = rng.choice(
            ["zero_optimization", "bf16", "tensorboard", "comms_logger", "compile"]
        )
        name = SECTION_MODELS[section]
        fields = [
            f for f, about in FROZEN["models"][name].items()
            if not about.get("deprecated") and not isinstance(about["type"], dict)
            and f not in odd.get(section, ()) and about["type"] != "any"
            and f not in ("compute_grad_norm", "passes")
        ]  # fmt: skip
        key = rng.choice([rng.choice(fields), rng.choice(fields) + "x", "enabledd"])
        value = rng.choice([v for v in SAMPLES if v != "auto"])
        try:
            models[name](**{key: value})
            raises = False
        except Exception:
            raises = True
        config = {"train_batch_size": 8, section: {key: value}}
        mine = [
            f for f in check(config, pipeline=False).of("error")
            if f.rule in ("extra-key", "wrong-type") and f.key.startswith(section)
        ]  # fmt: skip
        assert bool(mine) == raises, (section, key, value, mine)


@needs_deepspeed
def test_names_of_torch():
    torch = pytest.importorskip("torch")
    optimizers = {
        n for n in dir(torch.optim)
        if isinstance(getattr(torch.optim, n), type) and n != "Optimizer"
    }  # fmt: skip
    assert set(TORCH) == optimizers
    own = torch.optim.lr_scheduler
    names = {n for n in dir(own) if isinstance(getattr(own, n), type) and n[0] != "_"}
    schedulers = {n for n in names if issubclass(getattr(own, n), own.LRScheduler)}
    assert set(TORCH_SCHEDULERS) == schedulers
    assert set(FROZEN["optimizers"]) >= TESTED


@needs_deepspeed
def test_evidence_points_into_the_installed_source():
    """Every place named in a rule exists: the file is there and has that many lines."""
    places = set()
    for rule in RULES:
        text = importlib.import_module(rule.__module__).__loader__.get_source(rule.__module__)
        places |= set(re.findall(r'"([\w/]+\.py)(?::(\d+))?"', text))
    assert len(places) > 40
    for file, line in sorted(places):
        source = (ROOT / file).read_text(encoding="utf-8").splitlines()
        assert not line or 1 <= int(line) <= len(source), (file, line)


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("runtime/pipe/engine.py", 76, "zero_optimization_stage"),
        ("runtime/pipe/engine.py", 93, "gradient_accumulation_steps"),
        ("runtime/pipe/engine.py", 135, "pipe_partitioned"),
        ("runtime/pipe/engine.py", 210, "use_reentrant"),
        ("runtime/pipe/engine.py", 217, "activation_checkpoint_interval"),
        ("runtime/pipe/engine.py", 259, "DistributedSampler"),
        ("runtime/pipe/engine.py", 377, "steps_per_print"),
        ("runtime/pipe/engine.py", 500, "_train_schedule"),
        ("runtime/pipe/engine.py", 804, "wall_clock_breakdown"),
        ("runtime/pipe/module.py", 166, "LOCAL_RANK"),
        ("runtime/pipe/module.py", 175, "num_stages"),
        ("runtime/config.py", 105, "elasticity"),
        ("runtime/config.py", 272, "get_pipeline_config"),
        ("runtime/config.py", 607, "train_batch"),
        ("runtime/config_utils.py", 110, "forbid"),
        ("runtime/config_utils.py", 211, "Duplicate"),
        ("runtime/constants.py", 203, "GRADIENT_CLIPPING_DEFAULT"),
        ("runtime/engine.py", 2299, "untested"),
        ("runtime/engine.py", 2323, "NotImplementedError"),
        ("runtime/engine.py", 2483, "max_grad_norm"),
        ("runtime/engine.py", 2663, "overlapped communication"),
        ("runtime/engine.py", 3417, "ZeROOptimizer"),
        ("runtime/zero/config.py", 60, "read_zero_config_deprecated"),
        ("runtime/zero/config.py", 399, "Partial offloading"),
        ("runtime/zero/stage_1_and_2.py", 220, "cpu_offload"),
        ("runtime/tensor_parallel/init_utils.py", 23, "hjson"),
        ("comm/comm.py", 889, "required_env"),
        ("ops/adam/cpu_adam.py", 148, "must be 'cpu'"),
        ("comm/config.py", 22, "'comms_logger' in ds_config"),
        ("utils/comms_logging.py", 79, "comms_logger_enabled"),
        ("runtime/base_optimizer.py", 510, "bf16_offload_validator"),
        ("runtime/zero/stage_1_and_2.py", 329, "cpu_offload"),
        ("runtime/zero/stage_1_and_2.py", 350, "gradient_predivide_factor"),
        ("runtime/zero/stage_1_and_2.py", 389, "nccl_start_alignment_factor"),
        ("runtime/zero/stage3.py", 395, "pre-scale gradients"),
        ("runtime/config.py", 491, "disable_allgather"),
        ("runtime/engine.py", 940, "_configure_tensor_parallel"),
        ("runtime/engine.py", 1532, "legacy_fusion"),
        ("runtime/engine.py", 2957, "fp16_auto_cast"),
        ("module_inject/auto_ep_folding.py", 112, "expert_width"),
        ("runtime/engine.py", 1745, "allgather_partitions"),
        ("autotuning/autotuner.py", 432, "ZERO_OPTIMIZATION_STAGE"),
    ],
)
@needs_deepspeed
def test_evidence_says_what_is_claimed(file, line, words):
    """The words stand within a few lines of the place."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    near = "\n".join(lines[max(0, line - 4) : line + 3])
    assert words in near, near


def test_another_version_is_read_from_its_own_source(tmp_path, monkeypatch):
    """An installed version other than the frozen one makes its own table."""
    if ROOT is None:
        pytest.skip("DeepSpeed is not installed")
    import shutil

    from pplab.advise.check import derive as module
    from pplab.advise.check import source

    copy = tmp_path / "deepspeed"
    files = {*module.MODEL_FILES, *source.CONSTANT_FILES, "git_version_info_installed.py",
             "runtime/lr_schedules.py", *(place[0] for place in module.TOP_LEVEL)}  # fmt: skip
    files |= {place[0] for places in module.PLAIN_SECTIONS.values() for place in places}
    files |= {place[0] for places in module.OPTIMIZERS.values() for place in places}
    for file in files:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).is_dir():
            shutil.copytree(ROOT / file, copy / file, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / file, copy / file)
    info = copy / "git_version_info_installed.py"
    info.write_text(info.read_text().replace("0.19.8", "0.20.0"))
    constants = copy / "runtime/constants.py"
    constants.write_text(
        constants.read_text().replace('STEPS_PER_PRINT = "steps_per_print"',
                                      'STEPS_PER_PRINT = "print_every"')
    )  # fmt: skip
    monkeypatch.setattr(schema, "installed_root", lambda: copy)
    schema.known.cache_clear()
    try:
        table = schema.known()
        assert (table.version, table.origin) == ("0.20.0", "installed")
        assert "print_every" in table.top and "steps_per_print" not in table.top
        report = check({"train_batch_size": 8, "steps_per_print": 10})
        assert "unknown-key" in report.rules()
    finally:
        schema.known.cache_clear()


def test_without_deepspeed_the_frozen_table_is_used(monkeypatch):
    monkeypatch.setattr(schema, "installed_root", lambda: None)
    schema.known.cache_clear()
    try:
        assert schema.known().origin == "frozen"
        assert schema.known().version == FROZEN["version"]
    finally:
        schema.known.cache_clear()


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("gradient_clipp1ng", "gradient_clipping"),
        ("gradient_accumulation_steps ", "gradient_accumulation_steps"),
        ("Train_Batch_Size", "train_batch_size"),
        ("train-micro-batch-size-per-gpu", "train_micro_batch_size_per_gpu"),
        ("zero_optimisation", "zero_optimization"),
        ("grandient_accumulation_steps", "gradient_accumulation_steps"),
        ("banana", None),
    ],
)
def test_closest_key(word, near):
    assert closest(word, FROZEN["top"]) == near


def test_a_report_names_places_in_deepspeed_and_none_of_our_own_notes():
    report = check({"pipeline": {"stages": 4}, "elastic_pipeline": True}, ranks=8, stages=4)
    noted = [f for f in report.findings if any(".py:" not in place for place in f.evidence)]
    assert noted
    for shown in (report.text(), report._repr_html_()):
        assert "(DeepSpeed: " in shown or "<small>DeepSpeed: " in shown
        for finding in noted:
            assert all(place not in shown for place in finding.evidence if ".py:" not in place)
