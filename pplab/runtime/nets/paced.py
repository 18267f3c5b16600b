"""Layers that take a set time: real linear layers that then sleep until their time is over.

Forward and backward are paced separately, and the layer's own computation counts towards the time:
a layer of 10 ms takes 10 ms, not 10 ms and a bit. The last 0.1 ms are spun, not slept, because a
sleep overshoots by about that much.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from deepspeed.pipe import LayerSpec
from torch import Tensor, nn
from torch.nn import functional as fn

SPIN = 100e-6  # seconds


def until(deadline: float) -> None:
    """Return when ``time.perf_counter()`` reaches `deadline`, to within some microseconds."""
    left = deadline - time.perf_counter()
    if left > SPIN:
        time.sleep(left - SPIN)
    while time.perf_counter() < deadline:
        pass


class _Entry(torch.autograd.Function):
    """Identity; its backward runs last in the layer and waits out the time of B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: list[float]) -> Tensor:
        ctx.clock = clock
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        until(ctx.clock[0])
        return grads[0], None


class _Exit(torch.autograd.Function):
    """Identity; its backward runs first in the layer and starts the clock of B."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: list[float], seconds: float) -> Tensor:
        ctx.clock, ctx.seconds = clock, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.clock[:] = [time.perf_counter() + ctx.seconds]
        return grads[0], None, None


class PacedLayer(nn.Module):
    """(b, width) -> (b, width) in `forward` seconds; its gradients in `backward` seconds."""

    def __init__(self, width: int, forward: float, backward: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.seconds = (forward, backward)

    def forward(self, x: Tensor) -> Tensor:
        begin = time.perf_counter()
        forward, backward = self.seconds
        x = x.to(self.linear.weight.dtype)
        if torch.is_grad_enabled() and not x.requires_grad:
            x = x.detach().requires_grad_()  # so that the entry's backward runs in stage 0 too
        clock: list[float] = [0.0]
        y = _Entry.apply(x, clock)
        y = torch.tanh(self.linear(y))
        y = _Exit.apply(y, clock, backward)
        until(begin + forward)
        return y


def distance(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error in float32: (b, width) twice -> scalar."""
    return fn.mse_loss(outputs.float(), labels.float())


def layers(settings: dict[str, Any], stages: int) -> list[LayerSpec]:
    """One paced layer per stage, or as many as the settings say."""
    count = settings["layers"] or stages
    forward, backward = (
        value if isinstance(value, list) else [value] * count
        for value in (settings["forward"], settings["backward"])
    )
    return [
        LayerSpec(PacedLayer, settings["width"], f, b)
        for f, b in zip(forward, backward, strict=True)
    ]
