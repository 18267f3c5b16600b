"""Everything that could be run on a machine for one global batch, before anything is priced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pplab.core.schedules import SCHEDULES
from pplab.core.topology import Topology

#: Schedules by short name, the plainest first; what decides between plans that are alike.
PREFERRED = ("1f1b", "gpipe", "eager-1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipev")
#: Schedules that update the weights while micro-batches are in flight.
ASYNCHRONOUS = ("pipedream", "pipedream-2bw")


@dataclass(frozen=True, order=True)
class Candidate:
    """One way to run the job: stages x replicas x tensor ranks, `micro_batches` (GAS) of
    `micro_batch_size` samples a pipeline, a schedule by its short name, ZeRO-0 or 1, and
    recomputation (activation_checkpoint_interval, 0: none)."""

    stages: int
    replicas: int
    tensor: int
    micro_batch_size: int
    micro_batches: int
    schedule: str = "1f1b"
    zero: int = 0
    recompute: int = 0

    @property
    def topology(self) -> Topology:
        """Who is who among its ranks."""
        return Topology(self.stages, self.replicas, self.tensor)

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.stages * self.replicas * self.tensor

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return self.micro_batch_size * self.micro_batches * self.replicas

    @property
    def shape(self) -> str:
        """Stages and replicas in words."""
        many = f"{self.stages} stage{'s' * (self.stages > 1)}"
        if self.replicas > 1:
            many += f" x {self.replicas} replicas"
        return many + (f" x {self.tensor} tensor parts" if self.tensor > 1 else "")

    @property
    def order(self) -> str:
        """The schedule in words; one stage has none."""
        return SCHEDULES[self.schedule].name if self.stages > 1 else "no pipeline"

    def __str__(self) -> str:
        text = (
            f"{self.shape}, {self.order}, {self.micro_batches} micro-batch"
            f"{'es' * (self.micro_batches > 1)} of {self.micro_batch_size}"
        )
        if self.replicas > 1 or self.zero:
            text += f", ZeRO-{self.zero}"
        if self.recompute:
            every = "every layer" if self.recompute == 1 else f"{self.recompute} layers at a time"
            text += f", recomputing {every}"
        return text


@dataclass(frozen=True)
class Space:
    """What may be combined. `all_ranks`: no rank may stay without work."""

    ranks: int
    batch: int
    sizes: tuple[int, ...]
    stages: tuple[int, ...] | None = None
    tensor: tuple[int, ...] = (1,)
    schedules: tuple[str, ...] = PREFERRED
    zero: tuple[int, ...] = (0, 1)
    recompute: tuple[int, ...] = (0,)
    all_ranks: bool = True

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"a global batch has at least one sample, not {self.batch}")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"micro-batch sizes are numbers from 1 on, not {list(self.sizes)}")
        unknown = [name for name in self.schedules if name not in SCHEDULES]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is not a schedule to tune over: use {', '.join(SCHEDULES)}"
            )
        if any(interval < 0 for interval in self.recompute):
            raise ValueError("recompute is a number of layers, 0 for none")

    def shapes(self) -> Iterator[tuple[int, int, int]]:
        """(stages, replicas, tensor), most stages first."""
        wanted = self.stages or tuple(range(1, self.ranks + 1))
        for tensor in self.tensor:
            for stages in sorted(wanted, reverse=True):
                most = self.ranks // (stages * tensor)
                for replicas in range(most, 0, -1):
                    if stages * tensor * replicas == self.ranks or not self.all_ranks:
                        yield stages, replicas, tensor

    def candidates(self) -> Iterator[Candidate]:
        """All of them; those that cannot be are said no to later, one by one and with a reason."""
        for stages, replicas, tensor in self.shapes():
            if self.batch % replicas:
                continue
            share = self.batch // replicas
            schedules: Sequence[str] = self.schedules if stages > 1 else ("1f1b",)
            zeros: Iterable[int] = self.zero
            if replicas == 1 and len(self.zero) > 1:  # nobody to share with: the lowest will do
                zeros = [min(self.zero)]
            for size in self.sizes:
                if share % size:
                    continue
                for schedule in schedules:
                    for zero in zeros:
                        for interval in self.recompute:
                            yield Candidate(
                                stages, replicas, tensor, size, share // size, schedule, zero,
                                interval,
                            )  # fmt: skip


def divisors(number: int, most: int) -> tuple[int, ...]:
    """Divisors of a number up to `most`."""
    return tuple(size for size in range(1, min(number, most) + 1) if number % size == 0)
