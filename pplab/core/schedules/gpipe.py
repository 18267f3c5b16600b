"""GPipe (Huang et al., arXiv 1811.06965): all forward passes, then all backward passes.

Bubble (P-1)/(M+P-1); every rank holds all M activations.
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
        peak=(micro_batches,) * stages,
        versions=(1,) * stages,
    )


@schedule(name="GPipe", theory=theory)
def gpipe(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """All forward passes, then all backward passes, each in order of the micro-batches."""
    for m in range(micro_batches):
        yield F(m)
    for m in range(micro_batches):
        yield B(m)
