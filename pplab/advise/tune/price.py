"""What a candidate costs: where its model is cut, its step, its bubble, its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.advise.tune.candidates import Candidate
from pplab.advise.tune.known import Known, Overheads
from pplab.advise.tune.machine import Machine
from pplab.advise.tune.sizes import Sizes
from pplab.core.costs import Costs
from pplab.core.memory import PipelineMemory, SliceLoad, pipeline_memory, profile_slices
from pplab.core.partition import DoesNotFit, Links, Partition, Problem, solve
from pplab.core.partition.certify import busiest, quick_bound
from pplab.core.profile import Profile
from pplab.core.schedule import Schedule
from pplab.core.schedules import SCHEDULES

Floats = NDArray[np.float64]


class TooLarge(ValueError):
    """Some rank needs more memory than it has: which, how much, and the cap, in bytes; and the step
    that it would take with memory enough."""

    def __init__(self, sentence: str, need: float, cap: float, step: float) -> None:
        super().__init__(sentence)
        self.need, self.cap, self.step = need, cap, step


@lru_cache(maxsize=1024)
def schedule_of(name: str, stages: int, micro_batches: int) -> Schedule:
    """A published schedule; raises ValueError (ScheduleError) where it does not exist."""
    return SCHEDULES[name](stages=stages, micro_batches=micro_batches).check()


@dataclass(frozen=True)
class Priced:
    """The times of one candidate under one cut; times in the profile's unit.

    pipeline: first F to last B (or W), as simulated, and stretched as the probe's was; ends:
    gradient reduction and optimizer after it; work: mean over the ranks of their operations;
    working: of the ends; memory: by rank.
    """

    partition: Partition
    pipeline: float
    ends: float
    work: float
    working: float
    memory: PipelineMemory
    costs: Costs

    @property
    def step(self) -> float:
        """Predicted step."""
        return self.pipeline + self.ends

    @property
    def bubble(self) -> float:
        """Idle / total: what is neither an operation nor the optimizer's own work."""
        busy = self.work + self.working
        return max(0.0, 1 - busy / self.step) if self.step else 0.0

    @property
    def idle(self) -> float:
        """Time a rank waits in a step, the mean over the ranks."""
        waits = self.pipeline - self.work
        return waits if waits > 1e-9 * self.pipeline else 0.0


