"""ZB-H1 (Qi et al., arXiv 2401.10241): fill the drain of 1F1B with weight gradients.

A backward pass is split: B computes the input gradient that the stage before waits for, W the
weight gradient that nobody waits for. Rank s lets s W's pile up and spends them where 1F1B would
wait. Bubble (P-1)(F+B-W), a third of 1F1B's when F = B = W, for as many activations on every rank
as 1F1B holds on rank 0.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op, W
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(
    stages: int, micro_batches: int, forward: float, backward: float, weight: float | None = None
) -> Theory:
    """Section 3 of the paper, and section 6 for fewer micro-batches than stages.

    Raises ValueError when W takes longer than F: the paper's formulas then do not hold.
    """
    weight = backward / 2 if weight is None else weight
    if weight > forward:
        raise ValueError(f"the formula of ZB-H1 holds for W up to F = {forward}, not {weight}")
    saved = min(stages - 1, micro_batches - 1) * weight
    return Theory(
        bubble_time=(stages - 1) * (forward + backward - weight) - saved,
        work=micro_batches * (forward + backward),
        peak=(min(stages, micro_batches),) * stages,
        versions=(1,) * stages,
    )


@schedule(name="ZB-H1", theory=theory)
def zb_h1(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """1F1B whose rank s runs a W after each B, once s of them have piled up."""
    warm_up = min(stages - 1 - stage, micro_batches)
    for m in range(warm_up):
        yield F(m)
    for m in range(micro_batches):
        if warm_up + m < micro_batches:
            yield F(warm_up + m)
        yield B(m)
        if m >= stage:
            yield W(m - stage)
    for m in range(max(0, micro_batches - stage), micro_batches):
        yield W(m)
