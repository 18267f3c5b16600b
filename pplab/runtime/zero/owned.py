"""What a rank holds: parameters, gradients, optimizer states, buckets, storage by storage.

Sizes are those of the storages really allocated, each counted once, for the first of these that it
belongs to. ZeRO keeps its parts under names of its own, which differ between its optimizers: those
of DeepSpeed 0.19 are looked for, and what an optimizer does not have counts as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

#: Attributes of DeepSpeed's optimizers, by what they hold.
GRADIENTS = (
    "averaged_gradients",  # ZeRO-1 to 3: the rank's part, reduced
    "grads_in_partition",  # ZeRO-2: the rank's part, between two micro-batches
    "grad_partitions_flat_buffer",  # ZeRO-3: the rank's part
    "fp32_groups_gradients_flat",  # BF16_Optimizer: summed in fp32
    "fp32_groups_gradients",
)
STATES = (
    "single_partition_of_fp32_groups",  # ZeRO-1 and 2: the rank's part in fp32
    "fp32_partitioned_groups_flat",  # ZeRO-3
    "fp32_groups_flat_partition",  # BF16_Optimizer
)
PARAMETERS = ("bit16_groups_flat", "lp_param_buffer", "bf16_groups_flat")


def owned(module: torch.nn.Module, optimizer: Any) -> dict[str, int]:
    """Bytes by kind: parameters, gradients, optimizer, buckets (ZeRO's reduction buffers).

    Under ZeRO-3 parameters are the rank's part and whatever is put together at this moment.
    """
    inner = optimizer
    while hasattr(inner, "optimizer"):
        inner = inner.optimizer
    parameters = list(module.parameters())
    parts = [getattr(p, "ds_tensor", None) for p in parameters]
    grads = [(p.grad, getattr(p, "grad_accum", None)) for p in parameters]
    flat = [p for group in inner.param_groups for p in group["params"]]
    buckets = getattr(optimizer, "ipg_buckets", {}).values()
    groups: dict[str, Any] = {
        "parameters": (parameters, parts, _named(optimizer, PARAMETERS)),
        "buckets": [getattr(bucket, "buffer", None) for bucket in buckets],
        "optimizer": (inner.state, _named(optimizer, STATES)),
        "gradients": (grads, [p.grad for p in flat], _named(optimizer, GRADIENTS)),
    }
    seen: set[int] = set()
    return {name: _bytes(tensors(value), seen) for name, value in groups.items()}


def in_buckets(optimizer: Any) -> int:
    """Bytes of gradients that lie in ZeRO's reduction buffers at this moment."""
    buckets = getattr(optimizer, "ipg_buckets", {})
    return sum(bucket.elements * kind.itemsize for kind, bucket in buckets.items())


def whole_parameters(module: torch.nn.Module) -> int:
    """How many parameters the model has on this rank, put together or not."""
    return sum(getattr(p, "ds_numel", p.numel()) for p in module.parameters())


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from tensors(item)


def _named(holder: Any, names: Iterable[str]) -> list[Any]:
    return [getattr(holder, name, None) for name in names]


def _bytes(found: Iterable[Tensor], seen: set[int]) -> int:
    total = 0
    for tensor in found:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total
