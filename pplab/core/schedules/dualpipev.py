"""DualPipeV (DeepSeek; "cut in half" DualPipe): a model folded into a V, both legs at work.

Rank r holds slice r and slice 2P-1-r: micro-batches go down the ranks and come back up, so that
rank 0 has both the first slice and the loss. Meeting forward and backward passes of the two legs
fill each other's gaps; in DeepSeek's kernels they even share the GPU, which is left out here: F
and B run one after the other. Where it shortens the fill and the drain a backward pass is split
into B and W; elsewhere W follows its B at once.

The order is that of DeepSeek's published implementation, which DeepSpeed's DualPipeVSchedule
follows with undivided backward passes. Its own formula, (PP/2-1)(F&B + B - 3W) with PP = 2P and B
the whole backward, takes an overlapped F&B for one block that hands on both results at its end.
"""

from collections.abc import Iterator

from pplab.core.ops import B, F, Op, W
from pplab.core.schedule import schedule
from pplab.core.schedules.theory import Theory


def theory(
    stages: int, micro_batches: int, forward: float, backward: float, weight: float | None = None
) -> Theory:
    """Bubble (P-1)(F+B-W) with the B of a split backward; times are those of one chunk.

    Derived here from the order and held to the simulator. Raises ValueError outside
    W <= B <= F <= B + W, where the two legs no longer fit into each other without gaps.
    """
    weight = backward / 2 if weight is None else weight
    inputs = backward - weight
    if not weight <= inputs <= forward <= backward:
        raise ValueError(
            "the formula of DualPipeV holds for W <= B <= F <= B + W, not "
            f"F = {forward}, B = {inputs}, W = {weight}"
        )
    return Theory(
        bubble_time=(stages - 1) * (forward + inputs - weight),
        work=2 * micro_batches * (forward + backward),
        peak=(2 * stages + 1,) * stages,
        versions=(1,) * stages,
    )


class _Counter:
    """The next micro-batch of each leg, and the W's put off."""

    def __init__(self) -> None:
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.put_off: list[Op] = []

    def forward(self, leg: int) -> Iterator[Op]:
        yield F(self.forwards[leg], leg)
        self.forwards[leg] += 1

    def backward(self, leg: int, split: bool = False) -> Iterator[Op]:
        m = self.backwards[leg]
        self.backwards[leg] += 1
        yield B(m, leg)
        if split:
            self.put_off.append(W(m, leg))
        else:
            yield W(m, leg)

    def weight(self) -> Iterator[Op]:
        yield self.put_off.pop(0)


@schedule(name="DualPipeV", chunks=2, placement="v", theory=theory)
def dualpipev(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """The eight steps of DeepSeek's code. Raises ValueError for fewer than 2P micro-batches."""
    if micro_batches < 2 * stages:
        raise ValueError(
            f"DualPipeV needs two micro-batches a rank to fill its V: at least {2 * stages}, "
            f"not {micro_batches}"
        )
    after = stages - 1 - stage  # ranks between this one and the turn of the V
    do = _Counter()
    for _ in range(2 * after):
        yield from do.forward(0)
    for _ in range(stage + 1):
        yield from do.forward(0)
        yield from do.forward(1)
    for _ in range(after):
        yield from do.backward(1, split=True)
        yield from do.weight()
        yield from do.forward(1)
    for _ in range(micro_batches - 2 * stages + stage + 1):  # the steady state
        yield from do.forward(0)
        yield from do.backward(1)
        yield from do.forward(1)
        yield from do.backward(0)
    for _ in range(after):
        yield from do.backward(1)
        yield from do.forward(1)
        yield from do.backward(0)
    for k in range(2 * (stage + 1)):
        yield from do.backward(1 - k % 2, split=k > stage)
    for _ in range(after):
        yield from do.weight()
        yield from do.backward(0, split=True)
    for _ in range(stage + 1):
        yield from do.weight()