@dataclass(frozen=True)
class Pricer:
    """Prices candidates of one model on one machine."""

    sizes: Sizes
    machine: Machine
    known: Known
    dtype: str = "fp32"

    # -- what is cut ------------------------------------------------------------------------------

    def profile(self, c: Candidate) -> Profile:
        """Times and bytes of the layers as this candidate runs them."""
        base, seen = self.sizes.at(c.micro_batch_size), self.overheads(c)
        again = 0.0
        if c.recompute:
            again = self.known.recompute if self.known.recompute is not None else 1.0
        splits = schedule_of(c.schedule, c.stages, c.micro_batches).splits_backward
        factor = self.known.split.factor if splits and self.known.split else 1.0
        layers = [
            replace(
                layer,
                forward=layer.forward * seen.forward,
                backward=layer.backward * seen.backward * factor
                + layer.forward * seen.forward * again,
            )
            for layer in base.layers
        ]
        return replace(base, layers=tuple(layers))

    def overheads(self, c: Candidate) -> Overheads:
        """What is known of the candidate's shape."""
        return self.known.of((c.stages, c.replicas, c.tensor, c.zero))

    def problem(self, c: Candidate, *, capped: bool = False) -> Problem:
        """What is to be cut; `capped` minds the memory of the ranks (nearly as ``memory`` does)."""
        seen, profile = self.overheads(c), self.profile(c)
        devices = self.machine.pipeline(c.topology)
        each = 16.0
        if capped:
            each = self._bytes_each(c)
            kept = _kept(profile, c.recompute)
            layers = [
                replace(layer, activation_bytes=round(bytes_))
                for layer, bytes_ in zip(profile.layers, kept, strict=True)
            ]
            profile = replace(profile, layers=tuple(layers))
        else:
            devices = tuple(replace(device, memory=np.inf) for device in devices)
        links = self.machine.links or Links(latency=seen.latency)
        schedule = schedule_of(c.schedule, c.stages, c.micro_batches)
        return Problem(profile, schedule, devices, links, each, overhead=seen.overhead)

    def _bytes_each(self, c: Candidate) -> float:
        """Bytes that a trainable parameter takes with gradient, optimizer and reduction bucket."""
        slices = [SliceLoad(1e6, 0.0)] * c.stages
        plan = schedule_of("1f1b", c.stages, 1)
        memory = pipeline_memory(slices, plan, **self._states(c))
        return memory.peak / 1e6

    # -- how long, how large ----------------------------------------------------------------------

    def bound(self, c: Candidate) -> float:
        """A time that no cut of this candidate beats: what makes it needless to look further."""
        problem = self.problem(c)
        least = busiest(problem)
        if problem.slices == problem.ranks and problem.ranks > 1:
            least = max(least, quick_bound(problem))
        return least + self.ends(c)

    def price(self, c: Candidate, method: str = "optimal") -> Priced:
        """The candidate under the cut that `method` finds; minding memory caps where they bind.

        Raises TooLarge when no cut fits, PartitionError for too few layers.
        """
        found = self.of_cut(c, solve(self.problem(c), method))
        if not self._over(c, found.memory):
            return found
        try:
            cut = solve(self.problem(c, capped=True), method)
        except DoesNotFit as error:
            raise self._too_large(c, found, error.proven) from error
        again = self.of_cut(c, Partition(self.problem(c), cut.bounds, f"{method}, within memory"))
        if self._over(c, again.memory):
            raise self._too_large(c, again, False)
        return again

    def of_cut(self, c: Candidate, cut: Partition) -> Priced:
        """The candidate under one cut."""
        problem, schedule = cut.problem, cut.problem.schedule
        share = self.known.split.share if self.known.split else 0.5
        costs = replace(cut.costs, weight=cut.backward * share)
        timeline = schedule.simulate(costs)
        many = schedule.micro_batches
        work = float(cut.rank_loads.sum()) * many / problem.ranks
        ends = self.ends(c)
        working = min(self.overheads(c).working, ends)
        costs = replace(costs, update=ends)
        pipeline = timeline.step_time * self.overheads(c).stretch
        return Priced(cut, pipeline, ends, work, working, self.memory(c, cut), costs)

    def ends(self, c: Candidate) -> float:
        """Gradient reduction and optimizer: as long as in the probe of the shape; where none ran,
        the reduction over the links that were given, and no optimizer."""
        if (c.stages, c.replicas, c.tensor, c.zero) in self.known.shapes:
            return self.overheads(c).ends
        heaviest = self.sizes.profiles[0].column("parameters").sum() / c.stages
        size = heaviest * (2 if self.dtype == "bf16" else 4)
        return self.machine.reduction(c.topology, size)

    def memory(self, c: Candidate, cut: Partition) -> PipelineMemory:
        """Bytes of every rank of the pipeline (``core.memory``)."""
        profile = self.sizes.at(c.micro_batch_size)
        slices = recomputing(profile, cut.bounds, c.recompute)
        return pipeline_memory(slices, cut.problem.schedule, **self._states(c))

    def _states(self, c: Candidate) -> dict[str, Any]:
        bf16 = self.dtype == "bf16"  # DeepSpeed's BF16_Optimizer: counted as ZeRO-1, see ``states``
        zero, precision = (1, "bf16-fp32") if bf16 else (c.zero, "fp32")
        return {"zero": zero, "replicas": c.replicas, "precision": precision}

    def _over(self, c: Candidate, memory: PipelineMemory) -> bool:
        caps = [device.memory for device in self.machine.pipeline(c.topology)]
        return any(rank.peak > cap for rank, cap in zip(memory.ranks, caps, strict=True))

    def _too_large(self, c: Candidate, found: Priced, proven: bool) -> TooLarge:
        from pplab.core.memory import size

        memory = found.memory
        caps = [device.memory for device in self.machine.pipeline(c.topology)]
        over = [rank.peak / cap for rank, cap in zip(memory.ranks, caps, strict=True)]
        rank = int(np.argmax(over))
        need, cap = memory.ranks[rank].peak, caps[rank]
        held = sum(memory.ranks[rank].in_flight)
        states = memory.ranks[rank].states
        text = (
            f"stage {rank} needs {size(need)} and has {size(cap)}: {size(states.device)} of "
            f"parameters, gradients and optimizer, {size(memory.ranks[rank].activations)} of "
            f"activations ({held} micro-batch{'es' * (held != 1)} held)"
        )
        return TooLarge(
            text + ("" if proven else "; no cut was found that fits"), need, cap, found.step
        )

    @cached_property
    def total(self) -> Floats:
        """F + B of all layers by measured size; shape (sizes,)."""
        return np.array([profile.times.sum() for profile in self.sizes.profiles])


def recomputing(profile: Profile, bounds: tuple[int, ...], interval: int) -> list[SliceLoad]:
    """What the slices ask of memory when only the inputs of every `interval` layers are kept.

    One group of layers at a time is computed again, and then keeps what it always does: that is
    counted as workspace. What the loss keeps stays: counted as large as the last layer's output.
    """
    slices = profile_slices(profile, bounds)
    if not interval:
        return slices
    kept = _kept(profile, interval, bounds)
    bytes_ = profile.column("activation_bytes")
    found = []
    for load, (a, b) in zip(slices, pairwise(bounds), strict=True):
        groups = [bytes_[i : min(i + interval, b)].sum() for i in range(a, b, interval)]
        found.append(replace(load, activation=float(kept[a:b].sum()), workspace=max(groups)))
    return found


def _kept(profile: Profile, interval: int, bounds: tuple[int, ...] = ()) -> Floats:
    """Bytes each layer keeps from F to B of a micro-batch; groups begin anew at each bound."""
    if not interval:
        return profile.column("activation_bytes")
    outputs = profile.column("output_bytes")
    arriving = np.concatenate(([0.0], outputs[:-1]))
    kept = np.zeros(len(profile))
    for a, b in pairwise(bounds or (0, len(profile))):
        kept[a:b:interval] = arriving[a:b:interval]
    kept[-1] += outputs[-1]
    return kept
