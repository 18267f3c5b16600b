"""The reference: the same model, data and optimizer in one process, without a pipeline.

A plain PyTorch loop that a reader can check by eye. A pipeline run is right when its losses and
parameters equal these.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from deepspeed.pipe import LayerSpec, TiedLayerSpec
from torch import nn

from pplab.core.ops import WHOLE_STEP
from pplab.runtime.job import Job
from pplab.runtime.nets.build import Network, base_seed, set_seed
from pplab.runtime.recorder import Recorder

KINDS: dict[str, Any] = {
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "SGD": torch.optim.SGD,
}


class PlainLoop:
    """All layers in a row, M micro-batches a step, their mean loss, one optimizer step."""

    def __init__(self, job: Job, network: Network, recorder: Recorder, device: str) -> None:
        self.job, self.network, self.recorder, self.device = job, network, recorder, device
        self.modules, self.calls = built(network, base_seed(job))
        self.step_number = 0
        #: Loss of each micro-batch, a row a step
        self.micro_losses: list[list[float]] = []
        everything = nn.ModuleList(dict.fromkeys(self.modules.values())).to(device)
        if job.dtype == "bf16":
            everything.to(torch.bfloat16)
        self.optimizer = KINDS[job.optimizer](everything.parameters(), lr=job.lr, weight_decay=0.0)
        self.parameters = list(everything.parameters())

    def step(self) -> float:
        """One training step; returns the mean loss."""
        job, losses = self.job, list[float]()
        for m in range(job.micro_batches):
            x, labels = self.network.batch(self.step_number * job.micro_batches + m)
            x, labels = to_device(x, self.device), to_device(labels, self.device)
            start = self.recorder.now()
            for call in self.calls:
                x = call(x)
            loss = self.network.loss(x, labels)
            middle = self.recorder.now()
            (loss / job.micro_batches).backward()
            end = self.recorder.now()
            self.recorder.add("F", m, 0, start, middle)
            self.recorder.add("B", m, 0, middle, end)
            losses.append(float(loss.detach()))
        start = self.recorder.now()
        if job.gradient_clipping:
            nn.utils.clip_grad_norm_(self.parameters, job.gradient_clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.recorder.add("U", WHOLE_STEP, 0, start, self.recorder.now())
        self.step_number += 1
        self.micro_losses.append(losses)
        return sum(losses) / len(losses)


def built(network: Network, seed: int) -> tuple[dict[int, nn.Module], list[Any]]:
    """The layers' modules by number, and what to call one after the other.

    Built as DeepSpeed's pipeline does: layer i from seed + i, tied ones once.
    """
    tied: dict[str, nn.Module] = {}
    modules: dict[int, nn.Module] = {}
    calls: list[Any] = []
    for i, spec in enumerate(network.layers):
        set_seed(seed + i)
        if isinstance(spec, TiedLayerSpec):
            if spec.key not in tied:
                tied[spec.key] = spec.build()
            module = modules[i] = tied[spec.key]
            calls.append(partial(spec.forward_fn, module) if spec.forward_fn else module)
        elif isinstance(spec, LayerSpec | nn.Module):
            module = spec.build() if isinstance(spec, LayerSpec) else spec
            modules[i] = module
            calls.append(module)
        else:
            calls.append(spec)
    return modules, calls


def to_device(value: Any, device: str) -> Any:
    """A tensor, or a tuple of them, on a device."""
    if isinstance(value, tuple | list):
        return tuple(to_device(item, device) for item in value)
    return value.to(device)
