"""A small byte-level GPT as a list of pipeline layers (after Radford et al. 2019).

Shapes: b samples of t bytes, width c, v = 256 byte values.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from deepspeed.pipe import LayerSpec, TiedLayerSpec
from torch import Tensor, nn
from torch.nn import functional as fn

VOCABULARY = 256


class Embedding(nn.Module):
    """Bytes (b, t) int64 -> vectors (b, t, c), with sinusoidal positions (Vaswani et al. 2017)."""

    def __init__(self, width: int, positions: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, width) * 0.02)
        self.positions = positions

    def forward(self, ids: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        t, c = ids.shape[1], self.weight.shape[1]
        place = torch.arange(t, device=ids.device)
        rate = torch.exp(torch.arange(0, c, 2, device=ids.device) * (-math.log(10_000.0) / c))
        angle = place[:, None] * rate  # (t, c/2)
        wave = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :c]
        x = self.weight[ids] + wave.to(self.weight.dtype)
        # A tuple between stages: the float first, integers after it (DeepSpeed reuses buffers)
        return (x, place.expand_as(ids).contiguous()) if self.positions else x


class Block(nn.Module):
    """Causal self-attention and an MLP, each on a residual: (b, t, c) -> (b, t, c)."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # (b, h, t, c/h)
        dropout = self.dropout if self.training else 0.0
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return self.mix(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> Any:
        rest = ()
        if isinstance(x, tuple):
            x, *rest = x  # type: ignore[assignment]
        x = x + self.attend(self.norm1(x))
        x = x + self.down(fn.gelu(self.up(self.norm2(x))))
        return (x, *rest) if rest else x


class Head(nn.Module):
    """(b, t, c) -> scores of the next byte (b, t, v); `extra` blocks' worth of work before it."""

    def __init__(self, width: int, extra: float = 0, tied: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        # A block multiplies with 12 c^2 weights; this detour with 2 * c * inner
        inner = round(6 * width * extra)
        self.up = nn.Linear(width, inner) if inner else None
        self.down = nn.Linear(inner, width) if inner else None
        self.out = None if tied else nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, given: Tensor | tuple[Tensor, ...]) -> Tensor:
        x: Tensor = self.norm(given[0] if isinstance(given, tuple) else given)
        if self.up is not None and self.down is not None:
            x = x + self.down(fn.gelu(self.up(x)))
        return self.out(x) if self.out is not None else x


def scores_of_tied(embedding: Embedding, x: Tensor) -> Tensor:
    """The head that reuses the embedding's weights: (b, t, c) -> (b, t, v)."""
    return fn.linear(x, embedding.weight)


def next_byte_loss(scores: Tensor, ids: Tensor) -> Tensor:
    """Mean cross entropy of the next byte: (b, t, v) and (b, t) -> scalar, in float32."""
    return fn.cross_entropy(scores.float().flatten(0, 1), ids.flatten())


def layers(settings: dict[str, Any], part: int = 0, parts: int = 1) -> list[LayerSpec]:
    """Embedding, blocks, head as LayerSpecs; of the blocks part `part` of `parts`."""
    width = settings["width"]
    tied, positions = settings.get("tied", False), settings.get("positions", False)
    about = (width, settings["heads"], settings.get("dropout", 0.0))
    block = LayerSpec(Block, *about)
    if parts > 1:
        from pplab.runtime.nets.tensor import TensorBlock  # which builds on Block

        block = LayerSpec(TensorBlock, *about, part, parts)
    blocks = [block] * settings["layers"]
    head = LayerSpec(Head, width, settings.get("head", 0), tied)
    if not tied:
        return [LayerSpec(Embedding, width, positions), *blocks, head]
    first = TiedLayerSpec("bytes", Embedding, width, positions)
    last = TiedLayerSpec("bytes", Embedding, width, positions, forward_fn=scores_of_tied)
    return [first, *blocks, head, last]
