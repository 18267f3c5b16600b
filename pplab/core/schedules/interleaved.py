"""Interleaved 1F1B (Narayanan et al., arXiv 2104.04473): several small chunks on every rank.

Rank r holds chunks 0..v-1, slices r, r+P, r+2P, ... of the model. Micro-batches go through in
groups of P: P of them through chunk 0, the same P through chunk 1, and so on, so that M must be a
multiple of P. Filling and draining take P-1 *chunks*, a v-th of what whole stages take: bubble
(P-1)/(vM+P-1). The price is v times the messages, and more activations than 1F1B.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(
    stages: int, micro_batches: int, forward: float, backward: float, chunks: int = 2
) -> Theory:
    """Holds for every M that is a multiple of the stages; times are those of one chunk."""
    return Theory(
        bubble_time=(stages - 1) * (forward + backward),
        work=chunks * micro_batches * (forward + backward),
        peak=tuple(
            min(_warm_up(s, stages, chunks) + 1, chunks * micro_batches) for s in range(stages)
        ),
        versions=(1,) * stages,
    )


def _warm_up(stage: int, stages: int, chunks: int) -> int:
    return 2 * (stages - 1 - stage) + (chunks - 1) * stages


@schedule(name="Interleaved 1F1B", chunks=2, theory=theory)
def interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> Iterator[Op]:
    """Megatron-LM's order. Raises ValueError unless M is a multiple of the number of stages."""
    if micro_batches % stages:
        raise ValueError(
            f"interleaved 1F1B sends micro-batches through in groups of {stages} (one a stage): "
            f"{micro_batches} is no multiple of {stages}"
        )

    def place(k: int) -> tuple[int, int]:  # micro-batch and chunk of a rank's k-th forward pass
        group, inside = divmod(k, stages * chunks)
        return group * stages + inside % stages, inside // stages

    total = micro_batches * chunks
    warm_up = min(_warm_up(stage, stages, chunks), total)
    for k in range(total + warm_up):
        if k < total:
            yield F(*place(k))
        if k >= warm_up:
            m, chunk = place(k - warm_up)
            yield B(m, chunks - 1 - chunk)  # the backward pass meets the chunks last to first
