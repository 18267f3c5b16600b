"""One point of a sweep: what a run with so many micro-batches measured, or should measure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Point:
    """A run (`loss` is a number) or a prediction (`loss` is None).

    micro_batches: M of one pipeline, DeepSpeed's GAS; micro_batch_size: samples in each
    step_time: seconds of the typical step, first operation to last
    bubble:    idle / total of that step
    in_flight: most micro-batches a rank holds at once, by stage (chunks count as parts of one)
    memory:    most bytes by stage that are kept for backward passes; () when not counted
    loss:      of the last step
    """

    micro_batches: int
    micro_batch_size: int
    replicas: int
    step_time: float
    bubble: float
    in_flight: tuple[float, ...]
    memory: tuple[float, ...] = ()
    loss: float | None = None

    @property
    def samples(self) -> int:
        """Samples of a step: micro-batch size x micro-batches x replicas."""
        return self.micro_batch_size * self.micro_batches * self.replicas

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.samples / self.step_time if self.step_time > 0 else math.nan

    @property
    def utilisation(self) -> float:
        """Useful / total: 1 - bubble."""
        return 1 - self.bubble

    @property
    def peak(self) -> float:
        """Bytes that the fullest rank keeps for backward passes; nan when not counted."""
        return max(self.memory, default=math.nan)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"in_flight": list(self.in_flight), "memory": list(self.memory)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Point:
        """What ``as_json`` wrote."""
        lists = {name: tuple(data[name]) for name in ("in_flight", "memory")}
        return cls(**{**data, **lists})
