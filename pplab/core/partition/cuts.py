"""A cut of a list of layers into contiguous slices, and what can be wrong with it.

A cut is written as *bounds*, as DeepSpeed writes it: ``[0, 3, 6, 8]`` cuts 8 layers into the slices
0-2, 3-5 and 6-7. Slices follow the order of execution: sorting layers by their cost first (as some
advice has it) would be another model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice, pairwise
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PartitionError(ValueError):
    """A cut that cannot be made or used; the message is a sentence, `reason` a code to test for."""

    def __init__(self, reason: str, sentence: str) -> None:
        self.reason = reason
        super().__init__(sentence)


def check_bounds(bounds: Sequence[int], layers: int, parts: int | None = None) -> tuple[int, ...]:
    """`bounds` as plain integers when they cut `layers` layers into non-empty slices.

    Raises PartitionError with a sentence when they do not.
    """
    try:
        plain = tuple(int(b) for b in bounds)
        whole = all(b == p for b, p in zip(bounds, plain, strict=True))
    except (TypeError, ValueError):
        whole = False
    if not whole or len(plain) < 2:
        text = f"bounds are whole numbers such as [0, 3, 6, 8], not {bounds!r}"
        raise PartitionError("not-bounds", text)
    if parts is not None and len(plain) != parts + 1:
        text = f"{len(plain)} bounds make {len(plain) - 1} slices, but {parts} are needed: "
        raise PartitionError("wrong-count", text + f"give {parts + 1} numbers, 0 and {layers} too")
    if plain[0] != 0:
        text = f"the first bound is 0 (the first layer), not {plain[0]}"
        raise PartitionError("wrong-start", text)
    if plain[-1] != layers:
        text = f"the last bound is the number of layers, {layers}, not {plain[-1]}"
        raise PartitionError("wrong-end", text)
    for s, (a, b) in enumerate(pairwise(plain)):
        if a > b:
            text = f"bounds must rise, but {b} follows {a}"
            raise PartitionError("not-rising", text)
        if a == b:
            text = f"slice {s} is empty (bounds {a} and {b}): a stage without layers cannot train"
            raise PartitionError("empty-stage", text)
    return plain


def check_parts(layers: int, parts: int) -> None:
    """Raises PartitionError unless `layers` layers can be cut into `parts` non-empty slices."""
    if parts < 1:
        raise PartitionError("no-stages", f"a model is cut into at least one slice, not {parts}")
    if layers < parts:
        text = f"{layers} layers cannot fill {parts} stages: {parts - layers} would stay empty"
        raise PartitionError("too-few-layers", text)


def check_costs(costs: ArrayLike) -> Floats:
    """Costs of the layers as floats, shape (n,); PartitionError when one is negative or not finite.

    The sum of all costs must be finite too.
    """
    array = np.asarray(costs, dtype=float)
    if array.ndim != 1:
        text = f"costs are one number a layer, not an array of shape {array.shape}"
        raise PartitionError("bad-costs", text)
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if len(bad):
        text = f"layer {bad[0]} costs {array[bad[0]]}; a cost is finite and not negative"
        raise PartitionError("bad-costs", text)
    with np.errstate(over="ignore"):
        total = array.sum()
    if not np.isfinite(total):
        raise PartitionError("bad-costs", "the sum of the costs is too large for a float")
    return array


def prefix_sums(costs: ArrayLike) -> Floats:
    """Sums of the first 0, 1, ..., n costs; shape (n + 1,). ``p[j] - p[i]`` is the load of i..j."""
    return np.concatenate(([0.0], np.cumsum(np.asarray(costs, dtype=float))))


def loads(costs: ArrayLike, bounds: Sequence[int]) -> Floats:
    """Load of each slice, as differences of prefix sums; shape (len(bounds) - 1,).

    All methods of this package compare these very numbers, so that "equal" is exact equality.
    """
    return np.diff(prefix_sums(costs)[np.asarray(bounds, dtype=np.int64)])


def uniform(layers: int, parts: int) -> tuple[int, ...]:
    """As many layers in each slice, the first ``layers % parts`` slices one more.

    The same as DeepSpeed's ``uniform`` while there are enough layers.
    """
    check_parts(layers, parts)
    size, more = divmod(layers, parts)
    return tuple(s * size + min(s, more) for s in range(parts + 1))


def count_cuts(layers: int, parts: int) -> int:
    """How many cuts into non-empty slices there are: C(n - 1, P - 1)."""
    return comb(layers - 1, parts - 1)


def every_cut(layers: int, parts: int, batch: int = 20_000) -> Iterator[Ints]:
    """All cuts into non-empty slices, in order, as arrays of shape (<= batch, parts + 1)."""
    check_parts(layers, parts)
    inner = combinations(range(1, layers), parts - 1)
    while True:
        rows = list(islice(inner, batch))
        if not rows:
            return
        cuts = np.zeros((len(rows), parts + 1), dtype=np.int64)
        cuts[:, 1:-1] = np.array(rows, dtype=np.int64).reshape(len(rows), parts - 1)
        cuts[:, -1] = layers
        yield cuts
