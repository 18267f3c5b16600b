"""How many micro-batches pay: the knee of a GAS sweep, and the best way to cut a given batch.

"Knee" has no agreed definition: Kneedle (Satopaa et al. 2011) takes the point of largest curvature
of the normalised curve, which moves with the range that is drawn. Here it is an answer to the
question people ask: **the least M from which doubling M raises throughput by less than 10 %**
(or another `gain`). For P equal stages throughput goes with M / (M + P - 1), doubling brings
(P - 1) / (2 M + P - 1), and so the knee lies at M = (P - 1) (1 - gain) / (2 gain): 4.5 (P - 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

#: Less than this from doubling M, and it no longer pays.
GAIN = 0.10
#: The rules of thumb in circulation, as multiples of the number of stages: "2P keeps the pipeline
#: full" (the source articles), 4P (GPipe, arXiv 1811.06965), 8P (DeepSpeed's issue 4164).
RULES = (2, 4, 8)


def rules(stages: int) -> dict[str, int]:
    """Micro-batches by the rules of thumb: ``{"2P": 8, "4P": 16, "8P": 32}`` for 4 stages."""
    return {f"{times}P": times * stages for times in RULES}


def article_rule(stages: int, batch: int) -> int:
    """``max(2 S, batch // (2 S))``: an article's "optimal GAS" for a global batch.

    It falls as stages are added, while the bubble asks for more; and it knows nothing of replicas
    and micro-batch sizes, so that the triangle need not hold.
    """
    least = 2 * stages
    return max(least, batch // least)


def ideal_knee(stages: int, gain: float = GAIN) -> int:
    """The knee of `stages` equal stages with free messages; 1 for one stage."""
    check_gain(gain)
    return max(1, math.floor((stages - 1) * (1 - gain) / (2 * gain) + 1e-9) + (stages > 1))


def best_cut(stages: int, batch: int, fixed: float, per_sample: float) -> float:
    """Micro-batches M (not rounded) that finish a batch of `batch` samples soonest.

    An operation on b = batch / M samples takes ``fixed + per_sample * b``: the first part is paid
    by every micro-batch however small, the second shrinks with it. A step of equal stages takes
    (M + P - 1) (fixed + per_sample * batch / M), which is least at

        M = sqrt((P - 1) * batch * per_sample / fixed)

    Raises ValueError when `fixed` is not positive: then more micro-batches are always better.
    """
    if not fixed > 0:
        raise ValueError("without a fixed part per operation the most micro-batches are the best")
    return max(1.0, math.sqrt((stages - 1) * batch * per_sample / fixed))


def knee(
    throughput: Callable[[int], float | None],
    gain: float = GAIN,
    *,
    unit: int = 1,
    most: int = 1 << 14,
) -> int | None:
    """The least M from which doubling raises `throughput` by less than `gain`; None below `most`.

    throughput: of M micro-batches, in any unit; None where so few cannot run. unit: only multiples
    of it are looked at (interleaved 1F1B runs multiples of P). What doubling brings is taken to
    fall as M grows, as it does for every schedule with a flush.
    """
    check_gain(gain)
    known = cache(throughput)

    def pays(count: int) -> bool:
        now, then = known(count * unit), known(2 * count * unit)
        return now is None or then is None or then / now - 1 >= gain - 1e-9

    low, high = 0, 1
    while pays(high):
        low, high = high, 2 * high
        if high * unit > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return high * unit


def check_gain(gain: float) -> None:
    """Raise ValueError when `gain` is not a share."""
    if not 0 < gain < 1:
        raise ValueError(f"the gain of doubling lies between 0 and 1 (0.10: 10 %), not {gain}")
