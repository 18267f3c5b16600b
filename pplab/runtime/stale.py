"""The reference for asynchronous schedules: one process, and gradients as old as the schedule's.

PipeDream's ranks update their weights while micro-batches are in flight, so a micro-batch meets an
older version of the weights on some ranks than on others. This loop has no pipeline. It keeps
*every* version that the weights of a rank ever had, looks up which one a micro-batch meets
(``core.schedules.weights``), and computes the gradient there. Nothing is swapped or stashed: each
version is a set of tensors of its own, handed to the layers as arguments.

A run of ``ScheduledEngine`` is right when its losses and parameters equal these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pplab.core.ops import F
from pplab.core.schedules.weights import versions_used
from pplab.runtime.job import Job
from pplab.runtime.nets.build import Network
from pplab.runtime.plain import KINDS, PlainLoop, to_device
from pplab.runtime.recorder import Recorder
from pplab.runtime.weight_versions import groups

Version = dict[nn.Parameter, Tensor]


class Layer(nn.Module):
    """One entry of the layer list as a module, so that its weights can be given as arguments."""

    def __init__(self, call: Any, module: nn.Module | None) -> None:
        super().__init__()
        self.module, self.call = module, [call]  # in a list: else a module would count twice

    def forward(self, x: Any) -> Any:
        return self.call[0](x)


class StaleLoop(PlainLoop):
    """The plain loop, with the weight versions and updates of ``job.schedule``."""

    def __init__(self, job: Job, network: Network, recorder: Recorder, device: str) -> None:
        super().__init__(job, network, recorder, device)
        assert job.schedule is not None
        self.plan = job.schedule
        self.layers = [Layer(call, self.modules.get(i)) for i, call in enumerate(self.calls)]
        pieces = [bisect_right(network.bounds, i) - 1 for i in range(len(self.layers))]
        self.places = [self.plan.layout.place_of(piece) for piece in pieces]  # (rank, chunk)
        self.owned: list[list[nn.Parameter]] = [[] for _ in range(self.plan.stages)]
        for layer, (rank, _) in zip(self.layers, self.places, strict=True):
            self.owned[rank] += [p for p in layer.parameters() if p not in set(self.owned[rank])]
        self.optimizers = [
            KINDS[job.optimizer](owned, lr=job.lr, weight_decay=0.0) for owned in self.owned
        ]

    def step(self) -> float:
        """All micro-batches of one step, in order; returns the mean loss."""
        count, losses = self.job.micro_batches, list[float]()
        used = versions_used(self.plan)
        applied_by = [groups(ops) for ops in self.plan.ops]
        history = [[version_of(owned)] for owned in self.owned]
        sums: Version = {}
        for m in range(count):
            start = self.recorder.now()
            met: dict[Tensor, nn.Parameter] = {}
            x, labels = self.network.batch(self.step_number * count + m)
            x, labels = to_device(x, self.device), to_device(labels, self.device)
            for layer, (rank, chunk) in zip(self.layers, self.places, strict=True):
                version = history[rank][used[rank][F(m, chunk)]]
                met |= {version[p]: p for p in layer.parameters()}
                weights = {name: version[p] for name, p in layer.named_parameters()}
                x = functional_call(layer, weights, (x,))
            loss = self.network.loss(x, labels)
            middle = self.recorder.now()
            for p, grad in zip(met.values(), torch.autograd.grad(loss, list(met)), strict=True):
                sums[p] = sums[p] + grad if p in sums else grad
            losses.append(float(loss.detach()))
            end = self.recorder.now()
            self.recorder.add("F", m, 0, start, middle)
            self.recorder.add("B", m, 0, middle, end)
            for rank, update_of in enumerate(applied_by):
                if m == count - 1 or update_of[m] != update_of[m + 1]:
                    self.update(rank, sums, Counter(update_of.values())[update_of[m]])
                    history[rank].append(version_of(self.owned[rank]))
            self.recorder.add("U", m, 0, end, self.recorder.now())
        self.step_number += 1
        self.micro_losses.append(losses)
        return sum(losses) / count

    def update(self, rank: int, sums: Version, members: int) -> None:
        """One optimizer step of a rank, with the mean gradient of `members` micro-batches."""
        for p in self.owned[rank]:
            p.grad = sums.pop(p) / members
        self.optimizers[rank].step()


def version_of(owned: list[nn.Parameter]) -> Version:
    """A copy of the weights as they are now."""
    return {p: p.detach().clone().requires_grad_() for p in owned}
