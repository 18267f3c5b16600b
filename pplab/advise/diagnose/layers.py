"""Which layers to move, when it is known which stage holds which."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition import PartitionError, minimax, partition
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedule import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moved:
    """Another cut: its bounds, seconds of F, B, W by slice (3, slices), and the move in words."""

    bounds: tuple[int, ...]
    stage: Floats
    sentence: str


@dataclass(frozen=True)
class Cut:
    """Where the model is cut: first layer of each slice and the number of layers; what a layer
    costs beside the others of its slice (a profile), if that is known; what the ranks follow."""

    bounds: tuple[int, ...]
    profile: Profile | None = None
    schedule: Schedule | None = None

    @property
    def now(self) -> str:
        """Layers of each slice, in words."""
        return " + ".join(str(b - a) for a, b in pairwise(self.bounds))

    @property
    def source(self) -> str:
        """Where the times of single layers come from."""
        if self.profile is None:
            return "measured by stage and shared out evenly among its layers"
        return f"from the profile ({self.profile.source}), scaled to the recorded stages"

    def best(self, stage: Floats) -> Moved | None:
        """The cut with the shortest step; None when the present one is as good.

        stage: seconds of F, B, W by slice as recorded (3, slices). Raises ValueError when the
        profile has another number of layers.
        """
        layers = self.bounds[-1]
        if self.profile is not None and len(self.profile.layers) != layers:
            raise ValueError(
                f"the profile has {len(self.profile.layers)} layers, the run {layers}: they do "
                "not belong together"
            )
        each = np.zeros((3, layers))
        for piece, (a, b) in enumerate(pairwise(self.bounds)):
            for kind in range(3):
                each[kind, a:b] = stage[kind, piece] * self._shares(kind, a, b)
        costs = each.sum(axis=0)
        bounds = self._bounds(each)
        if max(_loads(costs, bounds)) >= max(_loads(costs, self.bounds)) * (1 - 1e-3):
            return None
        moved = np.array([[each[k, a:b].sum() for a, b in pairwise(bounds)] for k in range(3)])
        return Moved(bounds, moved, self._sentence(bounds))

    def _bounds(self, each: Floats) -> tuple[int, ...]:
        """The cut that the schedule likes best, or the one with the least largest slice."""
        costs = each.sum(axis=0)
        if self.schedule is not None:
            rows = zip(each[0], costs - each[0], strict=True)
            layers = tuple(LayerProfile(f"layer {i}", f, b) for i, (f, b) in enumerate(rows))
            with suppress(PartitionError):  # a schedule of a kind it cannot cut for
                return partition(Profile(layers), schedule=self.schedule).bounds
        return minimax(costs, len(self.bounds) - 1)

    def _shares(self, kind: int, a: int, b: int) -> Floats:
        """How the time of a slice is shared among its layers; adds up to 1."""
        if self.profile is None:
            return np.full(b - a, 1 / (b - a))
        times = np.array(
            [layer.forward if kind == 0 else layer.backward for layer in self.profile.layers[a:b]]
        )
        return times / times.sum() if times.sum() > 0 else np.full(b - a, 1 / (b - a))

    def _sentence(self, bounds: tuple[int, ...]) -> str:
        counts = np.diff(bounds) - np.diff(self.bounds)
        taken = [(p, -int(n)) for p, n in enumerate(counts) if n < 0]
        given = [(p, int(n)) for p, n in enumerate(counts) if n > 0]

        def words(moves: list[tuple[int, int]]) -> str:
            return " and ".join(f"{n} layer{'s' * (n > 1)} {{}} stage {p}" for p, n in moves)

        away = words(taken).replace("{}", "from")
        to = ", ".join(f"{n} to stage {p}" for p, n in given)
        cuts = " + ".join(str(b - a) for a, b in pairwise(bounds))
        if not taken:
            return f"cut at bounds={bounds} ({cuts} layers)"
        return f"move {away} ({to}): bounds={bounds} gives {cuts} layers"


def _loads(costs: Floats, bounds: tuple[int, ...]) -> list[float]:
    return [float(costs[a:b].sum()) for a, b in pairwise(bounds)]
