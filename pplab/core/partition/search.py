"""The cut with the least step time: try all when they are few, else walk downhill from good ones.

The largest stage is not the whole story. With M micro-batches a slow *last* stage costs its excess
M - 1 times, a slow *first* one overlaps part of it with the warm-up; messages and memory come on
top. So the simulated step itself is what is minimised here:

- up to `TRY_ALL` cuts: every one is simulated, the answer is the best there is;
- more: from several starts, take the best of all small moves (one cut by 1, 2, 4, 8 layers; two
  cuts by one layer each; a run of neighbouring cuts by one layer together) until none helps. With
  several chunks a rank, where this is often not the best, shake the result a little and walk again,
  `KICKS` times. That ends in a local optimum; ``certify`` says how far from the best at most.

Cuts that break a rule (memory, ties) come after all that keep it, ordered by how badly they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition.cuts import count_cuts, every_cut
from pplab.core.partition.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Cuts that are simulated one and all, times operations of the schedule (about half a second).
TRY_ALL = 20_000_000
#: Where a walk gives up: cuts times operations simulated (about two seconds).
BUDGET = 60_000_000
#: Shaken restarts with several chunks a rank.
KICKS = 30
#: Up to this many cuts all moves are tried; with more, only those by 1 or 2 and of 1 or 2 cuts.
MANY = 16


@dataclass(frozen=True)
class Found:
    """A cut, its step time, how far it is from keeping the rules (0: it does), and whether it is
    known to be the best of all."""

    bounds: tuple[int, ...]
    step: float
    excess: float
    best: bool

    @property
    def rank(self) -> tuple[float, float, tuple[int, ...]]:
        """What decides between two cuts: rules first, then the step time."""
        return self.excess, self.step, self.bounds


def few(problem: Problem) -> bool:
    """Whether all cuts can be simulated."""
    operations = len(problem.schedule.graph.order)
    return count_cuts(problem.layers, problem.slices) * operations <= TRY_ALL


def try_all(problem: Problem) -> Found:
    """The best of all cuts; of equal ones the even one (least sum of squared loads)."""
    found = [best_of(problem, cuts) for cuts in every_cut(problem.layers, problem.slices)]
    first = min(f.rank[:2] for f in found)
    equal = np.array([f.bounds for f in found if f.rank[:2] == first])
    return replace(best_of(problem, equal), best=True)


def best_of(problem: Problem, cuts: Ints) -> Found:
    """The best of some cuts, shape (K, slices + 1)."""
    excess = problem.excess(cuts)
    near = np.flatnonzero(excess == excess.min())
    steps = problem.steps(cuts[near])
    near = near[steps == steps.min()]
    if len(near) > 1:
        near = near[[np.argmin(np.square(problem.loads(cuts[near])).sum(axis=0))]]
    bounds = tuple(int(b) for b in cuts[near[0]])
    return Found(bounds, float(steps.min()), float(excess.min()), False)


def descend(problem: Problem, starts: Iterable[tuple[int, ...]]) -> Found:
    """The best local optimum reached from any of the starts, within the budget."""
    best: Found | None = None
    seen: set[tuple[int, ...]] = set()
    left = BUDGET
    chance = np.random.default_rng(0)
    waiting = list(starts)
    kicks = KICKS if problem.slices > problem.ranks else 0
    while waiting or (best and kicks and left > 0):
        if waiting:
            start = waiting.pop(0)
        elif best:
            start, kicks = kicked(best.bounds, chance), kicks - 1
        here = best_of(problem, np.array([start]))
        while left > 0 and here.bounds not in seen:
            seen.add(here.bounds)
            moves = neighbours(here.bounds)
            if not len(moves):
                break
            there = best_of(problem, moves)
            left -= len(moves) * len(problem.schedule.graph.order)
            if there.rank[:2] >= here.rank[:2]:
                break
            here = there
        if best is None or here.rank < best.rank:
            best = here
    if best is None:
        raise ValueError("a search needs a cut to start from")
    return best


def kicked(bounds: tuple[int, ...], chance: np.random.Generator) -> tuple[int, ...]:
    """The cut with every place moved by up to two layers at random, all slices non-empty."""
    n, parts = bounds[-1], len(bounds) - 1
    moved = np.array(bounds[1:-1]) + chance.integers(-2, 3, parts - 1)
    moved = np.sort(np.clip(moved, 1, max(1, n - 1)))
    # push equal places apart: first to the right, then back from the right end
    moved = np.maximum.accumulate(moved - np.arange(parts - 1)) + np.arange(parts - 1)
    moved = np.minimum(moved, n - parts + 1 + np.arange(parts - 1))
    return (0, *(int(b) for b in moved), n)


def neighbours(bounds: tuple[int, ...]) -> Ints:
    """Cuts one move away, all slices non-empty; shape (K, slices + 1)."""
    here = np.array(bounds)
    cuts = len(here) - 2
    moves = []
    many = cuts > MANY
    for length in range(1, (2 if many else cuts) + 1):
        sizes = (1,) if length > 1 else (1, 2) if many else (1, 2, 4, 8)
        for first in range(1, cuts - length + 2):
            for size in sizes:
                for by in (-size, size):
                    move = here.copy()
                    move[first : first + length] += by
                    moves.append(move)
    if not many:
        for a, b in combinations(range(1, cuts + 1), 2):
            for by_a, by_b in product((-1, 1), repeat=2):
                move = here.copy()
                move[a] += by_a
                move[b] += by_b
                moves.append(move)
    table = np.array(moves, dtype=np.int64).reshape(len(moves), len(here))
    return table[np.all(np.diff(table, axis=1) > 0, axis=1)]
