"""Faults planted into a paced run, to see what they do and whether a diagnosis finds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pplab.core.ops import Op

if TYPE_CHECKING:
    from pplab.runtime.job import Job


@dataclass(frozen=True)
class Slow:
    """A worker that takes `factor` times its due: `rank` of the pipeline, in one replica.

    part: for which part of the micro-batches of a step, the first ones (1: always).
    """

    rank: int
    factor: float
    replica: int = 0
    part: float = 1.0


@dataclass(frozen=True)
class Faults:
    """What is wrong in a paced run; times are seconds.

    slow:    slow workers (a ``Slow``, or several)
    link:    how much later a message arrives than it would: one number for all links, or one a
             link (between slices 0 and 1, 1 and 2, ...). It really arrives later; links do not
             queue
    loading: how long every reading of a micro-batch takes, where it is read (first, last stage)
    lengths: how long micro-batches are, in times of the model's; used in turns by the number of
             the micro-batch (over steps and replicas), so that a step may be unlike the next
    """

    slow: tuple[Slow, ...] = ()
    link: float | tuple[float, ...] = 0.0
    loading: float = 0.0
    lengths: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        slow: Any = self.slow
        if isinstance(slow, Slow | dict):
            slow = (slow,)
        rows = (one if isinstance(one, Slow) else Slow(**one) for one in slow)
        object.__setattr__(self, "slow", tuple(rows))
        if not isinstance(self.link, int | float):
            object.__setattr__(self, "link", tuple(self.link))
        object.__setattr__(self, "lengths", tuple(self.lengths))
        for name, values in (
            ("link", self.links(1)), ("loading", (self.loading,)), ("lengths", self.lengths),
        ):  # fmt: skip
            if not all(0 <= value < float("inf") for value in values):
                raise ValueError(f"{name} is times, which are finite and not negative")
        if any(length == 0 for length in self.lengths):
            raise ValueError("lengths are positive: a micro-batch takes some time")

    @classmethod
    def of(cls, given: Faults | dict[str, Any] | None) -> Faults | None:
        """Faults from what ``run(faults=...)`` was given: one of these, or its fields."""
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, dict):
            raise TypeError(f"faults is a dictionary or pplab.Faults, not {type(given).__name__}")
        unknown = given.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(
                f"no such fault: {', '.join(sorted(unknown))}; there are "
                f"{', '.join(cls.__dataclass_fields__)}"
            )
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        """Plain values that ``of`` reads."""
        return {**asdict(self), "slow": [asdict(one) for one in self.slow]}

    def links(self, count: int) -> tuple[float, ...]:
        """The delay of each of `count` links."""
        if isinstance(self.link, int | float):
            return (float(self.link),) * count
        return self.link

    def check(self, job: Job) -> None:
        """Raises ValueError when a job cannot have these faults."""
        if not job.model.paced:
            raise ValueError(
                "faults are planted by the clock, and so into paced models only: "
                "model=pplab.models.paced(...)"
            )
        if job.engine != "pplab":
            raise ValueError(f"engine {job.engine!r} takes no planted faults: use 'pplab'")
        count = job.layout.slices - 1
        if len(self.links(count)) != count:
            raise ValueError(
                f"link is one number or {count}, one for each link, not {len(self.links(count))}"
            )
        for one in self.slow:
            here = 0 <= one.rank < job.stages and 0 <= one.replica < job.replicas
            if not here or not one.factor > 0 or not 0 < one.part <= 1:
                raise ValueError(
                    f"{one} is no worker of this run: ranks 0 to {job.stages - 1}, replicas 0 to "
                    f"{job.replicas - 1}, a positive factor and a part between 0 and 1"
                )

    def pace(self, job: Job, rank: int, replica: int, step: int, op: Op) -> float:
        """Times its due that an operation takes."""
        factor = 1.0
        for one in self.slow:
            mine = (one.rank, one.replica) == (rank, replica)
            if mine and op.micro_batch < one.part * job.micro_batches:
                factor *= one.factor
        if self.lengths and op.micro_batch >= 0:
            number = job.batch_number(step, op.micro_batch, replica)
            factor *= self.lengths[number % len(self.lengths)]
        return factor


def planted(links: Iterable[float], slices: Sequence[int]) -> dict[tuple[int, int], float]:
    """Delay by (slice, slice) of the links that begin or end at some slices, both ways."""
    found = {}
    for number, seconds in enumerate(links):
        if seconds > 0 and (number in slices or number + 1 in slices):
            found[number, number + 1] = found[number + 1, number] = seconds
    return found
