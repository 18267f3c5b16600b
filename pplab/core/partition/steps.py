"""From a snippet found on the internet to an exact answer in a millisecond, in four steps.

All four give the same value, the least possible largest stage. What changes is the work:

    step                         rounds                 1,000 layers x 64 stages
    1 the snippet                n^3 P                  days
    2 prefix sums                n^2 P                  tens of seconds
    3 binary search inside       n P log n              a tenth of a second
    4 search for the answer      P log n, 10-25 times   under a millisecond

The file is for reading and measuring (``benchmarks/partition.py`` measures it); use ``minimax``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from pplab.core.partition.cuts import check_parts
from pplab.core.partition.minimax import even, least_bound


def snippet(layers: Sequence[float], num_stages: int) -> float:
    """Step 1. Dynamic programming as the article has it: right value, and three things missing.

    It adds up the same layers again and again (``sum`` in the innermost loop), says only what the
    best largest stage costs and not where to cut, and returns infinity for too few layers.
    (The article also sorts the layers first, which would reorder the model: not done here.)
    """
    n = len(layers)
    dp = [[inf] * (num_stages + 1) for _ in range(n + 1)]
    dp[0][0] = 0
    for i in range(1, n + 1):
        for j in range(1, num_stages + 1):
            for k in range(i):
                cost = max(dp[k][j - 1], sum(layers[k:i]))
                if cost < dp[i][j]:
                    dp[i][j] = cost
    return dp[n][num_stages]


def with_prefix_sums(layers: Sequence[float], parts: int) -> tuple[float, tuple[int, ...]]:
    """Step 2. The same table, each sum in one subtraction, and the cuts remembered."""
    return _table(layers, parts, _try_all)


def with_binary_search(layers: Sequence[float], parts: int) -> tuple[float, tuple[int, ...]]:
    """Step 3. As the last stage starts later, it shrinks and the stages before it grow.

    The smaller of two such curves' maxima lies where they cross: find the crossing by halving
    instead of trying every start.
    """
    return _table(layers, parts, _try_crossing)


def parametric(layers: Sequence[float], parts: int) -> tuple[float, tuple[int, ...]]:
    """Step 4. No table: guess the answer and ask whether it is possible (see ``minimax``)."""
    check_parts(len(layers), parts)
    prefix = _prefix(layers)
    best = least_bound(prefix, parts)
    return best, even(prefix, parts, best)


#: The ladder, for a table of timings: (name, function).
STEPS: tuple[tuple[str, Callable], ...] = (
    ("snippet", snippet),
    ("prefix sums", with_prefix_sums),
    ("binary search", with_binary_search),
    ("parametric search", parametric),
)

#: (best[k] = least maximum of layers 0..k on one stage fewer, prefix sums, first k, i) -> best k
Choose = Callable[[list[float], list[float], int, int], int]


def _table(layers: Sequence[float], parts: int, choose: Choose) -> tuple[float, tuple[int, ...]]:
    check_parts(len(layers), parts)
    n, prefix = len(layers), _prefix(layers)
    best = [0.0] + [inf] * n
    starts = []
    for j in range(1, parts + 1):
        # k is where stage j starts: the j - 1 stages before it need as many layers at least
        start = [0] * j + [choose(best, prefix, j - 1, i) for i in range(j, n + 1)]
        best = [inf] * j + [
            max(best[k], prefix[i] - prefix[k]) for i, k in enumerate(start[j:], start=j)
        ]
        starts.append(start)
    bounds = [n]
    for start in reversed(starts):
        bounds.append(start[bounds[-1]])
    return best[n], tuple(bounds[::-1])


def _try_all(best: list[float], prefix: list[float], first: int, i: int) -> int:
    return min(range(first, i), key=lambda k: max(best[k], prefix[i] - prefix[k]))


def _try_crossing(best: list[float], prefix: list[float], first: int, i: int) -> int:
    low, high = first, i - 1  # smallest k from which on the stages before weigh more; i - 1 if none
    while low < high:
        k = (low + high) // 2
        if best[k] >= prefix[i] - prefix[k]:
            high = k
        else:
            low = k + 1
    if low > first and prefix[i] - prefix[low - 1] < max(best[low], prefix[i] - prefix[low]):
        return low - 1
    return low


def _prefix(layers: Sequence[float]) -> list[float]:
    prefix = [0.0]
    for layer in layers:
        prefix.append(prefix[-1] + layer)
    return prefix
