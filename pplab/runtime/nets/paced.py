"""Layers that take a set time: real linear layers that then sleep until their time is over.

Forward and backward are paced separately, and so are the halves of a backward pass that is split
into B and W. The layer's own computation counts towards the time: a layer of 10 ms takes 10 ms, not
10 ms and a bit. The last 0.25 ms are spun, not slept: sleeps on virtual machines end that late.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from deepspeed.pipe import LayerSpec
from torch import Tensor, nn
from torch.nn import functional as fn

from pplab.core.layout import Layout
from pplab.runtime.split_backward import PHASE

SPIN = 250e-6  # seconds


class Pace:
    """How many times its set time a layer takes now: 1, unless a fault was planted."""

    factor = 1.0


PACE = Pace()


def until(deadline: float) -> None:
    """Return when ``time.perf_counter()`` reaches `deadline`, to within some microseconds."""
    left = deadline - time.perf_counter()
    if left > SPIN:
        time.sleep(left - SPIN)
    while time.perf_counter() < deadline:
        pass


def arrived(x: Tensor) -> None:
    """Return when a tensor is there: under NCCL only the GPU waits for messages, the CPU goes on,
    and would sleep before its layer's turn has come."""
    if x.is_cuda:
        torch.cuda.current_stream().synchronize()


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
    """Identity; its backward runs first in the layer and starts the clock of B: the time of the
    whole backward pass, or without W's part when that comes later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: list[float], seconds: tuple[float, float]) -> Tensor:
        ctx.clock, ctx.seconds = clock, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        backward, weight = ctx.seconds
        arrived(grads[0])
        lasts = (backward - weight * (PHASE.name == "input")) * PACE.factor
        ctx.clock[:] = [time.perf_counter() + lasts]
        return grads[0], None, None


class _Weight(torch.autograd.Function):
    """Identity on a weight; its backward belongs to the weight gradient and, when that is an
    operation of its own, waits out the time of W (of one layer after the other)."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if PHASE.name == "weight":
            PHASE.began += ctx.seconds * PACE.factor
            until(PHASE.began)
        return grads[0], None


class PacedLayer(nn.Module):
    """(b, width) -> (b, width) in `forward` seconds; its gradients in `backward` seconds, of which
    `weight` seconds are W's where the backward pass is split."""

    def __init__(self, width: int, forward: float, backward: float, weight: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.seconds = (forward, backward, weight)

    def forward(self, x: Tensor) -> Tensor:
        arrived(x)
        begin = time.perf_counter()
        forward, backward, weight = self.seconds
        x = x.to(self.linear.weight.dtype)
        if torch.is_grad_enabled() and not x.requires_grad:
            x = x.detach().requires_grad_()  # so that the entry's backward runs in stage 0 too
        clock: list[float] = [0.0]
        y = _Entry.apply(x, clock)
        y = fn.linear(y, _Weight.apply(self.linear.weight, weight), self.linear.bias)
        y = _Exit.apply(torch.tanh(y), clock, (backward, weight))
        until(begin + forward * PACE.factor)
        return y


def distance(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error in float32: (b, width) twice -> scalar."""
    return fn.mse_loss(outputs.float(), labels.float())


def layers(settings: dict[str, Any], slices: int) -> list[LayerSpec]:
    """One paced layer per slice of the model (stage), or as many as the settings say."""
    count = settings["layers"] or slices
    halves = settings.get("weight")

    def times(value: Any) -> list[float]:
        return value if isinstance(value, list) else [value] * count

    forward, backward = times(settings["forward"]), times(settings["backward"])
    weight = [b / 2 for b in backward] if halves is None else times(halves)
    return [
        LayerSpec(PacedLayer, settings["width"], *seconds)
        for seconds in zip(forward, backward, weight, strict=True)
    ]


def at_speeds(
    layers: list[LayerSpec], bounds: Sequence[int], layout: Layout, speeds: Sequence[float]
) -> list[LayerSpec]:
    """The same layers as ranks of unlike speed run them: each takes its time / the rank's speed.

    speeds: one a rank of the pipeline; which rank a layer is on follows from bounds and layout.
    """
    paced = []
    for number, spec in enumerate(layers):
        rank, _ = layout.place_of(bisect_right(bounds, number) - 1)
        width, *seconds = spec.module_args
        paced.append(LayerSpec(PacedLayer, width, *(s / speeds[rank] for s in seconds)))
    return paced
