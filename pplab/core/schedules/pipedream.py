"""PipeDream (Narayanan et al., SOSP 2019): no bubble at all, for gradients of older weights.

The order is that of 1F1B, but every backward pass is followed at once by an optimizer step and
the pipeline never drains between batches: the micro-batches of this schedule are a *stream*, and
the fill at its start and the drain at its end are paid once a training run. In between no rank
waits.

The price: while a micro-batch is in flight on stage s, up to P-1-s updates of that stage happen.
So that B uses the weights its F used, a stage keeps a version for each micro-batch in flight
("weight stashing"), P-s of them, and its gradients are up to P-1-s updates old. See ``weights``.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op, U
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(stages: int, micro_batches: int, forward: float, backward: float) -> Theory:
    """Holds for every number of stages and micro-batches of the stream.

    The published P-s versions on stage s are reached once M is at least 2(P-1-s).
    """
    early = [min(stages - 1 - s, micro_batches - 1) for s in range(stages)]
    return Theory(
        bubble_time=(stages - 1) * (forward + backward),
        work=micro_batches * (forward + backward),
        peak=tuple(e + 1 for e in early),
        versions=tuple(min(e, micro_batches - e) + 1 for e in early),
        once=True,
    )


@schedule(name="PipeDream", theory=theory)
def pipedream(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """1F1B with an optimizer step after every backward pass; `micro_batches` are a stream."""
    warm_up = min(stages - 1 - stage, micro_batches)
    for m in range(warm_up):
        yield F(m)
    for m in range(micro_batches):
        if warm_up + m < micro_batches:
            yield F(warm_up + m)
        yield B(m)
        yield U(m)
