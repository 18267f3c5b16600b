"""How good can a cut be at best? Bounds that hold for every cut, and proofs that use them.

In any schedule with one slice a rank, let stage s hold the layers i..j, with F and B the forward
and backward work of layers, B' the part of B before its weight gradients (B itself, unless W is
split off). Its first operation waits for F of the stages before it, and after its last B the
gradient still walks up through them. So, with messages on top,

    step >= F(0..i) + M (F + B')(i..j) + B'(0..i)           and  >= F(0..i) + M (F + B)(i..j).

Say rank s runs w forwards before its first B, and that B belongs to its k-th forward. It waits for
the way down and up again; what is left to do follows it:

    step >= F(0..i) + k F(i..j) + (F + B')(j..n) + (M - w) F(i..j) + M B'(i..j) + B'(0..i)

(or with M B(i..j) and no walk up). For 1F1B, w = k = min(P - s, M): everything once, plus M - 1
backwards and M - w forwards of stage s. That is why an excess on the first stage, with w = P,
costs less than one on the last, with w = 1.

Each is a cost of (s, i, j), so ``dynamic`` finds the least possible largest one: no cut at all
has a shorter step. If the cuts whose bounds lie below a known step are few, simulating them
settles it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition.cluster import Links
from pplab.core.partition.cuts import prefix_sums
from pplab.core.partition.dynamic import SliceCost, least_worst, slice_costs
from pplab.core.partition.problem import Problem
from pplab.core.partition.search import Found, best_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Bounds and simulated steps add the same numbers in another order: they agree to this part.
ROUNDING = 1e-9
#: Cuts simulated at most, times operations of the schedule, to settle which one is best.
SETTLE = 20_000_000
#: The tables of a proof hold slices x layers^2 numbers: above this only ``quick_bound`` is taken.
LARGEST = 10_000_000


@dataclass(frozen=True)
class Certificate:
    """What is known about the least step time: `found` is the best cut known, no cut beats `bound`.

    `tried` is how many cuts had to be simulated to settle it (0: the bound alone did).
    """

    found: Found
    bound: float
    tried: int = 0

    @property
    def proven(self) -> bool:
        """True when no cut is better (to one part in 10^9)."""
        return self.found.best

    @property
    def gap(self) -> float:
        """How much shorter the step could be at most, as a part of it."""
        return 0.0 if self.found.best else max(0.0, 1 - self.bound / self.found.step)


def certify(problem: Problem, found: Found) -> Certificate:
    """Bound the least step time from below; settle it when few cuts remain that could be better."""
    if problem.slices != problem.ranks or found.excess:
        bound = busiest(problem)
        return Certificate(_settled(found, bound), bound)
    if problem.slices * problem.layers**2 > LARGEST:
        bound = quick_bound(problem)
        return Certificate(_settled(found, bound), bound)
    lower = lower_bounds(problem)
    tables = [lower(s) for s in range(problem.slices)]
    least = least_worst(tables.__getitem__, problem.slices, problem.layers)
    bound = max(least[0] if least else 0.0, busiest(problem))
    if bound >= found.step * (1 - ROUNDING):
        return Certificate(_settled(found, bound), bound)
    better = [table < found.step * (1 - ROUNDING) for table in tables]
    limit = SETTLE // len(problem.schedule.graph.order)
    reach = _ways_to_end(better)
    if reach[0][0] > limit:
        return Certificate(found, bound)
    tried = 0
    for cuts in _all_of(better, reach):
        tried += len(cuts)
        candidate = best_of(problem, cuts)
        if candidate.rank < found.rank:
            found = candidate
    return Certificate(replace(found, best=True), found.step, tried)


def busiest(problem: Problem) -> float:
    """The plainest bound: all work spread over all devices without a gap, or one micro-batch."""
    total, speeds = problem.prefix[-1], np.array([d.speed for d in problem.devices])
    spread = problem.schedule.micro_batches * total / speeds.sum()
    return float(max(spread, problem.profile.forward.sum() / speeds.max()))


def _settled(found: Found, bound: float) -> Found:
    best = not found.excess and bound >= found.step * (1 - ROUNDING)
    return replace(found, best=found.best or best)


def lower_bounds(problem: Problem) -> SliceCost:
    """Lower bounds of the step by (slice, start, end), see above; one slice a rank.

    Infinite where the rules (memory, ties) do not allow the slice.
    """
    costs = slice_costs(problem)

    def lower(s: int) -> Floats:
        bound = np.full((problem.layers + 1, problem.layers + 1), -np.inf)
        for at_start, at_end in terms(problem, s):
            np.maximum(bound, at_start[:, None] + at_end[None, :], out=bound)
        return np.where(np.isfinite(costs(s)), bound, np.inf)

    return lower


def terms(problem: Problem, s: int, *, monotone: bool = False) -> list[tuple[Floats, Floats]]:
    """The bounds for slice s as pairs (a, b), shape (n + 1,) each: step >= a[i] + b[j].

    Other stages count at the speed of the fastest device on their side, and cuts whose place is
    not known with the cheapest message there could be. `monotone` counts the stage's own device
    among those of each side: a little lower, but then a falls and b grows from layer to layer.
    """
    M, P = problem.schedule.micro_batches, problem.ranks
    f, b = prefix_sums(problem.profile.forward), prefix_sums(problem.profile.backward)
    split = np.array([any(op.kind == "W" for op in row) for row in problem.schedule.ops])
    kept = np.where(split, 0.5, 1.0)  # the part of B that is B'
    message = problem.cut_times
    least = message[:, 1:-1].min(axis=1) if problem.layers > 1 else message[:, 0]
    speed = problem.speed
    above, below = slice(0, s + monotone), slice(s + (not monotone), P)
    before, after = (speed[side].max(initial=0.0) or 1.0 for side in (above, below))
    walk = least[1:s].sum() + message[s]
    up_f, up_b = f / before + walk, b * kept[above].min(initial=1.0) / before + walk
    down = ((f[-1] - f) + (b[-1] - b) * kept[below].min(initial=1.0)) / after
    down = down + 2 * (message[s + 1] + least[s + 2 : P].sum())
    w, k = _warm_up(problem.schedule.ops[s])
    f, b = f / speed[s], b / speed[s]
    trip = k + M - w
    return [
        (up_f - M * f + up_b - M * kept[s] * b, M * f + M * kept[s] * b),
        (up_f - M * f - M * b, M * f + M * b),
        (up_f - trip * f + up_b - M * kept[s] * b, trip * f + down + M * kept[s] * b),
        (up_f - trip * f - M * b, trip * f + down + M * b),
    ]


def quick_bound(problem: Problem) -> float:
    """The same bounds without tables of layers^2: messages and rules left out, empty slices let in.

    All of that only lowers the bound. Each term then grows with the end of the slice and falls with
    its start, so filling slices greedily answers whether a step of at most T can be; the largest T
    found to be impossible is returned.
    """
    bare = replace(problem, links=Links(), keep_tied=False)
    if problem.slices * problem.layers > LARGEST // 10:
        return busiest(problem)
    rows = [terms(bare, s, monotone=True) for s in range(problem.slices)]

    def possible(limit: float) -> bool:
        end = 0
        for row in rows:
            reach = min(b.searchsorted(limit - a[end], "right") for a, b in row) - 1
            end = max(end, int(reach))
        return end >= problem.layers

    low = busiest(problem)
    if possible(low):
        return low
    high = 2 * low
    while not possible(high):
        low, high = high, 2 * high
    while high - low > 1e-4 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return low


def _warm_up(ops: tuple) -> tuple[int, int]:
    """Forwards before the first backward of a rank, and the place of that one's own among them."""
    forwards: list[int] = []
    for op in ops:
        if op.kind == "F":
            forwards.append(op.micro_batch)
        elif op.kind == "B":
            return len(forwards), forwards.index(op.micro_batch) + 1
    return len(forwards), len(forwards)


def _ways_to_end(allowed: list[NDArray[np.bool_]]) -> list[Floats]:
    """How many ways lead from each start of slice s to the end; (slices + 1) x (n + 1,)."""
    ways = [np.zeros(allowed[0].shape[0])]
    ways[0][-1] = 1.0
    for table in reversed(allowed):
        ways.append(table @ ways[-1])
    return ways[::-1]


def _all_of(allowed: list[NDArray[np.bool_]], ways: list[Floats]) -> Iterator[Ints]:
    """All cuts whose slices are allowed, in arrays of up to 20,000."""
    if not ways[0][0]:
        return
    stack = [np.zeros((1, 1), dtype=np.int64)]
    while stack:
        part = stack.pop()
        s = part.shape[1] - 1
        if s == len(allowed):
            yield part
            continue
        options = allowed[s][part[:, -1]] & (ways[s + 1] > 0)[None, :]
        row, end = np.nonzero(options)
        longer = np.concatenate([part[row], end[:, None]], axis=1)
        stack += [longer[a : a + 20_000] for a in range(0, len(longer), 20_000)]
