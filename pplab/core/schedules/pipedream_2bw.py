"""PipeDream-2BW (Narayanan et al., arXiv 2006.09503): PipeDream with two weight versions.

Gradients of a group of micro-batches (at least P) are added up before an update, and the new
weights are taken into use by all stages at the same micro-batch: group j runs on the weights after
j-1 updates, on every stage. No flush, no waiting in the steady state; two versions of the weights
instead of P-s, and every gradient exactly one update old. The micro-batches are a stream, as in
``pipedream``.

``U(m)`` applies the gradients of the micro-batches up to m that were not applied before. It stands
where the new weights are first needed, right before the forward pass of the group after next, so
the gradients of the group in between are already being added up: they need a buffer of their own.
(The paper's figure shows the new version made earlier and kept aside until then.)
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op, U
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(
    stages: int, micro_batches: int, forward: float, backward: float, group: int | None = None
) -> Theory:
    """Holds for every number of stages and micro-batches of the stream.

    The last stage has nothing in flight when it updates and gets by with one version.
    """
    group = stages if group is None else group
    updates_in_flight = micro_batches > 2 * group
    return Theory(
        bubble_time=(stages - 1) * (forward + backward),
        work=micro_batches * (forward + backward),
        peak=tuple(min(stages - s, micro_batches) for s in range(stages)),
        versions=(1 + updates_in_flight,) * (stages - 1) + (1,),
        once=True,
    )


@schedule(name="PipeDream-2BW", theory=theory)
def pipedream_2bw(
    stage: int, stages: int, micro_batches: int, group: int | None = None
) -> Iterator[Op]:
    """1F1B over a stream, one optimizer step per `group` of micro-batches (default: P).

    Raises ValueError when a group is smaller than the number of stages.
    """
    group = stages if group is None else group
    if group < stages:
        raise ValueError(
            f"PipeDream-2BW adds up at least one micro-batch a stage ({stages}) before it updates, "
            f"not {group}: a third version of the weights would be needed"
        )
    warm_up = min(stages - 1 - stage, micro_batches)
    updates = [*range(group - 1, micro_batches - 1, group), micro_batches - 1]
    for m in range(micro_batches + warm_up):
        if m < micro_batches:
            if m % group == 0 and m >= 2 * group:
                yield U(updates.pop(0))
            yield F(m)
        if m >= warm_up:
            yield B(m - warm_up)
    for m in updates:
        yield U(m)
