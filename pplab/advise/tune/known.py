"""What short runs tell beyond the layers' own times: how they change in a pipeline, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: (stages, replicas, tensor, zero): runs of one shape tell about all plans of that shape.
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Overheads:
    """What a probe of one shape measured; the defaults are what is taken where none ran.

    forward, backward: measured time of the slices over that of the profile, for F and B
    overhead, latency: time between operations of a rank, and of a message (profile's unit)
    stretch: the probe's own pipeline over what the simulator makes of its measured costs: what
        simulating leaves out (operations that vary, replicas that wait for each other)
    ends:    from the last F or B of any rank to the end of the step: gradient reduction, optimizer
    working: the part of it that the ranks compute, the mean of them
    """

    forward: float = 1.0
    backward: float = 1.0
    overhead: float = 0.0
    latency: float = 0.0
    stretch: float = 1.0
    ends: float = 0.0
    working: float = 0.0


@dataclass(frozen=True)
class Split:
    """What splitting a backward pass costs: (B + W) / B undivided, and W's part of B + W."""

    factor: float = 1.0
    share: float = 0.5


@dataclass(frozen=True)
class Known:
    """Everything that probes told. split: None where schedules that split B cannot be priced;
    recompute: the time that recomputation adds to B, over the F it repeats (None: not known)."""

    shapes: Mapping[Shape, Overheads] = field(default_factory=dict)
    split: Split | None = None
    recompute: float | None = 1.0
    probes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    problems: Mapping[Shape, str] = field(default_factory=dict)

    def of(self, shape: Shape) -> Overheads:
        """Overheads of a shape: its own, else nothing."""
        return self.shapes.get(shape, Overheads())
