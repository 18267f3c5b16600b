"""Checkpoints on the side of the ranks: DeepSpeed's own, and optimizer state layer by layer.

DeepSpeed's optimizer files belong to a rank. Under ZeRO-0 they list the state of the rank's
parameters in order; under ZeRO-1 (and with bf16) they hold pieces of one flat buffer that the
replicas share. Here the state of every parameter is taken out of either and written under the
number of its layer, with the fp32 master copy where weights are bf16. Reading is the reverse, into
whatever the new cut, number of replicas and ZeRO stage make of it.

Read with ``weights_only=True``: tensors and numbers, nothing that could be executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.pipe import LayerSpec
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from torch import Tensor, nn

from pplab.runtime.checkpoint import FOLDER, FORMAT, any_cut, layer_file
from pplab.runtime.chunks import layers_of
from pplab.runtime.job import Job

State = dict[str, Any]


def save(engine: Any, job: Job, records: str) -> None:
    """Write a checkpoint into the record of the run; every rank calls it after the last step."""
    directory, step = Path(records) / FOLDER, job.first_step + job.steps
    tag = f"global_step{step}"
    engine.save_checkpoint(str(directory), tag=tag)
    own = any_cut(directory, tag)
    own.mkdir(exist_ok=True)
    keeper = keeper_of(engine.optimizer)
    for number, module in sorted(layers_of(engine.module).items()):
        entry: State = {"parameters": {}}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                entry["parameters"][name] = keeper.read(parameter)  # replicas talk to each other
        if not layer_weights(directory / tag, number).exists():
            entry["weights"] = cpu(module.state_dict())  # DeepSpeed writes no file for it
        if engine.grid.data_parallel_id == 0:
            torch.save(entry, layer_file(own, number))
    dist.barrier()
    if dist.get_rank() == 0:  # last: a checkpoint without it is not complete
        check_complete(engine, own)
        about = {
            "format": FORMAT,
            "tag": tag,
            "step": step,
            "batches": job.batch_number(job.steps, 0),
        }
        if engine.lr_scheduler is not None:
            about["lr_scheduler"] = engine.lr_scheduler.state_dict()
            about["lr"] = [group["lr"] for group in engine.optimizer.param_groups]
        (own / "about.json").write_text(json.dumps(about))


def check_complete(engine: Any, own: Path) -> None:
    """Raises OSError when files of other ranks are not seen here: hosts that share no disk."""
    built = LayerSpec, nn.Module  # what is neither is a function and has nothing to keep
    specs = enumerate(engine.module._layer_specs)
    missing = [
        i for i, spec in specs if isinstance(spec, built) and not layer_file(own, i).exists()
    ]
    if missing:
        raise OSError(
            f"the checkpoint lacks layers {', '.join(map(str, missing))}: the hosts of this run do "
            f"not share {own.parent}; let $PPLAB_RUNS be a directory that they do"
        )


def restore(engine: Any, job: Job) -> None:
    """Continue from the checkpoint the job names; every rank calls it before the first step."""
    resume = job.resume
    assert resume is not None
    if resume.loader == "deepspeed":
        path, _ = engine.load_checkpoint(resume.directory, tag=resume.tag)
        if path is None:
            raise FileNotFoundError(f"DeepSpeed found nothing to load in {resume.directory}")
        return
    keeper = keeper_of(engine.optimizer)
    for number, module in sorted(layers_of(engine.module).items()):
        load_layer(number, module, keeper, Path(resume.directory) / resume.tag, resume.any_cut)
    engine.global_steps = resume.step
    engine.global_samples = resume.batches * job.micro_batch_size
    about = json.loads((resume.any_cut / "about.json").read_text())
    if engine.lr_scheduler is not None and "lr_scheduler" in about:
        engine.lr_scheduler.load_state_dict(about["lr_scheduler"])
        for group in engine.optimizer.param_groups:
            group["lr"] = about["lr"][0]  # one group a rank here, alike on all


def load_layer(number: int, module: nn.Module, keeper: Keeper, weights: Path, own: Path) -> None:
    """Weights and optimizer state of one layer. Raises ValueError when they are another's."""
    entry = torch.load(layer_file(own, number), map_location="cpu", weights_only=True)
    found = entry.get("weights")
    if found is None:
        found = torch.load(layer_weights(weights, number), map_location="cpu", weights_only=True)
    try:
        module.load_state_dict(found)
    except RuntimeError as error:
        raise ValueError(
            f"layer {number} of the checkpoint does not fit this model's {type(module).__name__}: "
            f"{error}"
        ) from error
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            keeper.write(parameter, entry["parameters"].get(name, {}))


