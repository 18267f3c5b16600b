"""What everything costs: explicit numbers, never constants hidden in the simulator.

Times are in seconds for measured costs and in whatever the reader likes (``unit="units"``) for a
thought experiment. Each may be one number, one per slice of the model (stage, or virtual stage),
or one per slice and micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """Durations of operations and messages.

    forward:   F of a slice and micro-batch: a number, shape (slices,) or (slices, micro_batches)
    backward:  the *whole* backward pass, B + W
    weight:    the part of `backward` that W takes when a schedule splits it off (default: half)
    update:    gradient reduction and optimizer step of a rank, once all ranks are done; shape () or
               (ranks,)
    latency:   from the end of an operation to the moment its message can be used on another rank:
               one number, or one per cut between two slices, shape (slices - 1,)
    message_bytes, bandwidth: bytes of one activation (or its gradient) and bytes per time unit;
               they add ``message_bytes / bandwidth`` to every message
    overhead:  time a rank loses before each of its operations (launching, bookkeeping)
    unit:      "s" for seconds, "units" for a thought experiment; printed on every picture
    """

    forward: ArrayLike = 1.0
    backward: ArrayLike = 2.0
    weight: ArrayLike | None = None
    update: ArrayLike = 0.0
    latency: ArrayLike = 0.0
    message_bytes: float = 0.0
    bandwidth: float = float("inf")
    overhead: float = 0.0
    unit: str = "units"

    def __post_init__(self) -> None:
        for name in (
            "forward",
            "backward",
            "weight",
            "update",
            "latency",
            "message_bytes",
            "overhead",
        ):
            value = getattr(self, name)
            if value is None:
                continue
            array = np.asarray(value, dtype=float)
            if not np.all(np.isfinite(array)) or np.any(array < 0):
                raise ValueError(f"{name} must be finite and not negative, not {value}")
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth must be positive, not {self.bandwidth}")
        weight, backward = _column(self._weight()), _column(self.backward)
        try:
            too_much = bool(np.any(weight > backward))
        except ValueError:  # shapes that do not fit are reported by `table`, which knows the sizes
            too_much = False
        if too_much:
            raise ValueError("weight is the part of backward that W takes: it cannot exceed it")

    def _weight(self) -> Any:
        if self.weight is None:
            return np.asarray(self.backward, dtype=float) / 2
        return np.asarray(self.weight, dtype=float)

    def messages(self, slices: int) -> Floats:
        """Time from the end of an operation until another rank can use its result, by the cut that
        the message crosses; shape (slices - 1,). Raises ValueError for another number of cuts."""
        message = np.asarray(self.latency, dtype=float) + self.message_bytes / self.bandwidth
        cuts = max(0, slices - 1)
        if message.ndim and message.shape != (cuts,):
            raise ValueError(
                f"latency has shape {message.shape}; give one number or {cuts} (one per cut)"
            )
        return np.broadcast_to(message, (cuts,))

    def table(self, slices: int, micro_batches: int) -> Floats:
        """Durations by [F, B (whole), W][slice][micro-batch]; shape (3, slices, micro_batches).

        Raises ValueError when a field has another number of slices or micro-batches.
        """
        rows = [
            _spread(name, value, slices, micro_batches)
            for name, value in (
                ("forward", self.forward),
                ("backward", self.backward),
                ("weight", self._weight()),
            )
        ]
        return np.stack(rows)

    def updates(self, ranks: int) -> Floats:
        """Duration of the optimizer step by rank; shape (ranks,)."""
        update = np.asarray(self.update, dtype=float)
        if update.ndim and update.shape != (ranks,):
            raise ValueError(f"update has shape {update.shape}; give one number or {ranks}")
        return np.broadcast_to(update, (ranks,))


def _column(value: ArrayLike) -> Floats:
    """The value as an array; a row of numbers is one per slice, so it becomes a column."""
    array = np.asarray(value, dtype=float)
    return array[:, None] if array.ndim == 1 else array


def _spread(name: str, value: ArrayLike, slices: int, micro_batches: int) -> Floats:
    array = _column(value)
    want = (slices, micro_batches)
    fits = array.ndim <= 2 and all(
        have in (1, need) for have, need in zip(array.shape, want, strict=False)
    )
    if not fits:
        raise ValueError(
            f"{name} has shape {np.shape(value)}; give one number, {slices} numbers (one per "
            f"slice of the model) or {slices} x {micro_batches} (per slice and micro-batch)"
        )
    return np.broadcast_to(array, want)
