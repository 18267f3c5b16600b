"""How much autograd keeps for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class count_saved:
    """Context: bytes that autograd keeps for the backward pass, parameters and views counted once
    (saved-tensor hooks)."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._seen = {p.untyped_storage().data_ptr() for p in module.parameters()}
        self.bytes = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its own graph node alive

    def __enter__(self) -> count_saved:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)
