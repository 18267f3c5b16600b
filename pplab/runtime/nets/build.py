"""From a model description to layers, loss and data, the same on every rank."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pplab.runtime.job import Job
from pplab.runtime.nets import batches, gpt, paced


@dataclass(frozen=True)
class Network:
    """Layers (LayerSpec, nn.Module or function), a loss (outputs, labels) -> scalar, and
    micro-batch k as a function of k."""

    layers: list[Any]
    loss: Callable[..., Any]
    batch: Callable[[int], batches.Batch]
    bounds: tuple[int, ...]


def build(job: Job) -> Network:
    """The network of a job; raises ValueError when it has fewer layers than stages."""
    settings, size, seed = job.model.settings, job.micro_batch_size, job.seed
    if job.model.family == "gpt":
        layers = gpt.layers(settings)
        loss: Callable[..., Any] = gpt.next_byte_loss
        batch = batches.text_batches(size, settings["context"], seed)
        ends = (1, len(layers) - 1 - settings["layers"])  # embedding; head
    elif job.model.family == "paced":
        layers = paced.layers(settings, job.stages)
        loss, batch = paced.distance, batches.random_batches(size, settings["width"], seed)
        ends = (0, 0)
    else:
        given = job.model.payload
        set_seed(base_seed(job) - 1)  # modules made by the learner's function, alike on all ranks
        layers = list(given["layers"]() if callable(given["layers"]) else given["layers"])
        loss, batch = given["loss"] or paced.distance, batches.own_batches(given["data"], size)
        ends = (0, 0)
    if job.bounds and job.bounds[-1] != len(layers):
        raise ValueError(f"bounds end at {job.bounds[-1]}, but the model has {len(layers)} layers")
    if len(layers) < job.stages:
        raise ValueError(
            f"{len(layers)} layers cannot fill {job.stages} stages; DeepSpeed would leave the last "
            "stages empty and fail with 'optimizer got an empty parameter list'"
        )
    return Network(layers, loss, batch, job.bounds or equal_bounds(len(layers), job.stages, ends))


def equal_bounds(layers: int, stages: int, ends: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    """Stages of equal layer count. `ends` layers at the front and back (embedding, head) do not
    count: they go along with their neighbours, when there are enough others."""
    front, back = ends if layers - sum(ends) >= stages else (0, 0)
    inner = layers - front - back
    cuts = [front + (inner * s) // stages for s in range(stages + 1)]
    return (0, *cuts[1:-1], layers)


def set_seed(value: Any) -> None:
    """Seed every generator a layer may draw from.

    DeepSpeed calls this before every layer of every forward pass (``seed_layers``). Its own default
    ends in ``torch.manual_seed``, which, as long as CUDA is not in use, formats a stack trace for
    each accelerator it knows: 2 ms a layer, measured. ints only: Python refuses numpy's.
    """
    seed = int(value)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def base_seed(job: Job) -> int:
    """Layer i is initialised from seed `base_seed + i`, whatever the number of stages."""
    return 10_000 * (job.seed + 1)
