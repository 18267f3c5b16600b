"""Which keys DeepSpeed reads, taken from its source text: nothing is imported, nothing runs.

    python -m pplab.advise.check.derive > pplab/advise/check/known.json

writes the frozen table for machines without DeepSpeed. Where another version is installed the
table is made from that one, so the checker follows what the job will really run with.

Three things are collected: the fields of the pydantic models (sections that refuse unknown keys),
the keys that plain sections and the top level are asked for, and the arguments of optimizers and
schedulers. Keys are written as constants in DeepSpeed, which are looked up in its constants files.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pplab.advise.check.source import Source, assigned, value_of

#: Files that define configuration models (classes that descend from DeepSpeedConfigModel).
MODEL_FILES = (
    "runtime/config_utils.py",
    "runtime/config.py",
    "runtime/zero/config.py",
    "runtime/zero/offload_config.py",
    "runtime/zero/leaf_module_config.py",
    "runtime/zenflow/zenflow_config.py",
    "runtime/precision_config.py",
    "runtime/tensor_parallel/config.py",
    "monitor/config.py",
    "comm/config.py",
    "utils/config.py",
    "compile/config.py",
    "inference/config.py",
)

#: Section -> the model it is read into.
SECTION_MODELS = {
    "zero_optimization": "DeepSpeedZeroConfig",
    "fp16": "DeepSpeedFP16Config",
    "bf16": "DeepSpeedBF16Config",
    "bfloat16": "DeepSpeedBF16Config",
    "tensorboard": "TensorBoardConfig",
    "wandb": "WandbConfig",
    "csv_monitor": "CSVConfig",
    "comet": "CometConfig",
    "comms_logger": "CommsLoggerConfig",
    "hybrid_engine": "HybridEngineConfig",
    "compile": "CompileConfig",
    "tensor_parallel": "TPTrainingConfig",
    "weight_quantization": "WeightQuantConfig",
    "timers.throughput": "DeepSpeedThroughputTimerConfig",
}

#: Where the whole config is asked for a key: (file, functions or "", names the config goes by).
TOP_LEVEL = (
    ("runtime/config.py", "", ("param_dict", "_param_dict")),
    ("runtime/zero/config.py", "", ("param_dict",)),
    ("runtime/precision_config.py", "", ("param_dict",)),
    ("runtime/activation_checkpointing/config.py", "", ("param_dict",)),
    ("runtime/data_pipeline/config.py", "get_data_efficiency", ("param_dict",)),
    ("runtime/swap_tensor/aio_config.py", "", ("param_dict",)),
    ("runtime/model_checkpointing/config.py", "get_checkpoint_config", ("param_dict",)),
    ("runtime/tensor_parallel/config.py", "get_tensor_parallel_config", ("ds_config",)),
    ("monitor/config.py", "", ("param_dict",)),
    ("comm/config.py", "", ("ds_config",)),
    ("utils/config.py", "", ("param_dict",)),
    ("profiling/config.py", "", ("param_dict",)),
    ("autotuning/config.py", "", ("param_dict",)),
    ("datastates/config.py", "", ("param_dict",)),
    ("__init__.py", "initialize", ("config",)),
)
#: Keys that reach the config through a variable, by the constant that names them.
INDIRECT = ("COMMUNICATION_DATA_TYPE", "SEQ_PARALLEL_COMMUNICATION_DATA_TYPE")

#: Plain sections: where they are asked for a key (as above).
PLAIN_SECTIONS = {
    "pipeline": (("runtime/pipe", "", ("pipeline",)),),
    "activation_checkpointing": (
        ("runtime/activation_checkpointing/config.py", "", ("act_chkpt_config_dict",)),
    ),
    "flops_profiler": (("profiling/config.py", "", ("flops_profiler_dict",)),),
    "aio": (("runtime/swap_tensor/aio_config.py", "", ("aio_dict",)),),
    "autotuning": (("autotuning/config.py", "", ("autotuning_dict",)),),
    "checkpoint": (
        ("runtime/config.py", "", ("checkpoint_params",)),
        ("runtime/model_checkpointing/config.py", "get_checkpoint_config", ("checkpoint_dict",)),
        ("runtime/model_checkpointing/config.py", "get_checkpoint_writer_config", ("param_dict",)),
    ),
    "checkpoint.parallel_write": (("runtime/config.py", "", ("par_write_params",)),),
    "checkpoint.writer": (
        ("runtime/model_checkpointing/config.py", "get_checkpoint_writer_config", ("writer_dict",)),
    ),
    "data_types": (("runtime/config.py", "", ("data_types_params",)),),
    "expert_parallel": (
        ("module_inject/auto_ep_config.py", "parse_autoep_config", ("param_dict",)),
    ),
}
#: Plain sections whose keys are constants with these names.
BY_CONSTANT = {
    "torch_autocast": (
        "TORCH_AUTOCAST_ENABLED",
        "TORCH_AUTOCAST_DTYPE",
        "TORCH_AUTOCAST_LOWER_PRECISION_SAFE_MODULES",
    ),
    "optimizer": ("TYPE", "OPTIMIZER_PARAMS", "LEGACY_FUSION"),
    "scheduler": ("TYPE", "SCHEDULER_PARAMS"),
    "data_efficiency": (
        "DATA_EFFICIENCY_ENABLED",
        "DATA_EFFICIENCY_SEED",
        "DATA_SAMPLING",
        "DATA_ROUTING",
    ),
    "timers": ("TIMERS_THROUGHPUT",),
}

#: Optimizer in the config -> the classes it may become: (file, class).
OPTIMIZERS = {
    "adam": (("ops/adam/fused_adam.py", "FusedAdam"), ("ops/adam/cpu_adam.py", "DeepSpeedCPUAdam")),
    "lamb": (("ops/lamb/fused_lamb.py", "FusedLamb"),),
    "lion": (("ops/lion/fused_lion.py", "FusedLion"), ("ops/lion/cpu_lion.py", "DeepSpeedCPULion")),
    "adagrad": (("ops/adagrad/cpu_adagrad.py", "DeepSpeedCPUAdagrad"),),
}


def derive(root: Path) -> dict[str, Any]:
    """The table of the DeepSpeed package in folder `root`, as plain JSON values.

    Raises OSError or SyntaxError when the folder holds no such package, LookupError when something
    that must be in it is not: then this file no longer fits that version.
    """
    source = Source(root)
    version = re.search(r"version\s*=\s*'([^'+]+)", source.text("git_version_info_installed.py"))
    models = dict(_models(source))
    for name in set(models) - _reachable(models):
        del models[name]  # inference and the like
    missing = [name for name in SECTION_MODELS.values() if name not in models]
    if missing:
        raise LookupError(f"DeepSpeed in {root} lacks {', '.join(missing)}")
    top = {source.constant(name) for name in INDIRECT}
    for file, functions, names in TOP_LEVEL:
        top |= set(source.asked(file, functions, names))
    removed = source.literal("runtime/config.py", "_REMOVED_TOP_LEVEL_CONFIG_KEYS")
    removed_zero = source.literal("runtime/config.py", "_REMOVED_ZERO_CONFIG_KEYS")
    plain = {
        section: sorted({key for place in places for key in source.asked(*place)})
        for section, places in PLAIN_SECTIONS.items()
    }
    plain |= {s: sorted(map(source.constant, names)) for s, names in BY_CONSTANT.items()}
    listed = assigned(source.tree("runtime/config.py"), "DEEPSPEED_OPTIMIZERS")
    own = [e.id for e in getattr(listed, "elts", []) if isinstance(e, ast.Name)]
    return {
        "version": version[1] if version else "",
        "top": sorted(top),
        "removed": removed,
        "removed_zero": removed_zero,
        "sections": dict(sorted(SECTION_MODELS.items())),
        "plain": dict(sorted(plain.items())),
        "models": dict(sorted(models.items())),
        "defaults": {
            key: source.constants[name + "_DEFAULT"]
            for name, key in sorted(source.constants.items())
            if key in top and name + "_DEFAULT" in source.constants
        },
        "optimizers": sorted(map(source.constant, own)),
        "optimizer_arguments": {
            name: sorted({a for place in places for a in source.arguments(*place)[0]})
            for name, places in OPTIMIZERS.items()
        },
        "schedulers": {
            cls.name: dict(
                zip(
                    ("arguments", "required"),
                    source.arguments("runtime/lr_schedules.py", cls.name),
                    strict=True,
                )
            )
            for cls in source.classes("runtime/lr_schedules.py")
        },
    }


# -- models ---------------------------------------------------------------------------------------


def _models(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """(class, its fields by name) of every configuration model; inherited fields included."""
    classes: dict[str, ast.ClassDef] = {}
    aliases: dict[str, ast.expr] = {}
    for file in MODEL_FILES:
        for node in source.tree(file).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                aliases[node.targets[0].id] = node.value
    for name, cls in classes.items():
        chain = _chain(cls, classes)
        if chain and chain[-1] == "DeepSpeedConfigModel" and name != "DeepSpeedConfigModel":
            fields: dict[str, Any] = {}
            for each in reversed([name, *chain[:-1]]):
                for node in classes[each].body:
                    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                        fields[node.target.id] = _field(node, classes, aliases, source.constants)
            yield name, fields


def _chain(cls: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    found = []
    while cls.bases and isinstance(cls.bases[0], ast.Name):
        found.append(cls.bases[0].id)
        if found[-1] not in classes or found[-1] == "DeepSpeedConfigModel":
            break
        cls = classes[found[-1]]
    return found


def _field(
    node: ast.AnnAssign,
    classes: dict[str, ast.ClassDef],
    aliases: dict[str, ast.expr],
    constants: dict[str, Any],
) -> dict[str, Any]:
    """type, optional, alias, gt/ge/lt/le, deprecated and new of one field."""
    annotation: ast.expr = node.annotation
    if isinstance(annotation, ast.Name) and annotation.id in aliases:
        annotation = aliases[annotation.id]
    text = ast.unparse(annotation)
    about: dict[str, Any] = {}
    inner = re.fullmatch(r"Optional\[(.*)\]", text)
    if inner:
        about["optional"], text = True, inner[1]
    about["type"] = _type(text, classes, aliases)
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Field":
        for keyword in node.value.keywords:
            if keyword.arg in ("gt", "ge", "lt", "le", "alias"):
                about[keyword.arg] = value_of(keyword.value, constants)
            elif keyword.arg == "json_schema_extra" and isinstance(keyword.value, ast.Dict):
                extra = dict(zip(keyword.value.keys, keyword.value.values, strict=True))
                for key, value in extra.items():
                    word = value_of(key, constants)
                    if word in ("deprecated", "new_param"):
                        about["new" if word == "new_param" else word] = value_of(value, constants)
    return about


def _type(text: str, classes: dict[str, ast.ClassDef], aliases: dict[str, ast.expr]) -> Any:
    """A type's short form: "bool", ..., {"model": name}, {"one of": [...]}, {"list of": type}."""
    simple = {"bool": "bool", "int": "int", "float": "float", "str": "str", "Path": "str"}
    if text in simple:
        return simple[text]
    items = re.fullmatch(r"[Ll]ist\[(.*)\]", text)
    if items:
        inner = ast.unparse(aliases[items[1]]) if items[1] in aliases else items[1]
        return {"list of": _type(inner, classes, aliases)}
    if text == "list":
        return "list"
    if text.lower().startswith("dict"):
        return "dict"
    literal = re.fullmatch(r"Literal\[(.*)\]", text)
    if literal:
        return {"one of": list(ast.literal_eval(f"[{literal[1]}]"))}
    if text in classes:
        chain = _chain(classes[text], classes)
        if chain and chain[-1] == "DeepSpeedConfigModel":
            return {"model": text}
        if "Enum" in ast.unparse(ast.Tuple(classes[text].bases, ast.Load())):
            body = [n for n in classes[text].body if isinstance(n, ast.Assign)]
            values = [value_of(n.value, {}) for n in body]
            if all(isinstance(value, (str, int)) for value in values):
                return {"one of": sorted(set(values))}
    return "any"


def _reachable(models: dict[str, Any]) -> set[str]:
    """The models that sections of a training config are read into, directly or inside another."""
    found, new = set(), set(SECTION_MODELS.values()) & set(models)
    while new:
        found |= new
        types = [f["type"] for name in new for f in models[name].values()]
        new = {t["model"] for t in types if isinstance(t, dict) and "model" in t} - found
    return found


if __name__ == "__main__":
    from pplab.advise.check.schema import installed_root

    where = installed_root()
    if where is None:
        sys.exit("DeepSpeed is not installed here")
    json.dump(derive(where), sys.stdout, indent=1)
    print()
