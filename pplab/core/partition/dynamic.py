"""The best cut when slices differ: dynamic programming over (slice, end), exact for any costs.

Speeds, message times at the cuts, memory caps and forbidden cuts all make the cost of a slice
depend on which slice it is and where it starts and ends. Then filling slices greedily is no longer
right (a slow stage may have to be kept away from a huge layer), but this is:

    best[s][j] = min over i < j of max(best[s - 1][i], cost(s, i, j))

with infinity for what is not allowed. Work P n^2 in arrays: 200 layers x 8 stages take about 5 ms,
1,000 x 64 half a second to a second; memory n^2.

With message times the cost of a slice is its load plus the message times of its two cuts. Why: in
1F1B the neighbouring stages s..e form a ring that carries e - s + 1 micro-batches at a time and
takes (their loads + 2 x the messages between them), so in the long run a micro-batch takes

    max over s <= e of (loads of s..e + 2 x messages between them) / (e - s + 1)

(tested against the simulator), which is never more than the largest load + its two messages.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition.problem import Problem

Floats = NDArray[np.float64]

#: Cost of a slice by start and end; shape (n + 1, n + 1), infinite where it may not be.
SliceCost = Callable[[int], Floats]


def slice_costs(problem: Problem, *, keep_caps: bool = True) -> SliceCost:
    """Cost of slice s from i to j: its load plus the messages at its two cuts.

    Infinite where i >= j, where a cut would part tied layers, and (with one slice a rank) where
    memory does not suffice. With several chunks a rank, memory depends on all its slices: it is
    left to the search.
    """
    kept: dict[tuple, Floats] = {}
    spans = problem.prefix[None, :] - problem.prefix[:, None]
    allowed = _allowed(problem)
    caps = keep_caps and problem.capped and problem.slices == problem.ranks
    need = memory_needs(problem) if caps else None

    def cost(s: int) -> Floats:
        key: tuple = (problem.speed[s], *map(bytes, problem.cut_times[s : s + 2]))
        if need:
            key += (problem.caps[s], problem.in_flight[s].max())
        if key not in kept:
            table = spans / problem.speed[s]
            table = table + problem.cut_times[s][:, None] + problem.cut_times[s + 1][None, :]
            table[~allowed] = np.inf
            if need:
                table[need(s) > 1] = np.inf
            kept[key] = table
        return kept[key]

    return cost


def memory_needs(problem: Problem) -> SliceCost:
    """Memory of rank s with layers i..j as a part of its cap; one slice a rank only."""
    static, activations = (np.subtract.outer(x, x).T for x in problem.byte_sums)
    for key, numbers in problem.profile.tied.items():
        for a, b in pairwise(numbers):
            static[: a + 1, b + 1 :] -= problem.shared[key]  # a slice with both holds it once
    allowed = _allowed(problem)

    def need(s: int) -> Floats:
        table = (static + problem.in_flight[s].max() * activations) / problem.caps[s]
        table[~allowed] = np.inf
        return table

    return need


def _allowed(problem: Problem) -> NDArray[np.bool_]:
    n = problem.layers
    may = problem.may_cut
    return np.triu(np.ones((n + 1, n + 1), dtype=bool), 1) & may[:, None] & may[None, :]


def least_worst(cost: SliceCost, parts: int, layers: int) -> tuple[float, tuple[int, ...]] | None:
    """The least possible largest cost and a cut that has it; None when nothing is allowed.

    Among the cuts with that largest cost the one with the least sum of squares is taken.
    """
    best, _ = _table(cost, parts, layers, np.maximum)
    value = float(best)
    if not np.isfinite(value):
        return None

    def squares(s: int) -> Floats:
        table = cost(s)
        return np.where(table <= value, np.square(table / (value or 1.0)), np.inf)

    _, starts = _table(squares, parts, layers, np.add)
    bounds = [layers]
    for start in reversed(starts):
        bounds.append(int(start[bounds[-1]]))
    return value, tuple(bounds[::-1])


def _table(
    cost: SliceCost, parts: int, layers: int, join: Callable[..., Floats]
) -> tuple[float, list[NDArray[np.int64]]]:
    """best[parts][n] under `join`, and where the last slice starts, by slice and end."""
    best = np.full(layers + 1, np.inf)
    best[0] = 0.0
    columns = np.arange(layers + 1)
    starts = []
    for s in range(parts):
        options = join(best[:, None], cost(s))
        start = np.argmin(options, axis=0)
        best = options[start, columns]
        starts.append(start)
    return best[layers], starts
