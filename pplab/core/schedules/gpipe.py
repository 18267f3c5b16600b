"""GPipe (Huang et al., arXiv 1811.06965): all forward passes, then all backward passes.

Bubble (P-1)/(M+P-1); every rank holds all M activations.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op
from pplab.core.schedule import schedule


@schedule(name="GPipe")
def gpipe(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """All forward passes, then all backward passes, each in order of the micro-batches."""
    for m in range(micro_batches):
        yield F(m)
    for m in range(micro_batches):
        yield B(m)