def layer_weights(directory: Path, number: int) -> Path:
    """DeepSpeed's file of a layer's weights: none for a layer that is only a function."""
    return directory / f"layer_{number:02d}-model_states.pt"


# -- where optimizers keep their state ------------------------------------------------------------


class Keeper:
    """State of a plain torch optimizer (ZeRO-0, fp32): each parameter has its own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = innermost(optimizer)

    def read(self, parameter: nn.Parameter) -> State:
        """All that belongs to a parameter, on the CPU; {} before the first step."""
        return cpu(self.optimizer.state.get(parameter, {}))

    def write(self, parameter: nn.Parameter, state: State) -> None:
        """Put back what ``read`` found, wherever that was."""
        own = {name: value for name, value in state.items() if name != MASTER}
        if own:
            self.optimizer.state[parameter] = {
                name: value.to(parameter.device) if is_whole(name, value, parameter) else value
                for name, value in own.items()
            }


class FlatKeeper(Keeper):
    """State of DeepSpeed's ZeRO-1 and bf16 optimizers: pieces of flat fp32 buffers.

    groups: the parameters, and the flat buffer of this replica, of each parameter group.
    """

    def __init__(self, optimizer: Any, groups: Iterator[tuple[list[nn.Parameter], Any]]) -> None:
        super().__init__(optimizer)
        self.flat = {id(p): flat for parameters, flat in groups for p in parameters}

    def read(self, parameter: nn.Parameter) -> State:
        flat = self.flat[id(parameter)]
        found: State = {}
        for name, value in self.optimizer.state.get(flat, {}).items():
            if isinstance(value, Tensor) and value.shape == flat.shape:
                value = safe_get_full_optimizer_state(parameter, name)
            found[name] = value
        if parameter.dtype != torch.float32:
            found[MASTER] = safe_get_full_fp32_param(parameter)
        return cpu(found)

    def write(self, parameter: nn.Parameter, state: State) -> None:
        flat, mapping = self.flat[id(parameter)], parameter._hp_mapping  # type: ignore[attr-defined]
        master = state.get(MASTER, parameter.detach().float())
        buffers = self.optimizer.state[flat]
        for name, value in {**state, MASTER: master}.items():
            if not is_whole(name, value, parameter):
                buffers[name] = value  # the number of steps: one for all
                continue
            buffer = flat.data
            if name != MASTER:
                buffer = buffers.setdefault(name, torch.zeros_like(flat.data))
            if mapping is not None:  # this replica keeps a piece of it
                mine, whole = mapping.hp_fragment_address, mapping.lp_fragment_address
                piece = value.flatten().narrow(0, whole.start, whole.numel)
                buffer.narrow(0, mine.start, mine.numel).copy_(piece)


#: Name under which a parameter's fp32 master copy is kept, among the names of its state.
MASTER = "fp32 master"


def keeper_of(optimizer: Any) -> Keeper:
    """The keeper for the optimizer DeepSpeed made."""
    for parameters, flat in (
        ("bit16_groups", "single_partition_of_fp32_groups"),  # ZeRO-1
        ("bf16_groups", "fp32_groups_flat_partition"),  # BF16_Optimizer
    ):
        if hasattr(optimizer, flat):
            groups = zip(getattr(optimizer, parameters), getattr(optimizer, flat), strict=True)
            return FlatKeeper(optimizer, groups)
    return Keeper(optimizer)


def innermost(optimizer: Any) -> Any:
    """The torch optimizer inside DeepSpeed's."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def is_whole(name: str, value: Any, parameter: Tensor) -> bool:
    """Whether a piece of state has one number for each of the parameter's (``step`` has not)."""
    return isinstance(value, Tensor) and value.shape == parameter.shape and name != "step"


def cpu(values: dict[str, Any]) -> dict[str, Any]:
    """Copies on the CPU; a view of a flat buffer would be saved with all of the buffer."""
    return {
        name: value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
        for name, value in values.items()
    }
