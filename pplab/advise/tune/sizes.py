"""What every layer costs at any micro-batch size, from profiles measured at some sizes.

Nothing is assumed about how times grow: between two measured sizes a straight line is drawn, and
sizes outside the measured ones are not offered. ``fixed`` and ``per_sample`` say in two numbers
what the lines look like: what every micro-batch pays, and what every sample pays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pplab.core.profile import LayerProfile, Profile
from pplab.core.words import duration

Floats = NDArray[np.float64]

#: Fields of a layer that depend on the size of a micro-batch.
SCALED = ("forward", "backward", "spread", "activation_bytes", "output_bytes")


@dataclass(frozen=True)
class Sizes:
    """Profiles of one model by micro-batch size, smallest first.

    said: gives the exact profile of a size, where nothing needs to be measured (paced layers).
    only: the sizes that may be used then; () for any.
    """

    profiles: tuple[Profile, ...]
    said: Callable[[int], Profile] | None = None
    only: tuple[int, ...] = ()

    @classmethod
    def of(cls, profiles: Profile | Iterable[Profile], size: int | None = None) -> Sizes:
        """From one profile or several; `size`: samples, for a single one that does not say.

        Raises ValueError when they are not of one model, or two are of one size.
        """
        found = [profiles] if isinstance(profiles, Profile) else list(profiles)
        if not found:
            raise ValueError("give at least one profile")
        if len(found) == 1 and not found[0].samples:
            if size is None:
                raise ValueError(
                    "the profile does not say for how many samples its times hold: give "
                    "micro_batch_sizes=(4,), say"
                )
            found = [replace(found[0], samples=size)]
        if any(not profile.samples for profile in found):
            raise ValueError("each of several profiles must say its samples (Profile.samples)")
        found.sort(key=lambda profile: profile.samples)
        names = {tuple(layer.name for layer in profile.layers) for profile in found}
        if len(names) > 1:
            raise ValueError("the profiles are not of one model: their layers differ in name")
        if len({profile.unit for profile in found}) > 1:
            raise ValueError("the profiles are in different units")
        sizes = [profile.samples for profile in found]
        if len(set(sizes)) < len(sizes):
            raise ValueError(f"two profiles are of the same micro-batch size: {sizes}")
        return cls(tuple(found))

    @property
    def measured(self) -> tuple[int, ...]:
        """The sizes that were measured."""
        return tuple(profile.samples for profile in self.profiles)

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return len(self.profiles[0])

    @property
    def unit(self) -> str:
        """Unit of the times."""
        return self.profiles[0].unit

    @property
    def source(self) -> str:
        """Where the times come from."""
        return self.profiles[0].source

    def why_not(self, size: int) -> str:
        """Why a size cannot be priced; "" when it can."""
        if self.said is not None:
            if self.only and size not in self.only:
                return f"paced layers take their time whatever the size: {self.only[0]} is kept"
            return ""
        low, high = self.measured[0], self.measured[-1]
        if low <= size <= high:
            return ""
        if low == high:
            return f"the layers were only measured with {low} samples"
        return f"the layers were measured with {low} to {high} samples only"

    def at(self, size: int) -> Profile:
        """The profile at a size; raises ValueError for one that cannot be priced."""
        if why := self.why_not(size):
            raise ValueError(f"no times for micro-batches of {size}: {why}")
        if self.said is not None:
            return replace(self.said(size), samples=size)
        for profile in self.profiles:
            if profile.samples == size:
                return profile
        above = next(i for i, samples in enumerate(self.measured) if samples > size)
        return between(self.profiles[above - 1], self.profiles[above], size)

    # -- the shape of the lines -------------------------------------------------------------------

    @cached_property
    def line(self) -> tuple[Floats, Floats]:
        """(fixed, per_sample) time of F + B by layer, least squares; shape (layers,) twice.

        With one size nothing is known of the fixed part: all of it counts as per sample.
        """
        times = np.array([profile.times for profile in self.profiles])
        sizes = np.array(self.measured, dtype=float)
        if len(sizes) == 1:
            return np.zeros(self.layers), times[0] / sizes[0]
        slope, fixed = np.polyfit(sizes, times, 1)
        low = fixed < 0  # a layer that is a little slower than in proportion: no fixed part
        through = (sizes[:, None] * times).sum(axis=0) / (sizes**2).sum()
        return np.where(low, 0.0, fixed), np.where(low, through, slope)

    @property
    def residual(self) -> float:
        """How far the whole model's time is from its straight line at worst, as a part of it."""
        fixed, slope = (float(part.sum()) for part in self.line)
        told = np.array([fixed + slope * size for size in self.measured])
        took = np.array([profile.times.sum() for profile in self.profiles])
        return float(np.max(np.abs(told / took - 1))) if took.all() else 0.0

    def sentence(self) -> str:
        """What the sizes cost, in words."""
        if self.said is not None:
            return f"{self.layers} layers whose times are set ({self.source})"
        if len(self.profiles) == 1:
            return f"{self.layers} layers, measured with {self.measured[0]} samples a micro-batch"
        fixed, slope = (duration(float(part.sum()), self.unit, 3) for part in self.line)
        return (
            f"{self.layers} layers, measured with {_listed(self.measured)} samples a micro-batch: "
            f"F + B of all layers is about {fixed} + {slope} a sample (off by {self.residual:.0%} "
            "at most)"
        )


def between(low: Profile, high: Profile, size: int) -> Profile:
    """The profile on the straight line between two sizes."""
    share = (size - low.samples) / (high.samples - low.samples)
    layers = []
    for a, b in zip(low.layers, high.layers, strict=True):
        values = {
            name: getattr(a, name) + share * (getattr(b, name) - getattr(a, name))
            for name in SCALED
        }
        for name in ("activation_bytes", "output_bytes"):
            values[name] = round(values[name])
        layers.append(_layer(a, values))
    source = f"{low.source}, between {low.samples} and {high.samples} samples"
    return replace(low, layers=tuple(layers), samples=size, source=source)


def _layer(layer: LayerProfile, values: dict[str, float]) -> LayerProfile:
    return replace(layer, **values)  # type: ignore[arg-type]


def _listed(numbers: Sequence[int]) -> str:
    texts = list(map(str, numbers))
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
