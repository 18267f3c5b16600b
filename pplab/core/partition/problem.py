"""What is to be cut, for which schedule and on which devices: every cost of every cut.

A *slice* is a contiguous piece of the layer list; slice s runs on the rank that the schedule's
layout gives it. Everything the search needs is answered here, for one cut or for many at once
(bounds of shape (K, slices + 1)): times, message times, memory, and what breaks a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition.cluster import Device, Links
from pplab.core.partition.cuts import PartitionError, check_parts, prefix_sums
from pplab.core.partition.inflight import in_flight
from pplab.core.partition.stepper import Stepper
from pplab.core.profile import Profile
from pplab.core.schedule import Schedule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A profile, a schedule, and the device of each rank.

    bytes_per_parameter: memory of one trainable parameter with all that belongs to it; 16 for Adam
        (weight, gradient and two moments in float32, or bf16 with a float32 master copy). A layer
        never takes less than its own parameter_bytes, so frozen layers count once.
    keep_tied: layers that share weights must stay on one rank
    overhead:  time a rank loses before each operation (as in ``Costs``)

    Memory of a rank = parameters x bytes_per_parameter (tied weights once) + the activations in
    flight at its peak. Not in it: message buffers, temporaries, fragmentation. Not in the times:
    the optimizer, and the exchange of gradients between replicas and between tied layers.
    """

    profile: Profile
    schedule: Schedule
    devices: tuple[Device, ...]
    links: Links = field(default_factory=Links)
    bytes_per_parameter: float = 16.0
    keep_tied: bool = False
    overhead: float = 0.0

    def __post_init__(self) -> None:
        self.schedule.check()
        object.__setattr__(self, "devices", tuple(self.devices))
        if len(self.devices) != self.schedule.stages:
            text = f"{len(self.devices)} devices for {self.schedule.stages} ranks"
            raise PartitionError("bad-device", text)
        check_parts(self.layers, self.slices)

    # -- sizes -----------------------------------------------------------------------------------

    @property
    def layers(self) -> int:
        """Layers of the model (n)."""
        return len(self.profile)

    @property
    def slices(self) -> int:
        """Slices the model is cut into: ranks x chunks."""
        return self.schedule.layout.slices

    @property
    def ranks(self) -> int:
        """Ranks of the pipeline (P)."""
        return self.schedule.stages

    @cached_property
    def rank_of(self) -> Ints:
        """Rank that runs each slice; shape (slices,)."""
        return np.array([self.schedule.layout.place_of(s)[0] for s in range(self.slices)])

    @cached_property
    def speed(self) -> Floats:
        """Speed of the device of each slice; shape (slices,)."""
        return np.array([self.devices[rank].speed for rank in self.rank_of])

    @property
    def plain(self) -> bool:
        """True when only the loads matter: equal devices, free messages, no cap and no tie."""
        return (
            len({device.speed for device in self.devices}) == 1
            and self.links.free
            and not self.capped
            and not (self.keep_tied and self.profile.tied)
        )

    @property
    def capped(self) -> bool:
        """True when some device has a memory cap."""
        return bool(np.any(np.isfinite(self.caps)))

    @cached_property
    def caps(self) -> Floats:
        """Memory of each rank's device in bytes; shape (ranks,)."""
        return np.array([device.memory for device in self.devices])

    def reordered(self, order: Ints | tuple[int, ...]) -> Problem:
        """The same problem with ``devices[order[r]]`` on rank r."""
        return replace(self, devices=tuple(self.devices[i] for i in order))

    # -- time ------------------------------------------------------------------------------------

    @cached_property
    def _sums(self) -> tuple[Floats, Floats, Floats]:
        profile = self.profile
        return tuple(map(prefix_sums, (profile.forward, profile.backward, profile.times)))  # type: ignore[return-value]

    @property
    def prefix(self) -> Floats:
        """Forward + backward of the first 0, 1, ... n layers on the profile's device; (n + 1,)."""
        return self._sums[2]

    @cached_property
    def cut_times(self) -> Floats:
        """Time of a message across cut c (before slice c) when it is after i layers.

        Shape (slices + 1, n + 1). The ends of the model send nothing; neither does a cut between
        two slices of one rank.
        """
        times = np.zeros((self.slices + 1, self.layers + 1))
        size = np.concatenate(([0.0], self.profile.column("output_bytes")))
        for c, (a, b) in enumerate(pairwise(self.rank_of.tolist()), start=1):
            if a != b:
                latency, per_byte = self.links.rule(self.devices[a], self.devices[b])
                times[c] = latency + size * per_byte
        return times

    def times(self, bounds: Ints) -> tuple[Floats, Floats, Floats]:
        """Forward and backward of each slice (slices, K), messages across cuts (slices - 1, K)."""
        forward, backward, _ = (np.diff(sums[bounds], axis=1).T for sums in self._sums)
        messages = self.cut_times[np.arange(1, self.slices)[:, None], bounds[:, 1:-1].T]
        return forward / self.speed[:, None], backward / self.speed[:, None], messages

    def loads(self, bounds: Ints) -> Floats:
        """Forward + backward of each slice on its device; shape (slices, K)."""
        return np.diff(self.prefix[bounds], axis=1).T / self.speed[:, None]

    @cached_property
    def stepper(self) -> Stepper:
        """Step times of the schedule."""
        return Stepper(self.schedule, self.overhead)

    def steps(self, bounds: Ints) -> Floats:
        """Step time of each cut under the schedule; bounds (K, slices + 1), result (K,)."""
        return self.stepper.steps(*self.times(bounds))

    # -- memory ----------------------------------------------------------------------------------

    @cached_property
    def in_flight(self) -> tuple[Ints, ...]:
        """Peak holdings of each rank, see ``inflight``."""
        return in_flight(self.schedule)

    @cached_property
    def static(self) -> Floats:
        """Bytes each layer takes whatever runs: parameters, gradients, optimizer; shape (n,)."""
        own = self.profile.column("parameters") * self.bytes_per_parameter
        return np.maximum(own, self.profile.column("parameter_bytes"))

    @cached_property
    def shared(self) -> dict[str, float]:
        """Bytes that the layers of each tied group share: what the smallest of them takes."""
        return {key: min(self.static[list(nums)]) for key, nums in self.profile.tied.items()}

    @cached_property
    def byte_sums(self) -> tuple[Floats, Floats]:
        """Prefix sums of ``static`` and of the activations of one micro-batch; (n + 1,) each."""
        return prefix_sums(self.static), prefix_sums(self.profile.column("activation_bytes"))

    def memory(self, bounds: Ints) -> Floats:
        """Peak bytes of each rank; shape (ranks, K)."""
        static, activations = (np.diff(sums[bounds], axis=1) for sums in self.byte_sums)
        found = np.zeros((self.ranks, len(bounds)))
        np.add.at(found, self.rank_of, static.T)
        table = self.schedule.layout.table()
        for rank, counts in enumerate(self.in_flight):
            found[rank] += (activations[:, table[rank]] @ counts.T).max(axis=1)
        for key, numbers in self.profile.tied.items():
            homes = self._homes(bounds, numbers)
            for k in range(1, len(numbers)):
                again = np.flatnonzero(np.any(homes[:k] == homes[k], axis=0))
                found[homes[k, again], again] -= self.shared[key]
        return found

    def _homes(self, bounds: Ints, layers: tuple[int, ...]) -> Ints:
        """Rank of each of some layers; shape (len(layers), K)."""
        slices = np.stack([(bounds[:, 1:-1] <= layer).sum(axis=1) for layer in layers])
        return self.rank_of[slices]

    # -- rules -----------------------------------------------------------------------------------

    def excess(self, bounds: Ints) -> Floats:
        """How far each cut is from keeping the rules, 0 when it keeps them; shape (K,).

        The sum over ranks of memory above the cap, in caps, and 1 for each tied layer away from
        the first of its group.
        """
        over = np.zeros(len(bounds))
        if self.capped:
            over += np.maximum(self.memory(bounds) / self.caps[:, None] - 1, 0).sum(axis=0)
        if self.keep_tied:
            for numbers in self.profile.tied.values():
                homes = self._homes(bounds, numbers)
                over += np.sum(homes != homes[0], axis=0)
        return over

    @cached_property
    def may_cut(self) -> NDArray[np.bool_]:
        """Whether a cut after i layers can keep tied layers together; shape (n + 1,).

        Only known cut by cut with one slice a rank: then all layers from the first to the last of
        a group must be in one slice.
        """
        allowed = np.ones(self.layers + 1, dtype=bool)
        if self.keep_tied and self.slices == self.ranks:
            for numbers in self.profile.tied.values():
                allowed[numbers[0] + 1 : numbers[-1] + 1] = False
        return allowed
