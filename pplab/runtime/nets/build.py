"""From a model description to layers, loss and data, the same on every rank."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from deepspeed.pipe import TiedLayerSpec

from pplab.core.schedule import Schedule
from pplab.core.schedules.weights import updates_midway
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


def build(job: Job, part: int = 0) -> Network:
    """The network of a job, of its blocks the tensor part `part`; raises ValueError when it has
    fewer layers than slices."""
    settings, size, seed = job.model.settings, job.micro_batch_size, job.seed
    if job.model.family == "gpt":
        layers = gpt.layers(settings, part, job.tensor)
        loss: Callable[..., Any] = gpt.next_byte_loss
        batch = batches.text_batches(size, settings["context"], seed)
        ends = (1, len(layers) - 1 - settings["layers"])  # embedding; head
    elif job.model.family == "paced":
        layers = paced.layers(settings, job.slices)
        if job.speeds:
            cut = job.bounds or equal_bounds(len(layers), job.slices)
            layers = paced.at_speeds(layers, cut, job.layout, job.speeds)
        loss, batch = paced.distance, batches.random_batches(size, settings["width"], seed)
        ends = (0, 0)
    else:
        given = job.model.payload
        set_seed(base_seed(job) - 1)  # modules made by the learner's function, alike on all ranks
        layers = list(given["layers"]() if callable(given["layers"]) else given["layers"])
        loss = checked(given["loss"]) if given["loss"] else paced.distance
        batch = batches.own_batches(given["data"], size)
        ends = (0, 0)
    if job.bounds and job.bounds[-1] != len(layers):
        raise ValueError(f"bounds end at {job.bounds[-1]}, but the model has {len(layers)} layers")
    if len(layers) < job.slices:
        raise ValueError(
            f"{len(layers)} layers cannot fill {job.slices} "
            f"{'stages' if job.slices == job.stages else 'slices'}; DeepSpeed would leave the last "
            "ones empty and fail with 'optimizer got an empty parameter list'"
        )
    bounds = job.bounds or equal_bounds(len(layers), job.slices, ends)
    network = Network(layers, loss, batch, bounds)
    if job.schedule is not None and updates_midway(job.schedule):
        _no_ties_between_ranks(network, job.schedule)
    return network


def checked(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A learner's loss function, that says so when what it gives is no loss to start from."""

    def one_number(outputs: Any, labels: Any) -> Any:
        found = loss(outputs, labels)
        if not isinstance(found, torch.Tensor):
            kind = type(found).__name__
            raise TypeError(f"the loss function must return a tensor, not {kind}")
        if found.numel() != 1:
            shape = tuple(found.shape)
            raise ValueError(f"the loss must be one number, not a tensor of shape {shape}")
        return found

    return one_number


def _no_ties_between_ranks(network: Network, schedule: Schedule) -> None:
    """Ranks that update their weights at different times cannot keep a layer in common."""
    homes: dict[str, set[int]] = {}
    for number, spec in enumerate(network.layers):
        if isinstance(spec, TiedLayerSpec):
            piece = bisect_right(network.bounds, number) - 1
            homes.setdefault(spec.key, set()).add(schedule.layout.place_of(piece)[0])
    for key, ranks in homes.items():
        if len(ranks) > 1:
            raise ValueError(
                f"the layers tied as {key!r} are on ranks {', '.join(map(str, sorted(ranks)))}, "
                f"which {schedule.name} updates at different times: their weights would drift "
                "apart; untie them, or use a schedule that updates at the end of the step"
            )


def equal_bounds(layers: int, slices: int, ends: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    """Slices of equal layer count. `ends` layers at the front and back (embedding, head) do not
    count: they go along with their neighbours, when there are enough others."""
    front, back = ends if layers - sum(ends) >= slices else (0, 0)
    inner = layers - front - back
    cuts = [front + (inner * s) // slices for s in range(slices + 1)]
    return (0, *cuts[1:-1], layers)


def set_seed(value: Any) -> None:
    """Seed every generator a layer may draw from while it is built.

    DeepSpeed seeds again before every layer of every forward pass (``seed_layers``). Its own
    default ends in ``torch.manual_seed``, which, as long as CUDA is not in use, formats a stack
    trace for each accelerator it knows: 2 ms a layer, measured. ints only: Python refuses numpy's.
    """
    random.seed(int(value))
    np.random.seed(int(value) % 2**32)
    reseed(value)


def reseed(value: Any) -> None:
    """What DeepSpeed calls before every layer of every forward pass: torch's generators only."""
    seed = int(value)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def base_seed(job: Job) -> int:
    """Layer i is initialised from seed `base_seed + i`, whatever the number of stages."""
    return 10_000 * (job.seed + 1)
