"""Tensor parallelism: one layer on several ranks (Shoeybi et al. 2019, "Megatron-LM").

A block's two pairs of matrices are cut so that a pair needs one sum in each direction:

    x -- f --> columns of the first matrix --> rows of the second -- g --> y

f copies x on the way forward and adds up the parts' gradients on the way back; g adds up the
parts' results forward and copies the gradient back. Every rank of a stage ends up with the same y,
so that norms, embedding and head, which every rank has whole, stay alike without a message.

Each rank builds the whole matrix from the same seed and keeps its part: the model is the same
whatever the number of parts. `Whole` says of a parameter how to put it together again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as fn

from pplab.runtime.nets.gpt import Block


@dataclass(frozen=True)
class Whole:
    """A sliced parameter seen as `shape`, of which each part has a piece along `dim`."""

    shape: tuple[int, ...]
    dim: int

    def part_of(self, full: Tensor, part: int, parts: int) -> Tensor:
        """The piece of one part, in as many dimensions as the layer's own parameter has."""
        piece = full.view(self.shape).chunk(parts, self.dim)[part]
        if full.dim() == 1:
            return piece.reshape(-1)
        inputs_are_cut = self.dim == len(self.shape) - 1
        return piece.reshape(full.shape[0], -1) if inputs_are_cut else piece.flatten(0, -2)

    def joined(self, pieces: list[Tensor], like: tuple[int, ...]) -> Tensor:
        """The whole parameter, of shape `like`, from the pieces of all parts."""
        cut = list(self.shape)
        cut[self.dim] //= len(pieces)
        return torch.cat([piece.view(cut) for piece in pieces], self.dim).reshape(like)


class Parts:
    """The ranks that share the layers of one stage; counts what they send to each other."""

    def __init__(self) -> None:
        self.group: Any = None
        self.messages = self.bytes = 0

    def add_up(self, x: Tensor) -> Tensor:
        """The sum over the parts, in a new tensor."""
        total = x.contiguous().clone()
        self.messages += 1
        self.bytes += total.numel() * total.element_size()
        dist.all_reduce(total, group=self.group)
        return total

    def sent(self, steps: int) -> dict[str, int]:
        """Sums, and bytes that were added up, in one of `steps` steps; nothing without parts."""
        if self.group is None:
            return {}
        return {
            "tensor_sums": self.messages // steps,
            "tensor_sum_bytes": self.bytes // steps,
        }


#: Of this process; its group is known when DeepSpeed has made it.
PARTS = Parts()


class _Copy(torch.autograd.Function):
    """f: forward as it is, backward the sum over the parts."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, grad: Tensor) -> Tensor:
        return PARTS.add_up(grad)


class _Sum(torch.autograd.Function):
    """g: forward the sum over the parts, backward as it is."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return PARTS.add_up(x)

    @staticmethod
    def backward(_: Any, grad: Tensor) -> Tensor:
        return grad


def _copy(x: Tensor) -> Tensor:
    return _Copy.apply(x)


def _sum(x: Tensor) -> Tensor:
    return _Sum.apply(x)


class TensorBlock(Block):
    """A part of ``Block``: some of its attention heads, some of the MLP's inner width.

    (b, t, c) -> (b, t, c), the same on every part.
    """

    def __init__(self, width: int, heads: int, dropout: float, part: int, parts: int) -> None:
        super().__init__(width, heads, dropout)
        self.heads = heads // parts
        each = width // heads
        columns = {
            "qkv": Whole((3, heads, each, width), 1),
            "up": Whole((4 * width, width), 0),
        }
        rows = {"mix": Whole((width, width), 1), "down": Whole((width, 4 * width), 1)}
        for name, whole in (columns | rows).items():
            linear = getattr(self, name)
            _keep_part(linear, "weight", whole, part, parts)
            if name in columns:
                _keep_part(linear, "bias", Whole(whole.shape[:-1], whole.dim), part, parts)

    def attend(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(_copy(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        y = fn.linear(y.transpose(1, 2).reshape(b, t, -1), self.mix.weight)
        return _sum(y) + self.mix.bias  # the bias once, after the sum

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> Any:
        rest = ()
        if isinstance(x, tuple):
            x, *rest = x  # type: ignore[assignment]
        x = x + self.attend(self.norm1(x))
        inner = fn.gelu(self.up(_copy(self.norm2(x))))
        x = x + _sum(fn.linear(inner, self.down.weight)) + self.down.bias
        return (x, *rest) if rest else x


def _keep_part(linear: nn.Linear, name: str, whole: Whole, part: int, parts: int) -> None:
    full = getattr(linear, name).detach()
    kept = nn.Parameter(whole.part_of(full, part, parts).contiguous())
    # DeepSpeed counts a parameter once per part in norms only if it is told that it is sliced
    kept.model_parallel = True  # type: ignore[attr-defined]
    kept.whole = whole, tuple(full.shape)  # type: ignore[attr-defined]
    setattr(linear, name, kept)


def gathered(parameter: nn.Parameter, parts: int) -> Tensor:
    """The whole of a parameter, its pieces gathered from all parts; every part calls it."""
    sliced: tuple[Whole, tuple[int, ...]] | None = getattr(parameter, "whole", None)
    if sliced is None:
        return parameter.detach()
    whole, full_shape = sliced
    pieces = [torch.empty_like(parameter) for _ in range(parts)]
    dist.all_gather(pieces, parameter.detach().contiguous(), group=PARTS.group)
    return whole.joined(pieces, full_shape)
