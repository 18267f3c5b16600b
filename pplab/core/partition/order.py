"""Which device on which rank, when that is free: a mix of fast and slow ones.

For the largest stage alone, with free messages, an exact answer for any mix of a few *kinds* of
devices: dynamic programming over how many of each kind are used (4 fast and 4 slow make 25 states,
not 70 orders; 8 different ones 256, not 40,320).

For anything else every distinct order is solved, up to a limit; beyond it the search goes downhill
from a few good orders by swapping two devices. `Ordering.all` says which of the two it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import factorial, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition.cluster import Device
from pplab.core.partition.dynamic import SliceCost, slice_costs
from pplab.core.partition.problem import Problem

Floats = NDArray[np.float64]

#: Work (states x kinds x layers^2) up to which the exact answer is computed (seconds at most).
LARGEST = 1_000_000_000


@dataclass(frozen=True)
class Ordering:
    """The devices by rank (`order[r]` = which of the given devices), what `solve` said about them,
    and whether every distinct order was considered."""

    order: tuple[int, ...]
    answer: Any
    all: bool


def count_orders(devices: tuple[Device, ...]) -> int:
    """Distinct orders of some devices: equal ones are not told apart (names are no difference)."""
    kinds = Counter(map(_kind, devices))
    return factorial(len(devices)) // prod(map(factorial, kinds.values()))


def every_order(devices: tuple[Device, ...]) -> Iterator[tuple[int, ...]]:
    """All distinct orders, as numbers of the given devices; equal ones keep their order."""
    pools: dict[tuple, list[int]] = {}
    for number, device in enumerate(devices):
        pools.setdefault(_kind(device), []).append(number)
    kinds = list(pools)

    def grow(used: tuple[int, ...], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(devices):
            yield chosen
            return
        for k, kind in enumerate(kinds):
            if used[k] < len(pools[kind]):
                more = (*used[:k], used[k] + 1, *used[k + 1 :])
                yield from grow(more, (*chosen, pools[kind][used[k]]))

    return grow((0,) * len(kinds), ())


def best_order(
    problem: Problem, solve: Callable[[Problem], Any], limit: int, start: tuple[int, ...] | None
) -> Ordering:
    """The order with the least ``solve(reordered problem)`` (answers must compare).

    All orders up to `limit`; beyond it, downhill by swaps from `start`, the given order, and the
    slowest and the fastest devices first. No order is better than the given one without reason:
    it wins ties.
    """
    own = tuple(range(problem.ranks))
    if count_orders(problem.devices) <= limit:
        orders = sorted(every_order(problem.devices), key=lambda order: order != own)
        answers = [solve(problem.reordered(order)) for order in orders]
        best = min(range(len(orders)), key=answers.__getitem__)
        return Ordering(orders[best], answers[best], True)
    slow_first = tuple(sorted(own, key=lambda i: problem.devices[i].speed))
    found: list[Ordering] = []
    for order in dict.fromkeys([own, *([start] if start else []), slow_first, slow_first[::-1]]):
        found.append(_swap_downhill(problem, solve, order))
    return min(found, key=lambda ordering: ordering.answer)


def _swap_downhill(
    problem: Problem, solve: Callable[[Problem], Any], order: tuple[int, ...]
) -> Ordering:
    here = Ordering(order, solve(problem.reordered(order)), False)
    better = True
    while better:
        better = False
        for a, b in combinations(range(problem.ranks), 2):
            order = here.order
            if _kind(problem.devices[order[a]]) == _kind(problem.devices[order[b]]):
                continue
            swapped = list(order)
            swapped[a], swapped[b] = order[b], order[a]
            answer = solve(problem.reordered(tuple(swapped)))
            if answer < here.answer:
                here, better = Ordering(tuple(swapped), answer, False), True
    return here


def _kind(device: Device) -> tuple:
    return device.speed, device.memory, device.node


# -- exact for the largest stage ----------------------------------------------------------------


def least_worst_order(problem: Problem) -> Ordering | None:
    """The order and the largest stage when only loads, caps and ties matter; one slice a rank.

    `answer` is the least possible largest stage, infinite when nothing fits in any order. None when
    messages cost something (then the neighbours matter too) or the work is too large.
    """
    loose = replace(problem, devices=tuple(replace(d, node=0) for d in problem.devices))
    pools: dict[tuple, list[int]] = {}
    for number, device in enumerate(loose.devices):
        pools.setdefault(_kind(device), []).append(number)
    kinds = list(pools.values())
    sizes = [len(pool) for pool in kinds]
    work = prod(size + 1 for size in sizes) * len(kinds) * problem.layers**2
    if not problem.links.free or problem.slices != problem.ranks or work > LARGEST:
        return None
    costs = [_all_alike(loose, pool[0]) for pool in kinds]
    columns = np.arange(problem.layers + 1)
    start = np.full(problem.layers + 1, np.inf)
    start[0] = 0.0
    best: dict[tuple[int, ...], Floats] = {(0,) * len(kinds): start}
    last: dict[tuple[int, ...], NDArray[np.int64]] = {}
    came: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for state in sorted(product(*(range(size + 1) for size in sizes)), key=sum):
        for k, used in enumerate(state):
            if not used:
                continue
            before = (*state[:k], used - 1, *state[k + 1 :])
            options = np.maximum(best[before][:, None], costs[k](sum(before)))
            begin = np.argmin(options, axis=0)
            value = options[begin, columns]
            if state not in best:
                best[state] = np.full(problem.layers + 1, np.inf)
                last[state], came[state] = np.zeros_like(columns), np.zeros_like(columns)
            better = value < best[state]
            best[state][better] = value[better]
            last[state][better], came[state][better] = k, begin[better]
    state, end, order = tuple(sizes), problem.layers, []
    value = float(best[state][end])
    if not np.isfinite(value):
        return Ordering(tuple(range(problem.ranks)), value, True)
    while sum(state):
        k = int(last[state][end])
        order.append(kinds[k][state[k] - 1])
        end, state = int(came[state][end]), (*state[:k], state[k] - 1, *state[k + 1 :])
    return Ordering(tuple(order[::-1]), value, True)


def _all_alike(problem: Problem, device: int) -> SliceCost:
    """Slice costs if every rank had this device."""
    return slice_costs(problem.reordered((device,) * problem.ranks))
