"""Micro-batches by number, so that the first stage (inputs) and the last (labels) always agree.

DeepSpeed reads inputs on the first stage and labels on the last from separate iterators; different
shuffles there make a run silently unlearnable. Here micro-batch k is a pure function of k.
"""

from __future__ import annotations

import functools
import itertools
import pydoc_data.topics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pplab.runtime.job import Job

Batch = tuple[Any, Any]


@functools.cache
def text_bytes() -> Tensor:
    """English text that ships with CPython (the help topics), as bytes; shape (n,), uint8."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    return torch.frombuffer(bytearray(text.encode("utf-8")), dtype=torch.uint8)


def text_batches(size: int, context: int, seed: int) -> Callable[[int], Batch]:
    """Micro-batch k: `size` random windows of `context` bytes and the bytes that follow each."""
    text = text_bytes()

    def batch(index: int) -> Batch:
        generator = torch.Generator().manual_seed(1_000_003 * seed + index)
        starts = torch.randint(len(text) - context - 1, (size,), generator=generator)
        window = text[starts[:, None] + torch.arange(context + 1)].long()  # (size, context + 1)
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()

    return batch


def random_batches(size: int, width: int, seed: int, pool: int = 64) -> Callable[[int], Batch]:
    """Micro-batch k: random vectors and a target that can be learnt; (size, width) each.

    After `pool` micro-batches they come round again, from memory: making them would show in the
    timeline of a paced run, where only the paced time should.
    """

    @functools.cache
    def made(index: int) -> Batch:
        generator = torch.Generator().manual_seed(1_000_003 * seed + index)
        x = torch.randn(size, width, generator=generator)
        return x, torch.tanh(x.roll(1, dims=1))

    return lambda index: made(index % pool)


def own_batches(data: Any, size: int) -> Callable[[int], Batch]:
    """The learner's data: a function of the index, or samples that are stacked `size` at a time."""
    if callable(data):
        return lambda index: pair(data(index))
    if not isinstance(data, Sequence) and not hasattr(data, "__getitem__"):
        raise TypeError(
            f"data is a {type(data).__name__}; give a function index -> (inputs, labels) or "
            "samples that can be indexed"
        )

    def batch(index: int) -> Batch:
        rows = [data[(index * size + i) % len(data)] for i in range(size)]
        inputs, labels = zip(*rows, strict=True)
        return torch.stack(tuple(map(torch.as_tensor, inputs))), torch.stack(
            tuple(map(torch.as_tensor, labels))
        )

    return batch


def pair(made: Any) -> Batch:
    """What a learner's data function made, if it is (inputs, labels): the rows of a single tensor
    would pass for a pair, and train something else without a word."""
    if not isinstance(made, tuple | list) or len(made) != 2:
        kind = type(made).__name__
        what = f"a {kind} of {len(made)}" if isinstance(made, tuple | list) else f"a {kind}"
        raise TypeError(f"data gives (inputs, labels) for every micro-batch, not {what}")
    inputs, labels = made
    loaded = [inputs, labels] if isinstance(labels, tuple | list) else [inputs]
    for value in loaded:  # other labels are handed to the loss as they are, None too
        items = value if isinstance(value, tuple | list) else [value]
        if not all(isinstance(item, Tensor) for item in items):
            raise TypeError(
                "the inputs and the labels of a micro-batch are a tensor or a tuple of tensors "
                f"each, not {kinds(value)}"
            )
    return inputs, labels


def kinds(value: Any) -> str:
    """What a value is, for a sentence; of a tuple or list, also what is in it."""
    kind = type(value).__name__
    if not isinstance(value, tuple | list):
        return kind
    return f"{kind} of {', '.join(type(item).__name__ for item in value)}"


def stream(batch: Callable[[int], Batch], job: Job, replica: int) -> Iterator[Batch]:
    """The micro-batches one pipeline reads, in order (see ``Job.batch_number``)."""
    for step in itertools.count():
        for m in range(job.micro_batches):
            yield batch(job.batch_number(step, m, replica))
