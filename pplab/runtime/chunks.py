"""DeepSpeed pipeline modules cut where we say, with one or several slices of the model on a rank.

DeepSpeed's ``PipelineModule`` builds one run of layers on each rank and chooses the cuts itself.
``BoundsPipe`` gives it the cuts; ``SlicedPipe`` builds every slice that a ``Layout`` puts on the
rank (chunks, or virtual stages) and shows one of them at a time as "the" layers, the way
DeepSpeed's own ``DualPipeVModule`` shows one of its two. Layers tied to each other may lie
anywhere: on one rank they are one module, on several DeepSpeed reduces their gradients.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import torch
from deepspeed.pipe import DualPipeVModule, PipelineModule

from pplab.core.layout import Layout


class BoundsPipe(PipelineModule):
    """A PipelineModule cut at given layer numbers, which DeepSpeed has no option for."""

    def __init__(self, *args: Any, bounds: tuple[int, ...], **kwargs: Any) -> None:
        self.given_bounds = list(bounds)
        super().__init__(*args, **kwargs)

    def _partition_layers(self, method: str = "uniform") -> None:
        self.parts, stage = self.given_bounds, self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])


class BoundsDualPipe(DualPipeVModule, BoundsPipe):
    """DeepSpeed's own DualPipeV module, cut at 2 * stages + 1 given layer numbers."""


class SlicedPipe(BoundsPipe):
    """The slices of the model that `layout` puts on this rank.

    bounds: layout.slices + 1 layer numbers. ``phase_funcs[chunk]`` and ``phase_bounds[chunk]``
    are the layers of a chunk and their numbers (the names are those of ``DualPipeVModule``).
    """

    def __init__(self, *args: Any, layout: Layout, **kwargs: Any) -> None:
        self.layout = layout
        if kwargs.get("topology") is None:
            kwargs["num_stages"] = layout.stages
        super().__init__(*args, **kwargs)

    def _partition_layers(self, method: str = "uniform") -> None:
        super()._partition_layers(method)
        rank = self._topo.get_coord(self.global_rank).pipe
        pieces = [self.layout.slice_of(rank, chunk) for chunk in range(self.layout.chunks)]
        self.phase_bounds = [(self.parts[p], self.parts[p + 1]) for p in pieces]

    def stage_owner(self, layer_idx: int) -> int:
        """The rank that holds a layer (DeepSpeed asks for the groups of tied layers)."""
        return self.layout.place_of(bisect_right(self.parts, layer_idx) - 1)[0]

    def _build(self) -> None:
        self.phase_funcs: list[list[Any]] = []
        for start, stop in self.phase_bounds:
            self._set_bounds(start, stop)
            super()._build()
            self.phase_funcs.append(self.forward_funcs)
            self.forward_funcs: list[Any] = []
        self.phase_checkpointable: list[list[bool]] = [[] for _ in self.phase_funcs]
        self.activate(0)

    def activate(self, chunk: int) -> None:
        """Make a chunk the one that ``forward`` runs."""
        self.forward_funcs = self.phase_funcs[chunk]
        self._local_start, self._local_stop = self.phase_bounds[chunk]
        self.is_checkpointable_results = self.phase_checkpointable[chunk]

    def in_a_row(self, x: Any) -> Any:
        """What ``forward`` does when nothing is recomputed, without the closures it makes for that:
        the layers in a row, each after a seed of its own (micro-batch and layer)."""
        self.micro_offset += 1
        first = self.base_seed * (self.micro_offset + 1) + self._local_start
        for seed, layer in enumerate(self.forward_funcs, first):
            self.seed_fn(seed)
            x = layer(x)
        return x

    def _precompute_checkpointable_values(self) -> None:
        for chunk in range(self.layout.chunks):
            self.activate(chunk)
            self.is_checkpointable_results_interval = None  # the parent's cache is per module
            super()._precompute_checkpointable_values()
            self.phase_checkpointable[chunk] = self.is_checkpointable_results
        self.activate(0)

    def save_state_dict(self, *args: Any, **kwargs: Any) -> None:
        for chunk in range(self.layout.chunks):
            self.activate(chunk)
            super().save_state_dict(*args, **kwargs)

    def load_state_dir(self, *args: Any, **kwargs: Any) -> None:
        for chunk in range(self.layout.chunks):
            self.activate(chunk)
            super().load_state_dir(*args, **kwargs)


def layers_of(module: PipelineModule) -> dict[int, torch.nn.Module]:
    """This rank's modules by their number in the layer list (tied ones under each number)."""
    found = {}
    funcs = getattr(module, "phase_funcs", [module.forward_funcs])
    bounds = getattr(module, "phase_bounds", [(module._local_start, module._local_stop)])
    for calls, (start, _) in zip(funcs, bounds, strict=True):
        for local, call in enumerate(calls):
            owner = getattr(call, "args", (call,))[0]  # partial(forward_fn, tied module)
            if isinstance(owner, torch.nn.Module):
                found[start + local] = owner
    return found
