"""Memory of every rank of a pipeline, from what its slices need and the order of its operations.

    rest      = parameters + optimizer states (+ older weight versions) + communication buffers
    backward  = rest + gradients + activations in flight + workspace of one layer
                (under ZeRO-3 also that layer's whole weights and gradients)
    reduction = rest + gradients + one bucket, where there are replicas to reduce over
    update    = rest + gradients + fp32 copy of the gradient

and the peak is the largest of them. How many micro-batches a rank holds is read off the *schedule*:
min(P - s, M) for stage s of 1F1B, M for GPipe, whatever comes out for any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pplab.core.memory.slices import SliceLoad, transformer_slices
from pplab.core.memory.states import Precision, States, model_states, precision_of
from pplab.core.memory.transformer import Transformer
from pplab.core.partition.inflight import in_flight
from pplab.core.schedule import Schedule, ScheduleMaker
from pplab.core.schedules.one_f_one_b import one_f_one_b
from pplab.core.schedules.weights import versions_held
from pplab.core.words import aligned

#: DeepSpeed's bucket for the reduction at the end of a step, in elements
#: (``runtime/engine.py``: MEMORY_OPT_ALLREDUCE_SIZE).
BUCKET = 500_000_000


@dataclass(frozen=True)
class RankMemory:
    """One rank; everything in bytes.

    in_flight:  micro-batches held at the peak, by chunk
    activations: what those keep, outputs included
    buffers:    for received activations and gradients
    versions:   older copies of the weights, beside the newest one
    """

    rank: int
    parameters: float
    states: States
    versions: float
    in_flight: tuple[int, ...]
    activations: float
    workspace: float
    buffers: float
    bucket: float

    @property
    def rest(self) -> float:
        """Between two steps."""
        return self.states.resting + self.versions + self.buffers

    @property
    def phases(self) -> dict[str, float]:
        """Peak of each phase of a step."""
        loaded = self.rest + self.states.gradients
        return {
            "backward": loaded + self.activations + self.workspace,
            "reduction": loaded + self.bucket,
            "update": loaded + self.states.at_step,
        }

    @property
    def peak(self) -> float:
        """The most this rank needs."""
        return max(self.phases.values())

    @property
    def phase(self) -> str:
        """The phase that needs it."""
        return max(self.phases, key=lambda name: self.phases[name])


@dataclass(frozen=True)
class PipelineMemory:
    """All ranks of one pipeline; replicas are alike, and so are tensor-parallel ranks."""

    ranks: tuple[RankMemory, ...]
    schedule: str
    micro_batches: int
    zero: int
    replicas: int

    @property
    def peak(self) -> float:
        """Bytes of the rank that needs most."""
        return max(rank.peak for rank in self.ranks)

    @property
    def worst(self) -> RankMemory:
        """The rank that needs most."""
        return max(self.ranks, key=lambda rank: rank.peak)

    def fits(self, device_bytes: float) -> bool:
        """True when every rank fits into `device_bytes`; the process itself is not counted."""
        return self.peak <= device_bytes

    def sentence(self) -> str:
        """What a table of it shows, in one or two sentences."""
        low = min(self.ranks, key=lambda rank: rank.peak)
        text = (
            f"{len(self.ranks)} ranks, {self.schedule}, {self.micro_batches} micro-batches, "
            f"ZeRO-{self.zero} over {self.replicas} replica(s): rank {self.worst.rank} needs most, "
            f"{size(self.peak)} ({self.worst.phase}), rank {low.rank} least, {size(low.peak)}."
        )
        if self.zero >= 2 and len(self.ranks) > 1:
            text += f" DeepSpeed refuses ZeRO-{self.zero} with a pipeline."
        return text

    def rows(self) -> list[tuple[str, ...]]:
        """Cells of the table, the header first."""
        head = ("rank", "in flight", "parameters", "gradients", "optimizer", "activations")
        found: list[tuple[str, ...]] = [(*head, "workspace", "other", "peak", "set by")]
        for r in self.ranks:
            other = r.versions + r.buffers
            amounts = (r.states.parameters, r.states.gradients, r.states.optimizer)
            cells = (*amounts, r.activations, r.workspace, other, r.peak)
            held = "+".join(map(str, r.in_flight))
            found.append((str(r.rank), held, *(size(cell) for cell in cells), r.phase))
        return found

    def __str__(self) -> str:
        return f"{self.sentence()}\n{aligned(self.rows(), left=())}"

    def __repr__(self) -> str:
        return f"<PipelineMemory {self.sentence()}>"

    def _repr_html_(self) -> str:
        head, *rows = self.rows()
        top = "".join(f"<th>{cell}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows
        )
        return (
            f"<p>{self.sentence()}</p><table><thead><tr>{top}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


def pipeline_memory(
    slices: Sequence[SliceLoad],
    schedule: Schedule,
    *,
    zero: int = 0,
    replicas: int = 1,
    precision: str | Precision = "fp16",
    offload_optimizer: str | None = None,
    offload_parameters: str | None = None,
    bucket: int = BUCKET,
) -> PipelineMemory:
    """Memory of the ranks that run `schedule` on `slices` (one a stage and chunk, model order).

    ZeRO-2 and 3 with more than one stage are computed as well, for comparison: DeepSpeed refuses
    them. Raises ScheduleError when the schedule cannot run, ValueError for settings that clash.
    """
    schedule.check()
    layout = schedule.layout
    if len(slices) != layout.slices:
        raise ValueError(f"{schedule.name} has {layout.slices} slices, not {len(slices)}")
    kind = precision_of(precision)
    whole = kind.parameter + kind.gradient
    holdings, versions = in_flight(schedule), versions_held(schedule)
    found = []
    for rank in range(schedule.stages):
        numbers = [layout.slice_of(rank, chunk) for chunk in range(layout.chunks)]
        mine = [slices[number] for number in numbers]
        parameters = sum(load.parameters for load in mine)
        trainable = sum(
            load.parameters if load.trainable is None else load.trainable for load in mine
        )
        states = model_states(
            parameters,
            trainable=trainable,
            zero=zero,
            replicas=replicas,
            precision=kind,
            offload_optimizer=offload_optimizer,
            offload_parameters=offload_parameters,
        )
        each = np.array([load.activation + load.kept_output for load in mine])
        ways = holdings[rank] @ each
        fullest = int(np.argmax(ways))
        found.append(
            RankMemory(
                rank,
                parameters,
                states,
                versions=(versions[rank] - 1) * kind.parameter * parameters,
                in_flight=tuple(holdings[rank][fullest].tolist()),
                activations=float(ways[fullest]),
                workspace=max(load.workspace for load in mine)
                + (whole * max(load.largest_layer for load in mine) if zero == 3 else 0.0),
                buffers=max(_received(slices, number) for number in numbers),
                bucket=min(bucket, trainable) * kind.gradient if replicas > 1 else 0.0,
            )
        )
    return PipelineMemory(tuple(found), schedule.name, schedule.micro_batches, zero, replicas)


def _received(slices: Sequence[SliceLoad], number: int) -> float:
    """Largest message a slice receives; DeepSpeed's two receive buffers share their storage."""
    before = slices[number - 1].output if number else 0.0
    return max(before, slices[number].output)


def transformer_memory(
    model: Transformer,
    stages: int,
    micro_batches: int,
    micro_batch: int,
    *,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    bounds: Sequence[int] | None = None,
    schedule: Schedule | ScheduleMaker = one_f_one_b,
    **settings: object,
) -> PipelineMemory:
    """``pipeline_memory`` of a transformer; `settings` are its ZeRO, precision and offload."""
    if isinstance(schedule, ScheduleMaker):
        schedule = schedule(stages=stages, micro_batches=micro_batches)
    slices = transformer_slices(
        model,
        schedule.layout.slices,
        micro_batch,
        tensor=tensor,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        bounds=bounds,
    )
    return pipeline_memory(slices, schedule, **settings)  # type: ignore[arg-type]


def size(value: float) -> str:
    """Bytes as people write them: decimal units, three digits ("13.5 GB")."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(value) < 999.5 or unit == "PB":
            digits = 0 if unit == "B" or value >= 100 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")
