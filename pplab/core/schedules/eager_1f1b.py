"""Eager-1F1B (Zhuang et al., arXiv 2211.05322): 1F1B that runs further ahead to hide messages.

Stage s starts 2(P-1-s) forward passes early instead of P-1-s. The bubble is that of 1F1B as long
as messages are free; when they are not, each has a whole forward and backward slot to arrive in,
so the steady state does not wait. The price is memory: 2(P-1-s)+1 activations instead of P-s.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(stages: int, micro_batches: int, forward: float, backward: float) -> Theory:
    """Holds for every number of stages and micro-batches."""
    return Theory(
        bubble_time=(stages - 1) * (forward + backward),
        work=micro_batches * (forward + backward),
        peak=tuple(min(2 * (stages - 1 - s) + 1, micro_batches) for s in range(stages)),
        versions=(1,) * stages,
    )


@schedule(name="Eager-1F1B", theory=theory)
def eager_1f1b(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """1F1B with twice the warm-up."""
    warm_up = min(2 * (stages - 1 - stage), micro_batches)
    for m in range(warm_up):
        yield F(m)
    for m in range(warm_up, micro_batches):
        yield F(m)
        yield B(m - warm_up)
    for m in range(micro_batches - warm_up, micro_batches):
        yield B(m)
