"""How DeepSpeed cuts a model, reproduced exactly: ``uniform``, ``parameters``, ``type:regex``.

Read in DeepSpeed 0.19.8: ``runtime/utils.py`` (``partition_uniform``, ``partition_balanced``) and
``runtime/pipe/module.py`` (``_partition_layers``). Tests compare the bounds with the installed
DeepSpeed. Two things to know:

- ``parameters`` and ``type:regex`` call a balancer that keeps, per number of layers and stages, the
  one split with the least *max - min* of the stage sums. That is neither the least max nor always
  the least max - min: [1, 4, 2, 2] on 3 stages becomes [0, 2, 3, 4] with a largest stage of 5,
  where 4 is possible.
- With no more layers than stages both leave *empty trailing stages*, and such a run dies with
  "optimizer got an empty parameter list".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pplab.core.partition.cuts import PartitionError, check_costs


def partition_uniform(layers: int, parts: int) -> tuple[int, ...]:
    """Bounds of DeepSpeed's ``uniform``; the last stages stay empty when layers <= parts."""
    if layers <= parts:
        return tuple(min(s, layers) for s in range(parts + 1))
    size, more = divmod(layers, parts)
    return tuple(s * size + min(s, more) for s in range(parts + 1))


def partition_balanced(weights: ArrayLike, parts: int) -> tuple[int, ...]:
    """Bounds of DeepSpeed's balancer, for weights of shape (n,).

    The original runs three nested loops in Python (n^2 P / 2 rounds). Here the two inner ones are
    arrays; of equally good places the last one is taken, as the original's ``>=`` does.
    Memory grows as n * P. Raises PartitionError when a weight is negative or not finite.
    """
    array = check_costs(weights)
    n = len(array)
    if n <= parts:
        return partition_uniform(n, parts)
    prefix = np.concatenate(([0.0], np.cumsum(np.asarray(weights))))
    largest = np.full((n + 1, parts + 1), np.inf)
    smallest = np.full((n + 1, parts + 1), np.inf)
    place = np.zeros((n + 1, parts + 1), dtype=np.int64)
    largest[0, 0] = 0.0
    for i in range(1, n + 1):
        stages = min(i, parts)
        last = (prefix[i] - prefix[:i])[::-1, None]  # load of the last stage, latest start first
        most = np.maximum(largest[:i, :stages][::-1], last)
        least = np.minimum(smallest[:i, :stages][::-1], last)
        best = np.argmin(most - least, axis=0)
        columns = np.arange(stages)
        place[i, 1 : stages + 1] = i - 1 - best
        largest[i, 1 : stages + 1] = most[best, columns]
        smallest[i, 1 : stages + 1] = least[best, columns]
    bounds = [n]
    for stage in range(parts, 0, -1):
        bounds.append(int(place[bounds[-1], stage]))
    return tuple(bounds[::-1])


def type_weights(kinds: Sequence[str], pattern: str) -> list[int]:
    """1 for each layer whose class name `pattern` matches (search, any case), 0 for the others.

    Raises PartitionError when no layer matches, as DeepSpeed does.
    """
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        text = f"{pattern!r} is not a regular expression: {error}"
        raise PartitionError("bad-pattern", text) from error
    weights = [int(bool(expression.search(kind))) for kind in kinds]
    if not any(weights):
        text = f"no layer type matches {pattern!r}; the types are {', '.join(sorted(set(kinds)))}"
        raise PartitionError("no-match", text)
    return weights


def partition_layers(
    method: str, parts: int, parameters: Sequence[int], kinds: Sequence[str]
) -> tuple[int, ...]:
    """Bounds that ``PipelineModule(partition_method=method)`` would use.

    parameters: trainable parameters of each layer; kinds: class name of each layer. As in
    DeepSpeed the method is lower-cased first, and what follows a second ``:`` is lost.
    Raises PartitionError for methods DeepSpeed does not have; ``profile`` is one of them: it is
    accepted by name, and then raises NotImplementedError.
    """
    name = method.lower()
    if name == "uniform":
        return partition_uniform(len(kinds), parts)
    if name == "parameters":
        return partition_balanced(parameters, parts)
    if name.startswith("type:"):
        return partition_balanced(type_weights(kinds, name.split(":")[1]), parts)
    text = f"DeepSpeed has no partition method {method!r}: uniform, parameters or type:regex"
    if name == "profile":
        text += " ('profile' only raises NotImplementedError)"
    raise PartitionError("no-such-method", text)
