"""A cut and what it means: loads, step, bubble, memory, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.costs import Costs
from pplab.core.partition.cluster import Device
from pplab.core.partition.cuts import check_bounds
from pplab.core.partition.fit import gigabytes
from pplab.core.partition.problem import Problem
from pplab.core.profile import LayerProfile
from pplab.core.timeline import Timeline

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Partition:
    """How a model is cut for one schedule and its devices, with everything predicted from it.

    bounds: slice s holds the layers ``bounds[s]`` up to, not including, ``bounds[s + 1]``; with one
        chunk a rank slice s is stage s
    method: how the cut was found; proof: what is known about it, as a sentence without an end
    order:  rank r has the device number ``order[r]`` of those given (``problem.devices`` is
        already in this order)
    gap:    how much shorter the step of another cut could be at most, as a part; None: not known
    """

    problem: Problem
    bounds: tuple[int, ...]
    method: str = "bounds"
    proof: str = ""
    order: tuple[int, ...] = ()
    gap: float | None = None

    def __post_init__(self) -> None:
        bounds = check_bounds(self.bounds, self.problem.layers, self.problem.slices)
        object.__setattr__(self, "bounds", bounds)
        if not self.order:
            object.__setattr__(self, "order", tuple(range(self.problem.ranks)))

    @property
    def _one(self) -> NDArray[np.int64]:
        return np.array([self.bounds])

    def with_bounds(self, bounds: Sequence[int]) -> Partition:
        """The same problem cut elsewhere; raises PartitionError for bounds that are none."""
        return Partition(self.problem, tuple(bounds), order=self.order)

    def moved(self, cut: int, to: int) -> Partition:
        """With the start of slice `cut` (1 .. slices - 1) moved to layer `to`."""
        if not 1 <= cut < self.problem.slices:
            raise IndexError(f"cuts are numbered 1 to {self.problem.slices - 1}, not {cut}")
        return self.with_bounds((*self.bounds[:cut], to, *self.bounds[cut + 1 :]))

    def layers_of(self, piece: int) -> tuple[LayerProfile, ...]:
        """The layers of slice `piece`."""
        return self.problem.profile.layers[self.bounds[piece] : self.bounds[piece + 1]]

    @property
    def devices(self) -> tuple[Device, ...]:
        """The device of each rank."""
        return self.problem.devices

    # -- time ------------------------------------------------------------------------------------

    @cached_property
    def _times(self) -> tuple[Floats, Floats, Floats]:
        forward, backward, messages = self.problem.times(self._one)
        return forward[:, 0], backward[:, 0], messages[:, 0]

    @property
    def forward(self) -> Floats:
        """F of each slice on its device; shape (slices,)."""
        return self._times[0]

    @property
    def backward(self) -> Floats:
        """Whole B of each slice on its device; shape (slices,)."""
        return self._times[1]

    @property
    def messages(self) -> Floats:
        """Time of a message across each cut, 0 between slices of one rank; (slices - 1,)."""
        return self._times[2]

    @cached_property
    def loads(self) -> Floats:
        """F + B of each slice on its device; shape (slices,)."""
        return self.problem.loads(self._one)[:, 0]

    @cached_property
    def rank_loads(self) -> Floats:
        """F + B of all slices of each rank; shape (ranks,)."""
        total = np.zeros(self.problem.ranks)
        np.add.at(total, self.problem.rank_of, self.loads)
        return total

    @property
    def max_load(self) -> float:
        """F + B of the slowest rank: what a micro-batch costs in the long run."""
        return float(self.rank_loads.max())

    @property
    def imbalance(self) -> float:
        """Largest rank load over the mean, minus 1: 0 when all ranks work equally long."""
        mean = float(self.rank_loads.mean())
        return self.max_load / mean - 1 if mean else 0.0

    @property
    def costs(self) -> Costs:
        """For ``schedule.simulate``; latency: shape (slices - 1,)."""
        return Costs(
            forward=self.forward,
            backward=self.backward,
            latency=self.messages,
            overhead=self.problem.overhead,
            unit=self.problem.profile.unit,
        )

    @cached_property
    def timeline(self) -> Timeline:
        """The simulated step, every cut with its own message time."""
        return self.problem.schedule.simulate(self.costs)

    @property
    def step(self) -> float:
        """Predicted step time, without the optimizer and the exchange between replicas."""
        return self.timeline.step_time

    @property
    def bubble(self) -> float:
        """Predicted idle / total."""
        return self.timeline.bubble

    # -- memory ----------------------------------------------------------------------------------

    @cached_property
    def memory(self) -> Floats:
        """Predicted peak bytes of each rank (see ``Problem``); shape (ranks,)."""
        return self.problem.memory(self._one)[:, 0]

    @property
    def fits(self) -> bool:
        """Whether memory caps and ties (where asked for) are kept."""
        return not self.problem.excess(self._one)[0]

    @property
    def overfull(self) -> tuple[int, ...]:
        """Ranks that need more memory than their device has."""
        return tuple(np.flatnonzero(self.memory > self.problem.caps).tolist())

    # -- words -----------------------------------------------------------------------------------

    def time(self, value: float) -> str:
        """A time in words, in the profile's unit."""
        unit = self.problem.profile.unit
        return f"{value * 1e3:.4g} ms" if unit == "s" else f"{value:.4g} {unit}"

    def sentence(self) -> str:
        """What a picture of the cut shows."""
        schedule, layout = self.problem.schedule, self.problem.schedule.layout
        what = "stages" if layout.chunks == 1 else f"ranks x {layout.chunks} chunks"
        slow = int(np.argmax(self.rank_loads))
        text = (
            f"{self.problem.layers} layers on {self.problem.ranks} {what}, {self.method}: cut at "
            f"{', '.join(map(str, self.bounds[1:-1])) or 'no place'}; the slowest rank is {slow} "
            f"with {self.time(self.max_load)}, {self.imbalance:.0%} above the mean; "
            f"{schedule.name} with {schedule.micro_batches} micro-batches: step "
            f"{self.time(self.step)}, {self.bubble:.0%} idle"
        )
        if self.order != tuple(range(self.problem.ranks)):
            names = [d.name or f"device {i}" for i, d in zip(self.order, self.devices, strict=True)]
            text += f"; in the order {', '.join(names)}"
        if self.memory.any():
            most = int(np.argmax(self.memory))
            text += f"; most memory: rank {most}, {gigabytes(self.memory[most])}"
        for rank in self.overfull:
            cap = gigabytes(self.devices[rank].memory)
            text += f"; rank {rank} needs {gigabytes(self.memory[rank])} and has {cap}"
        return text + (f" ({self.proof})" if self.proof else "")

    def summary(self) -> dict[str, Any]:
        """The numbers as plain values, for a table or a widget."""
        return {
            "method": self.method,
            "bounds": list(self.bounds),
            "loads": self.loads.tolist(),
            "max_load": self.max_load,
            "imbalance": self.imbalance,
            "step": self.step,
            "bubble": self.bubble,
            "memory": self.memory.tolist(),
            "fits": self.fits,
            "order": list(self.order),
            "unit": self.problem.profile.unit,
            "proof": self.proof,
        }

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        return f"<Partition {list(self.bounds)}: {self}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: the cut with handles to drag, beside the optimal one."""
        from pplab.view import partition_bundle  # a display is the one reason to look up

        return partition_bundle([self])


class Partitions(list[Partition]):
    """The same model cut in several ways: a list that a notebook shows as one picture."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: the cuts under each other, and handles to make one's own."""
        from pplab.view import partition_bundle

        return partition_bundle(self) if self else {"text/plain": "no partitions"}
