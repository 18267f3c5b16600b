"""The machines a model is cut for: how fast, how much memory, and what a message costs.

Times in a profile are those of *one* kind of device; `speed` says how much faster another one is.
One number for a whole device is an approximation: an A100 is not the same factor faster than a
V100 in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from pplab.core.partition.cuts import PartitionError


@dataclass(frozen=True, order=True)
class Device:
    """One device of the pipeline.

    speed:  times as fast as the device of the profile (2.0: half the time)
    memory: bytes it may use; infinite when memory is no concern
    node:   which machine it sits in; messages inside a node may be cheaper
    name:   for sentences ("A100")
    """

    speed: float = 1.0
    memory: float = inf
    node: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if not (self.speed > 0 and isfinite(self.speed)):
            raise PartitionError("bad-device", f"a speed is positive and finite, not {self.speed}")
        if not self.memory > 0:
            raise PartitionError("bad-device", f"memory is positive (bytes), not {self.memory}")


def devices(
    count: int,
    *,
    speed: float | Sequence[float] = 1.0,
    memory: float | Sequence[float] = inf,
    per_node: int | None = None,
    names: Sequence[str] | str = "",
) -> tuple[Device, ...]:
    """`count` devices in the order of the ranks; each argument is one value or one per device.

    per_node: how many neighbouring ranks share a node; default: all are in one.
    Raises PartitionError when a list has another length.
    """
    columns: dict[str, list[Any]] = {}
    for field, value in (("speed", speed), ("memory", memory), ("name", names)):
        single = isinstance(value, str) or np.ndim(value) == 0
        column = [value] * count if single else list(value)  # type: ignore[arg-type]
        if len(column) != count:
            text = f"{field} has {len(column)} entries; give one value or {count}"
            raise PartitionError("bad-device", text)
        columns[field] = column
    size = per_node or count
    return tuple(
        Device(float(s), float(m), i // size, n)
        for i, (s, m, n) in enumerate(
            zip(columns["speed"], columns["memory"], columns["name"], strict=True)
        )
    )


@dataclass(frozen=True)
class Links:
    """What a message costs: ``latency + bytes / bandwidth``, inside a node and across nodes.

    latency in the profile's time unit, bandwidth in bytes per time unit. What is not given for
    `across` is as inside. Nothing costs nothing: the default is free messages.
    """

    latency: float = 0.0
    bandwidth: float = inf
    across_latency: float | None = None
    across_bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("latency", "across_latency"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and isfinite(value)):
                raise PartitionError("bad-link", f"{name} is finite and >= 0, not {value}")
        for name in ("bandwidth", "across_bandwidth"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise PartitionError("bad-link", f"{name} is positive, not {value}")

    def rule(self, a: Device, b: Device) -> tuple[float, float]:
        """(latency, time per byte) between two devices."""
        across = a.node != b.node
        latency, bandwidth = self.latency, self.bandwidth
        if across and self.across_latency is not None:
            latency = self.across_latency
        if across and self.across_bandwidth is not None:
            bandwidth = self.across_bandwidth
        return latency, 1.0 / bandwidth

    @property
    def free(self) -> bool:
        """True when no message costs anything."""
        latencies = (self.latency, self.across_latency or 0.0)
        bandwidths = (self.bandwidth, self.across_bandwidth or inf)
        return not any(latencies) and all(b == inf for b in bandwidths)
