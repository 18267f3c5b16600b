"""The best cut when only the slowest stage counts: minimise the largest load, exactly.

Ask "can P slices of at most T each hold the layers?" and let each slice take as many layers as
fit: that greedy answer is right, because a slice that reaches farther leaves less for the rest.
Finding the smallest such T by plain bisection would stop near the optimum. Two facts make it exact
and short (parametric search; Han, Narahari and Choi, Information Processing Letters 43, 1992):

- a "yes" gives a cut, and its largest load, a value that is reached, is the new upper end;
- a "no" stays a "no" until T is large enough for some slice to take one more layer: the smallest of
  those loads is the new lower end.

When the ends meet, that value is the optimum: no rounding is involved beyond that of the loads
themselves, which are differences of prefix sums (monotone, as rounded sums of costs >= 0 are).
A question costs P binary searches; about 10-25 questions are asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from pplab.core.partition.cuts import check_costs, check_parts, prefix_sums


def minimax(costs: ArrayLike, parts: int) -> tuple[int, ...]:
    """Bounds of a cut into `parts` non-empty slices whose largest load is the least possible.

    Among the optimal cuts it takes an even one: from the first slice on, each ends as near as it
    may to an equal share of what is left. (That is a rule, not a proven second optimum.)
    Raises PartitionError when there are fewer layers than parts or a cost is not valid.
    """
    array = check_costs(costs)
    check_parts(len(array), parts)
    prefix = prefix_sums(array).tolist()
    return even(prefix, parts, least_bound(prefix, parts))


def least_maximum(costs: ArrayLike, parts: int) -> float:
    """The least possible largest load of `parts` non-empty slices."""
    array = check_costs(costs)
    check_parts(len(array), parts)
    return least_bound(prefix_sums(array).tolist(), parts)


def least_bound(prefix: list[float], parts: int) -> float:
    """``least_maximum`` from prefix sums (n + 1 floats, n >= parts)."""
    sums = np.asarray(prefix)
    largest = float(np.max(np.diff(sums)))
    # No cut gets below the largest layer, nor below an equal share of the total. The share is
    # lowered by more than rounding can raise it, so that both are true bounds of the loads.
    low = max(largest, prefix[-1] / parts * (1 - 1e-9))
    reached, needed = _ask(prefix, parts, low)
    if reached is not None:
        return reached
    low, high = needed, prefix[-1]
    while low < high:
        middle = low + (high - low) / 2
        if not low <= middle < high:
            middle = low
        reached, needed = _ask(prefix, parts, middle)
        if reached is not None:
            high = reached
        else:
            low = needed
    return high


def _ask(prefix: list[float], parts: int, limit: float) -> tuple[float | None, float]:
    """Do `parts` slices of at most `limit` hold everything? (largest load or None, next limit)."""
    end, last, here = 0, len(prefix) - 1, 0.0
    most, needed = 0.0, inf
    for _ in range(parts):
        start, end = end, reach(prefix, end, limit)
        load = prefix[end] - here
        if load > most:
            most = load
        if end == last:
            return most, limit
        here = prefix[end]
        more = prefix[end + 1] - prefix[start]
        if more < needed:
            needed = more
    return None, needed


def reach(prefix: list[float], start: int, limit: float) -> int:
    """Farthest end of a slice from `start` whose load is at most `limit` (exact, see below).

    ``prefix[start] + limit`` is rounded, ``prefix[end] - prefix[start]`` is what counts: the place
    found by bisection may be off by a few equal or neighbouring sums, and is put right.
    """
    here, last = prefix[start], len(prefix) - 1
    end = bisect_right(prefix, here + limit, start) - 1
    while end < last and prefix[end + 1] - here <= limit:
        end = bisect_right(prefix, prefix[end + 1], end + 1) - 1
    while prefix[end] - here > limit:
        end -= 1
    return end


def even(prefix: list[float], parts: int, limit: float) -> tuple[int, ...]:
    """A cut with no load above `limit` (which must be reachable) and slices as even as may be.

    The earliest place of every cut comes from filling slices from the back; going forward, each
    cut then stands as near as it may to an equal share of what is left.
    """
    last = len(prefix) - 1
    earliest = [last] * (parts + 1)
    for s in range(parts - 1, 0, -1):
        earliest[s] = max(s, back(prefix, earliest[s + 1], limit))
    bounds = [0]
    for s in range(1, parts):
        start = bounds[-1]
        share = prefix[start] + (prefix[-1] - prefix[start]) / (parts - s + 1)
        after = bisect_right(prefix, share, start)
        near = after if share - prefix[after - 1] > prefix[min(after, last)] - share else after - 1
        lowest = max(start + 1, earliest[s])
        highest = min(last - parts + s, reach(prefix, start, limit))
        bounds.append(min(max(near, lowest), highest))
    return (*bounds, last)


def back(prefix: list[float], end: int, limit: float) -> int:
    """Earliest start of a slice that ends at `end` and whose load is at most `limit`."""
    there = prefix[end]
    start = bisect_left(prefix, there - limit, 0, end)
    while start > 0 and there - prefix[start - 1] <= limit:
        start -= 1
    while there - prefix[start] > limit:
        start += 1
    return start
