"""What "the bubble went from 38 to 12 %" can mean, and what it cannot explain.

A bubble is a share of the step, so it says by itself how much faster the step got:
(1 - after) / (1 - before), with equal stages and nothing else changed. And it says what M / (P - 1)
was: (1 - bubble) / bubble, from bubble = (P - 1) / (M + P - 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pplab.core.batch.count import ideal_bubble


class Pipeline(NamedTuple):
    """P stages, and the micro-batches before and after; () when no number gives that bubble."""

    stages: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def possible(self) -> bool:
        """True when both bubbles can be had with this many stages."""
        return bool(self.before and self.after)


@dataclass(frozen=True)
class BubbleClaim:
    """A bubble that shrank from `before` to `after` (shares of the step), and what was said of it.

    speed_up: how many times as fast it is said to have become; None if nothing is said
    digits: the bubbles are printed to this many places of a per cent; what rounds to them counts
    """

    before: float
    after: float
    speed_up: float | None = None
    digits: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.after <= self.before < 1:
            raise ValueError(
                "give the bubbles as shares of the step, the larger one first: 0.38 and 0.12"
            )
        if self.speed_up is not None and self.speed_up <= 0:
            raise ValueError(f"a speed-up is a positive number, not {self.speed_up}")

    @property
    def from_bubble(self) -> float:
        """How many times as fast the smaller bubble makes it."""
        return (1 - self.after) / (1 - self.before)

    @property
    def limit(self) -> float:
        """... and no bubble at all."""
        return 1 / (1 - self.before)

    @property
    def unexplained(self) -> float | None:
        """The factor of the claimed speed-up that the bubble does not give."""
        return None if self.speed_up is None else self.speed_up / self.from_bubble

    @property
    def ratios(self) -> tuple[float, float]:
        """M / (P - 1) before and after."""
        return (1 - self.before) / self.before, (1 - self.after) / self.after

    @property
    def growth(self) -> float:
        """M after over M before, when the stages stay the same."""
        return self.ratios[1] / self.ratios[0]

    def pipelines(self, stages: Iterable[int] = (2, 4, 8, 16, 32)) -> list[Pipeline]:
        """Which numbers of micro-batches give these bubbles, as printed, for each P."""
        return [
            Pipeline(P, self._counts(P, self.before), self._counts(P, self.after)) for P in stages
        ]

    def _counts(self, stages: int, bubble: float) -> tuple[int, ...]:
        """Every M whose ideal bubble rounds to what was printed."""
        half = 0.5 * 10.0 ** -(self.digits + 2)
        low, high = max(bubble - half, 1e-9), min(bubble + half, 1 - 1e-9)
        least = math.floor((stages - 1) * (1 - high) / high)
        most = math.ceil((stages - 1) * (1 - low) / low)
        return tuple(
            M for M in range(max(1, least), most + 1)
            if low - 1e-12 <= ideal_bubble(stages, M) < high - 1e-12
        )  # fmt: skip

    def sentence(self) -> str:
        """The claim against arithmetic, in words."""
        said = (
            f"A bubble of {self.after:.0%} instead of {self.before:.0%} makes it "
            f"{self.from_bubble:.2f} times as fast, and none at all would make it "
            f"{self.limit:.2f} times as fast."
        )
        if self.unexplained is None or math.isclose(self.unexplained, 1, rel_tol=0.01):
            return said
        if self.unexplained < 1:
            return f"{said} Only {self.speed_up:g} times is claimed: something else got slower."
        rest = f"a factor of {self.unexplained:.2f} has another cause, or none."
        return f"{said} Of the claimed {self.speed_up:g} times {rest}"

    def __str__(self) -> str:
        one, other = self.ratios
        lines = [
            self.sentence(),
            f"M/(P-1) went from {one:.2f} to {other:.2f}: {self.growth:.1f} times as many "
            "micro-batches in the same pipeline.",
        ]
        lines += [
            f"  P={p.stages:<3} M = {_range(p.before)} before, {_range(p.after)} after"
            for p in self.pipelines()
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _range(counts: tuple[int, ...]) -> str:
    if not counts:
        return "none"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def memory_after(growth: float, activations: float) -> float:
    """Share of the memory that is left when a fixed batch is cut into `growth` times as many.

    activations: their share of the memory before. Under 1F1B as many micro-batches are in flight
    as before, and each is smaller, so only the activations shrink.
    """
    if growth < 1 or not 0 <= activations <= 1:
        raise ValueError("growth is at least 1, and a share of the memory lies between 0 and 1")
    return 1 - activations * (1 - 1 / growth)


def activations_for(growth: float, saved: float) -> float:
    """The share of activations before, for which `growth` times as many micro-batches of a fixed
    batch save `saved` of the memory; more than 1 when they cannot."""
    if growth <= 1:
        raise ValueError("with no more micro-batches than before nothing is saved")
    return saved / (1 - 1 / growth)
