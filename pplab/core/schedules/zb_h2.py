"""ZB-H2 (Qi et al., arXiv 2401.10241): no bubble when F = B = W, for twice the activations.

ZB-H1 with twice the warm-up and twice the W's put off: stage s starts 2(P-1-s) forward passes
early and lets 2s W's pile up. Bubble (P-1)(F+B-2W). The ranks work in a slanted band rather than
in a rectangle: each has its own start and end, and the next step must be allowed to begin on rank
0 while the last rank still runs (the paper's post-validation of the optimizer step). Over one
isolated step, first start to last end, P-1 forward passes of waiting remain.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op, W
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(
    stages: int, micro_batches: int, forward: float, backward: float, weight: float | None = None
) -> Theory:
    """Section 3 of the paper, and section 6 for fewer micro-batches than stages.

    Raises ValueError when W takes longer than F or B: the paper's formulas then do not hold.
    """
    weight = backward / 2 if weight is None else weight
    if weight > min(forward, backward - weight):
        raise ValueError(
            f"the formula of ZB-H2 holds for W up to F = {forward} and B = {backward - weight}, "
            f"not {weight}"
        )
    saved = min(2 * (stages - 1), micro_batches - 1) * weight
    return Theory(
        bubble_time=(stages - 1) * (forward + backward - weight) - saved,
        work=micro_batches * (forward + backward),
        peak=(min(2 * stages - 1, micro_batches),) * stages,
        versions=(1,) * stages,
    )


@schedule(name="ZB-H2", theory=theory)
def zb_h2(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """Twice the warm-up of 1F1B; rank s runs a W after each B once 2s of them have piled up."""
    warm_up = min(2 * (stages - 1 - stage), micro_batches)
    lag = 2 * stage
    for m in range(warm_up):
        yield F(m)
    for m in range(micro_batches):
        if warm_up + m < micro_batches:
            yield F(warm_up + m)
        yield B(m)
        if m >= lag:
            yield W(m - lag)
    for m in range(max(0, micro_batches - lag), micro_batches):
        yield W(m)
