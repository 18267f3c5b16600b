"""Several versions of the weights at once: what PipeDream and PipeDream-2BW pay for no bubble.

A schedule with ``U(m)`` in its middle updates the weights while other micro-batches are in flight.
Their backward passes must use the weights their forward passes used, or the gradients belong to no
function at all ("weight stashing", Narayanan et al., SOSP 2019). So a forward pass notes the
version it used, its backward pass gets that version back, and a version lives until the last
micro-batch that used it is done.

How a version is put back: autograd saves a parameter as itself, not its values, so whatever
``p.data`` holds when the backward pass runs is what counts. An update works on fresh copies when
someone still needs the old values, and in place when nobody does. Because autograd would refuse a
graph whose parameters were changed after it was made, the update preserves version counters
(``torch.autograd._unsafe_preserve_version_counter``); it is safe, since the values an older graph
needs were not changed but set aside.

``U(m)`` applies the *mean* gradient of the micro-batches up to m that were not applied before.
Gradients of later ones may exist already (2BW); each group of micro-batches has its own sum.

What of DeepSpeed is still used: its engine runs each forward and backward pass, averages over
replicas, and the optimizer is the one it built. What is not: its accumulation of M gradients and
its own optimizer step, once a batch. ZeRO-1 and bf16 keep weights and gradients in flat buffers of
DeepSpeed's that cannot be exchanged under a graph, so they are refused (``job``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from pplab.core.ops import WHOLE_STEP, Op

Version = list[Tensor]  # values of all parameters of a rank, in their order


class WeightVersions:
    """The weights of one rank through a step of `ops`, its operations in order.

    The gradients it finds in ``.grad`` are those of whole losses, not divided by anything.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        parameters: Sequence[torch.nn.Parameter],
        optimizer: Optimizer,
    ) -> None:
        self.parameters, self.optimizer = list(parameters), optimizer
        self.last = last_uses(ops)
        self.group = groups(ops)
        self.newest: Version = [p.data for p in self.parameters]
        self.held: dict[tuple[int, int], Version] = {}
        self.sums: dict[int, list[Tensor | None]] = {}
        self.peak_bytes = self.peak_count = 0
        self.count()

    def before(self, op: Op) -> None:
        """Set the weights, and the gradient sums to add to, that an F, B or W is to use."""
        key = op[1:]
        if op.kind == "F":
            self.held[key] = self.newest
            self.use(self.newest)
            return
        self.use(self.held.pop(key) if op == self.last[key] else self.held[key])
        sums = self.sums.setdefault(self.group[op.micro_batch], [None] * len(self.parameters))
        for parameter, value in zip(self.parameters, sums, strict=True):
            parameter.grad = value

    def after(self, op: Op) -> None:
        """Put the gradient sums aside; an F left none."""
        if op.kind != "F":
            self.sums[self.group[op.micro_batch]] = [p.grad for p in self.parameters]
            for parameter in self.parameters:
                parameter.grad = None

    def update(self, op: Op, reduce: Callable[[], None] | None = None) -> None:
        """U: one optimizer step on the newest weights, with the mean gradient of its group.

        reduce: averages the gradients over replicas, once they are in ``.grad``.
        """
        number = self.end_of(op)
        members = sum(group == number for group in self.group.values())
        if not members:
            return
        for parameter, value in zip(self.parameters, self.sums.pop(number), strict=True):
            parameter.grad = value if value is None else value.div_(members)
        if any(version is self.newest for version in self.held.values()):
            self.newest = [value.clone() for value in self.newest]
        self.use(self.newest)
        if reduce is not None:
            reduce()
        with torch.autograd._unsafe_preserve_version_counter(tuple(self.parameters)):
            self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None
        self.count()

    def use(self, version: Version) -> None:
        """Let the parameters have the values of a version."""
        for parameter, value in zip(self.parameters, version, strict=True):
            parameter.data = value

    def end_of(self, op: Op) -> int:
        """The last micro-batch an update applies; that of the step when it has no number."""
        return max(self.group) if op.micro_batch == WHOLE_STEP else op.micro_batch

    def count(self) -> None:
        """Note the most versions, and the most bytes of them, alive at once (newest included)."""
        alive = {id(v): v for v in (self.newest, *self.held.values())}.values()
        size = sum(t.numel() * t.element_size() for version in alive for t in version)
        self.peak_bytes = max(self.peak_bytes, size)
        self.peak_count = max(self.peak_count, len(alive))


def last_uses(ops: Sequence[Op]) -> dict[tuple[int, int], Op]:
    """The last operation that needs the weights of a (micro-batch, chunk): its W, else its B."""
    return {op[1:]: op for kind in "BW" for op in ops if op.kind == kind}


def groups(ops: Sequence[Op]) -> dict[int, int]:
    """For each micro-batch, the number of the update that applies its gradient: the first one, in
    the order of `ops`, that reaches it. One without number reaches all."""
    last = max(op.micro_batch for op in ops)
    ends = [last if op.micro_batch == WHOLE_STEP else op.micro_batch for op in ops if op[0] == "U"]
    return {m: next(end for end in ends if end >= m) for m in range(last + 1)}
