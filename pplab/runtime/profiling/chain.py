"""The layers of a model in a row, with the inputs of one micro-batch and (if any) a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Layer:
    """One layer: what to call, the module whose parameters it has (None: a function), names.

    `in_place`: it overwrites its input, found out in the first pass.
    """

    number: int
    kind: str
    call: Callable[[Any], Any]
    module: nn.Module | None
    tied: str | None = None
    in_place: bool = False

    @property
    def name(self) -> str:
        """Number and class: ``3 Block``."""
        return f"{self.number} {self.kind}"

    def __str__(self) -> str:
        return f"layer {self.number} ({self.kind})"

    def parameters(self) -> list[nn.Parameter]:
        """Its parameters, shared ones too."""
        return list(self.module.parameters()) if self.module is not None else []


@dataclass
class Chain:
    """Layers in order, the inputs of one micro-batch, and the loss with its labels, if any."""

    layers: list[Layer]
    inputs: Any
    loss: Callable[..., Any] | None = None
    labels: Any = None
    notes: list[str] = field(default_factory=list)

    def modules(self) -> nn.ModuleList:
        """Every module once."""
        found = (layer.module for layer in self.layers)
        return nn.ModuleList(dict.fromkeys(m for m in found if m is not None))

    @property
    def samples(self) -> int:
        """Samples in the micro-batch: the first dimension of its first tensor."""
        first = self.inputs[0] if isinstance(self.inputs, tuple) else self.inputs
        return int(first.shape[0]) if first.dim() else 1


def as_inputs(sample: Any, dtype: str) -> Any:
    """A sample as a tensor, or a tuple of tensors; floats of type `dtype`."""
    if callable(sample) and not isinstance(sample, Tensor):
        sample = sample()
    if isinstance(sample, tuple):
        return tuple(as_inputs(one, dtype) for one in sample)
    try:
        tensor = torch.as_tensor(np.asarray(sample) if isinstance(sample, list) else sample)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"the sample is not numbers that make a tensor, but {type(sample).__name__}: {error}"
        ) from None
    tensor = tensor.detach()
    return tensor.to(TYPES[dtype]) if tensor.is_floating_point() else tensor
