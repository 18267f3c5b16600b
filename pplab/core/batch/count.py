"""How many micro-batches there are, what they bring, and which published numbers can be true."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pplab.core.batch.triangle import replicas_of


def ideal_bubble(stages: int, micro_batches: int) -> float:
    """Idle / total of a flushing schedule with equal stages: (P - 1) / (M + P - 1).

    GPipe, arXiv 1811.06965; the same for 1F1B.
    """
    return (stages - 1) / (micro_batches + stages - 1)


def least_micro_batches(stages: int, bubble: float) -> int:
    """The fewest micro-batches for which the ideal bubble is at most `bubble` (0 < bubble < 1)."""
    if not 0 < bubble < 1:
        raise ValueError(f"a bubble target lies between 0 and 1, not {bubble}")
    least = (stages - 1) * (1 - bubble) / bubble
    return max(1, math.ceil(least - 1e-9))


@dataclass(frozen=True)
class Count:
    """The naming trap, taken apart: four numbers that are all called "micro-batches" somewhere.

    per_pipeline:  micro-batches that one pipeline works through in a step; this is GAS, and M in
                   every formula
    all_pipelines: the same, added up over the replicas (GAS * d); no pipeline ever sees them
    samples_per_replica: micro-batch size * GAS
    train:         samples of a step, micro-batch size * GAS * d
    """

    stages: int
    replicas: int
    micro: int
    per_pipeline: int

    @property
    def all_pipelines(self) -> int:
        """GAS * d."""
        return self.per_pipeline * self.replicas

    @property
    def samples_per_replica(self) -> int:
        """Micro-batch size * GAS."""
        return self.micro * self.per_pipeline

    @property
    def train(self) -> int:
        """Samples of a step."""
        return self.samples_per_replica * self.replicas

    @property
    def bubble(self) -> float:
        """Ideal bubble with M = GAS."""
        return ideal_bubble(self.stages, self.per_pipeline)

    @property
    def mistaken_bubble(self) -> float:
        """What comes out when GAS * d is taken for M."""
        return ideal_bubble(self.stages, self.all_pipelines)

    def __str__(self) -> str:
        return (
            f"{self.replicas} replica(s) of {self.stages} stages: each pipeline works through "
            f"M = GAS = {self.per_pipeline} micro-batches of {self.micro} samples a step "
            f"({self.samples_per_replica} samples), {self.train} samples in all. "
            f"Ideal bubble {self.bubble:.1%}; taking GAS x replicas = {self.all_pipelines} for M "
            f"would promise {self.mistaken_bubble:.1%}."
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: every pipeline with its micro-batches, and the four numbers."""
        from pplab.view.batch import bundle_of_count  # a display is the one reason to look up

        return bundle_of_count(self)


def count_micro_batches(ranks: int, stages: int, micro: int, gas: int, *, tensor: int = 1) -> Count:
    """Who has how many micro-batches. "8 GPUs, pp 4, micro 2, GAS 8" is M = 8, and not 16.

    Raises BatchError when stages * tensor does not divide the ranks.
    """
    return Count(stages, replicas_of(ranks, stages, tensor), micro, gas)


def ramp(
    start: int, increment: int, train: int, *, micro: int, replicas: int
) -> list[tuple[int, int | None]]:
    """Global batch sizes of a Megatron-style ramp-up, each with its GAS; None: it does not divide.

    The sizes are start, start + increment, ... up to `train`, which is always the last one.
    """
    if start < 1 or increment < 1:
        raise ValueError("a ramp-up starts at 1 sample or more and grows by at least 1")
    sizes: Iterable[int] = [*range(start, train, increment), train]
    step = micro * replicas
    return [(size, size // step if size % step == 0 else None) for size in sizes]


# -- a published table against theory -------------------------------------------------------------


@dataclass(frozen=True)
class Confronted:
    """One row of a published GAS sweep beside what a flushing pipeline of `stages` could reach.

    claimed, possible: utilisation in 0..1; possible = M / (M + P - 1), equal stages, no overhead
    speed_up, possible_speed_up: throughput over that of the row before (1 for the first), and the
        most it can be when the micro-batch stays the same
    """

    gas: int
    claimed: float
    possible: float
    speed_up: float
    possible_speed_up: float

    @property
    def can_be(self) -> bool:
        """True when neither the utilisation nor the step up from the row before is too good."""
        slack = 1 + 1e-9
        return (
            self.claimed <= self.possible * slack
            and self.speed_up <= self.possible_speed_up * slack
        )


class Confrontation(list[Confronted]):
    """The rows of a published table; a notebook shows them beside what is possible."""

    def __init__(self, rows: Iterable[Confronted], stages: int) -> None:
        super().__init__(rows)
        self.stages = stages

    def __str__(self) -> str:
        return str(self._repr_mimebundle_()["text/plain"])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pplab.view.batch import bundle_of_table  # a display is the one reason to look up

        return bundle_of_table(self, self.stages)


def confront(rows: Sequence[tuple[int, float, float]], stages: int) -> Confrontation:
    """A published GAS sweep against theory; `rows` are (GAS, throughput, utilisation in 0..1).

    Throughput may be in any unit. A row that fails cannot come from a synchronous pipeline of that
    many stages at a fixed micro-batch size.
    """
    found = []
    before: tuple[float, float] | None = None
    for gas, throughput, claimed in rows:
        possible = 1 - ideal_bubble(stages, gas)
        ups = (1.0, 1.0) if before is None else (throughput / before[0], possible / before[1])
        found.append(Confronted(gas, claimed, possible, *ups))
        before = (throughput, possible)
    return Confrontation(found, stages)
