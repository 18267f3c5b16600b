"""What each layer of a model costs: time, parameters, memory, and what it hands to the next.

A profile is measured (``pplab.profile``), read from a file, or made up for a thought experiment.
Everything that cuts a model into stages takes one. It is a *chain*: layers in order of execution.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core import profile_words

Floats = NDArray[np.float64]

FORMAT = "pplab.profile"
VERSION = 1


class ProfileError(ValueError):
    """A profile that cannot be read or makes no sense; the message says which layer and why."""


@dataclass(frozen=True)
class LayerProfile:
    """One layer, for one micro-batch.

    forward, backward: median time in the profile's unit (seconds when measured); backward is the
        whole backward pass
    spread:      how far repeats lie apart: half the interquartile range of forward + backward, in
                 the same unit; 0 when it is not known
    parameters:  number of *trainable* parameters (what DeepSpeed's ``parameters`` method counts)
    parameter_bytes: bytes of all its parameters
    activation_bytes: what it keeps from F to B of a micro-batch (saved tensors, no parameters)
    output_bytes: everything that crosses a cut right after this layer, for one micro-batch
    kind:        class name (what DeepSpeed's ``type:regex`` method matches)
    tied:        layers with the same key share their weights; None: shares with nobody
    """

    name: str
    forward: float
    backward: float
    spread: float = 0.0
    parameters: int = 0
    parameter_bytes: int = 0
    activation_bytes: int = 0
    output_bytes: int = 0
    kind: str = ""
    tied: str | None = None

    def __post_init__(self) -> None:
        for name in ("name", "kind", "tied"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "tied" and value is None):
                raise ProfileError(f"layer {self.name!r}: {name} is a text, not {value!r}")
        for name in ("forward", "backward", "spread", *WHOLE):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise ProfileError(f"layer {self.name!r}: {name} is a number, not {value!r}")
            if not math.isfinite(value) or value < 0:
                text = f"{name} is {value}; it must be finite and not negative"
                raise ProfileError(f"layer {self.name!r}: {text}")
            if name in WHOLE and value != int(value):
                raise ProfileError(f"layer {self.name!r}: {name} is {value}, not a whole number")
            object.__setattr__(self, name, int(value) if name in WHOLE else float(value))

    @property
    def time(self) -> float:
        """Forward and backward together."""
        return self.forward + self.backward


WHOLE = ("parameters", "parameter_bytes", "activation_bytes", "output_bytes")
LAYER_FIELDS = tuple(f.name for f in fields(LayerProfile))


@dataclass(frozen=True, repr=False)
class Profile:
    """The layers of a model, in order, and where the numbers come from.

    source:   "measured: ...", "PipeDream profile ...", "made up"; printed on every picture
    unit:     "s" for seconds, "units" for a thought experiment
    samples:  samples in the micro-batch the numbers hold for; 0 when unknown
    hardware: what it ran on; notes: what a reader must know, in sentences
    """

    layers: tuple[LayerProfile, ...]
    source: str = "made up"
    unit: str = "s"
    samples: int = 0
    hardware: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "notes", tuple(self.notes))
        if not self.layers:
            raise ProfileError("a profile needs at least one layer")
        if self.unit not in ("s", "units"):
            raise ProfileError(f"unit is 's' (seconds) or 'units', not {self.unit!r}")

    @classmethod
    def of(
        cls,
        costs: Iterable[float],
        *,
        names: Sequence[str] | None = None,
        backward_share: float = 2 / 3,
        unit: str = "units",
        source: str = "made up",
    ) -> Profile:
        """A profile from one cost (forward + backward) a layer, for a thought experiment.

        `backward_share` of each cost is backward: 2/3 when the backward pass takes twice as long.
        """
        layers = []
        for i, cost in enumerate(costs):
            forward = cost * (1 - backward_share)
            name = names[i] if names else f"layer {i}"
            layers.append(LayerProfile(name, forward, cost - forward))
        return cls(tuple(layers), source, unit)

    def __len__(self) -> int:
        return len(self.layers)

    def column(self, name: str) -> Floats:
        """One number a layer, e.g. ``column("output_bytes")``; shape (n,)."""
        return np.array([getattr(layer, name) for layer in self.layers], dtype=float)

    @cached_property
    def forward(self) -> Floats:
        """Forward time of each layer; shape (n,)."""
        return self.column("forward")

    @cached_property
    def backward(self) -> Floats:
        """Whole backward time of each layer; shape (n,)."""
        return self.column("backward")

    @cached_property
    def times(self) -> Floats:
        """Forward + backward of each layer; shape (n,)."""
        return self.forward + self.backward

    @property
    def tied(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the layers that share weights, by key; only keys that really are shared."""
        groups: dict[str, list[int]] = {}
        for i, layer in enumerate(self.layers):
            if layer.tied is not None:
                groups.setdefault(layer.tied, []).append(i)
        return {key: tuple(numbers) for key, numbers in groups.items() if len(numbers) > 1}

    def rescaled(
        self, bounds: Sequence[int], forward: Sequence[float], backward: Sequence[float]
    ) -> Profile:
        """The profile corrected by a run: slice s took ``forward[s]`` and ``backward[s]``.

        The layers of a slice keep their proportions; if none had a time, they share it evenly.
        bounds: slices + 1 numbers, 0 first and the number of layers last. Raises ProfileError when
        the lengths do not match.
        """
        slices = len(bounds) - 1
        if bounds[0] != 0 or bounds[-1] != len(self) or not len(forward) == len(backward) == slices:
            text = f"{slices} slices of {bounds[-1]} layers, {len(forward)} forward and "
            raise ProfileError(text + f"{len(backward)} backward times, {len(self)} layers here")
        layers: list[LayerProfile] = []
        for (a, b), *measured in zip(pairwise(bounds), forward, backward, strict=True):
            shares = [
                times[a:b] / times[a:b].sum() if times[a:b].any() else np.full(b - a, 1 / (b - a))
                for times in (self.forward, self.backward)
            ]
            layers += [
                replace(layer, forward=f * measured[0], backward=w * measured[1])
                for layer, f, w in zip(self.layers[a:b], *shares, strict=True)
            ]
        return replace(self, layers=tuple(layers), source=f"{self.source}, corrected by a run")

    # -- words ------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """One sentence, and a table with a line a layer."""
        return profile_words.text(self)

    def __repr__(self) -> str:
        origin = self.source.partition(":")[0]
        return f"[{origin}] {profile_words.sentence(self)}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """A notebook shows a profile as bars, and as text."""
        from pplab.view.profile_card import profile_bundle  # the one reason to look upwards

        return profile_bundle(self)

    # -- keeping it -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The profile as plain JSON values."""
        about = {"source": self.source, "unit": self.unit, "samples": self.samples}
        about |= {"hardware": dict(self.hardware), "notes": list(self.notes)}
        layers = [asdict(layer) for layer in self.layers]
        return {"format": FORMAT, "version": VERSION, **about, "layers": layers}

    @classmethod
    def from_json(cls, data: Any) -> Profile:
        """Reads what ``to_json`` makes; ProfileError says what is wrong with anything else."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ProfileError(f'not a profile: it lacks "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            found = data.get("version")
            raise ProfileError(f"profile version {found!r}; this pplab reads version {VERSION}")
        known = {f.name for f in fields(cls)} | {"format", "version"}
        _refuse_unknown(data, known, "the profile")
        rows = data.get("layers")
        if not isinstance(rows, list):
            raise ProfileError('the profile has no list of "layers"')
        layers = []
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise ProfileError(f"layer {i} is not an object with names, but {row!r}")
            _refuse_unknown(row, set(LAYER_FIELDS), f"layer {i}")
            missing = [name for name in ("name", "forward", "backward") if name not in row]
            if missing:
                raise ProfileError(f"layer {i} lacks {' and '.join(missing)}")
            layers.append(LayerProfile(**row))
        about = {k: v for k, v in data.items() if k not in ("format", "version", "layers")}
        return cls(tuple(layers), **about)

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read a profile: JSON that ``save`` wrote, or a PipeDream ``*.graph.txt``."""
        text = Path(path).read_text(encoding="utf-8")
        if text.lstrip().startswith("node"):
            from pplab.core.partition.pipedream import read

            return read(text, name=Path(path).name)
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ProfileError(f"{path} is neither JSON nor a PipeDream graph: {error}") from error
        try:
            return cls.from_json(data)
        except ProfileError as error:
            raise ProfileError(f"{path}: {error}") from None


def _refuse_unknown(data: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise ProfileError(f"{where} has unknown fields: {', '.join(map(str, unknown))}")
