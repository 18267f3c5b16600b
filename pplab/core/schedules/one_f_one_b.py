"""1F1B, or PipeDream-Flush (Narayanan et al., arXiv 2104.04473; DeepSpeed's TrainSchedule).

The bubble is GPipe's, (P-1)/(M+P-1); what it saves is memory: stage s holds min(P-s, M)
activations, whatever the number of micro-batches.
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
        peak=tuple(min(stages - s, micro_batches) for s in range(stages)),
        versions=(1,) * stages,
    )


@schedule(name="1F1B", theory=theory)
def one_f_one_b(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """Warm up with just enough forward passes, then one forward, one backward, then drain."""
    warm_up = min(stages - 1 - stage, micro_batches)
    for m in range(warm_up):
        yield F(m)
    for m in range(warm_up, micro_batches):
        yield F(m)
        yield B(m - warm_up)
    for m in range(micro_batches - warm_up, micro_batches):
        yield B(m)
