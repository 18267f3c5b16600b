"""How much is kept for the backward passes: of one micro-batch, and at the worst moment of a step.

Saved-tensor hooks see every tensor that autograd keeps in a forward pass. What they hand back is
what autograd holds until the backward pass frees it, so the moment it dies is the moment its bytes
are gone: no operation has to be told when a micro-batch ends, and any schedule is counted right.

Costs some microseconds a tensor, and so is done in the first step of a run only. Not counted:
parameters (also seen through views), and what activation checkpointing computes again within a
backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Tally:
    """Bytes of the storages that somebody holds: `alive` now, and `peak`, the most so far.

    A storage counts once, however many hold it, until the last of them lets go.
    """

    def __init__(self) -> None:
        self.alive = self.peak = 0
        self._holders: dict[int, list[int]] = {}  # address -> [how many, bytes]

    def take(self, tensor: Tensor) -> None:
        """Somebody holds this tensor."""
        storage = tensor.untyped_storage()
        if (holder := self._holders.get(storage.data_ptr())) is not None:
            holder[0] += 1
            return
        self._holders[storage.data_ptr()] = [1, storage.nbytes()]
        self.alive += storage.nbytes()
        self.peak = max(self.peak, self.alive)

    def drop(self, tensor: Tensor) -> None:
        """One of those who hold it lets go."""
        place = tensor.untyped_storage().data_ptr()
        holder = self._holders[place]
        holder[0] -= 1
        if not holder[0]:
            del self._holders[place]
            self.alive -= holder[1]


class Kept:
    """What is held in place of a tensor; its end is counted."""

    __slots__ = ("tallies", "tensor")

    def __init__(self, tensor: Tensor, *tallies: Tally) -> None:
        # detached: the tensor itself would keep its own graph node alive
        self.tensor, self.tallies = tensor.detach(), tallies
        for tally in tallies:
            tally.take(self.tensor)

    def __del__(self) -> None:
        for tally in self.tallies:
            tally.drop(self.tensor)


class SavedBytes:
    """What is kept for backward passes. Enter it around every forward pass that is to be counted.

    saved: what autograd keeps; held: that, and the outputs handed to ``hold`` (DeepSpeed keeps
    those of a stage, from which its backward pass starts). Parameters of `module` never count;
    moving says that they get new storages even within a forward pass (ZeRO-3).
    """

    def __init__(self, module: torch.nn.Module, *, moving: bool = False) -> None:
        self.module, self.moving = module, moving
        self.saved, self.held = Tally(), Tally()
        self._weights: set[int] = set()

    def __enter__(self) -> SavedBytes:
        self._look()  # every time: a schedule that updates midway exchanges the parameters
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _look(self) -> None:
        self._weights = {p.untyped_storage().data_ptr() for p in self.module.parameters()}

    def _pack(self, tensor: Tensor) -> Kept | Tensor:
        if self.moving:
            self._look()
        if tensor.untyped_storage().data_ptr() in self._weights:
            return tensor.detach()
        return Kept(tensor, self.saved, self.held)

    @staticmethod
    def _unpack(kept: Kept | Tensor) -> Tensor:
        return kept.tensor if isinstance(kept, Kept) else kept

    def hold(self, tensors: Iterable[Tensor]) -> list[Kept]:
        """Count tensors as held for as long as the list returned is kept."""
        return [Kept(tensor, self.held) for tensor in tensors]
