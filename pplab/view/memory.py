"""What ranks hold, measured, under what the calculator predicted: rows, words and a picture.

Predicted bars are outlined, measured ones filled, on one scale; parts are told apart by letter as
well as by colour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pplab.core.memory import model_states, pipeline_memory, profile_slices, size
from pplab.core.memory.pipeline import RankMemory
from pplab.core.profile import Profile
from pplab.view.show import bundle

if TYPE_CHECKING:
    from pplab.runtime.record import Run

#: Parts of a bar, in order: name -> letter.
PARTS = {"parameters": "P", "gradients": "G", "optimizer": "O", "activations": "A"}


@dataclass(frozen=True)
class Holding:
    """One rank of one run, or several that are alike; bytes by part, at the worst moment.

    bucket, used: ZeRO's reduction buffer, and how much of it gradients fill at most.
    """

    name: str
    ranks: tuple[int, ...]
    predicted: dict[str, float]
    measured: dict[str, float]
    bucket: int = 0
    used: int = 0

    @property
    def told(self) -> float:
        """All parts as predicted."""
        return sum(self.predicted.values())

    @property
    def found(self) -> float:
        """All parts as measured."""
        return sum(self.measured.values())

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.told / self.found - 1

    @property
    def who(self) -> str:
        """ "rank 2" or "ranks 0-3, alike"."""
        first, last = self.ranks[0], self.ranks[-1]
        return f"rank {first}" if first == last else f"ranks {first}-{last}, alike"

    def sentence(self) -> str:
        """The bar in words."""
        parts = ", ".join(
            f"{part} {size(self.measured[part])} (predicted {size(self.predicted[part])})"
            for part in self.measured
        )
        text = f"{self.name}, {self.who}: {size(self.found)} (predicted {size(self.told)}): {parts}"
        if self.bucket:
            text += f"; beside that a bucket of {size(self.bucket)}"
            text += f", of which {size(self.used)} are used" if self.used else ""
        return text


@dataclass(frozen=True)
class MemoryBars:
    """Holdings of one or several runs; a notebook shows them as a picture and in words."""

    rows: tuple[Holding, ...]

    @property
    def error(self) -> float:
        """The largest error of a bar, as a share of what was measured; 0.02: 2 %."""
        return max((abs(row.error) for row in self.rows), default=0.0)

    def __getitem__(self, name: str) -> Holding:
        """The first row of a run: ``bars["ZeRO-1"]``."""
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(dict.fromkeys(row.name for row in self.rows))
        raise KeyError(f"no {name!r} here; there are {names}")

    def __str__(self) -> str:
        return "\n".join(f"[measured] {row.sentence()}" for row in self.rows)

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pplab.view.memory_card import picture
        from pplab.view.static import png_of

        return bundle(None, png_of(picture(self)), str(self))


def compare_memory(*runs: Run, profile: Profile | None = None, names: Any = ()) -> MemoryBars:
    """What the ranks of runs held, under what the memory model predicts for them.

    Without a pipeline (engine="zero") the number of parameters is all that is needed. A pipeline's
    ranks differ, so `profile` is: of its layers, at the same micro-batch size
    (``pplab.profile``); activations in flight are then compared, too. names: one a run, instead of
    "ZeRO-1" or the schedule's. Replicas are alike; the first is shown. Raises ValueError when a
    pipeline comes without a profile, or the profile has another number of layers.
    """
    rows: list[Holding] = []
    given = list(names) or [_name(run) for run in runs]
    for name, run in zip(given, runs, strict=True):
        if run.job.engine == "zero":
            rows += _alike([_alone(name, run, rank) for rank in range(len(run.memory))])
        else:
            rows += _alike(_pipeline(name, run, profile))
    return MemoryBars(tuple(rows))


def precision(run: Run) -> str:
    """The name of what DeepSpeed keeps for this run in the calculator (``PRECISIONS``)."""
    if run.job.dtype == "fp32":
        return "fp32"
    return "bf16-fp32" if run.job.zero_stage <= 1 else "bf16"


def _name(run: Run) -> str:
    zero = f"ZeRO-{run.job.zero_stage}"
    return zero if run.job.engine == "zero" else f"{run.timeline.schedule}, {zero}"


def _alone(name: str, run: Run, rank: int) -> Holding:
    memory = run.memory[rank]
    states = model_states(
        memory["whole_parameters"],
        zero=run.job.zero_stage,
        replicas=run.job.replicas,
        precision=precision(run),
    )
    told = {part: getattr(states, part) for part in list(PARTS)[:3]}
    found = {part: float(memory[part]) for part in told}
    return Holding(name, (rank,), told, found, memory["buckets"], memory["in_buckets"])


def _pipeline(name: str, run: Run, profile: Profile | None) -> list[Holding]:
    plan = run.job.schedule
    if profile is None or plan is None:
        raise ValueError(
            "the ranks of a pipeline differ: give the profile of its layers, "
            "profile=pplab.profile(model), and run it with a schedule"
        )
    ranks = pipeline_memory(
        profile_slices(profile, run.bounds),
        plan,
        zero=run.job.zero_stage,
        replicas=run.job.replicas,
        precision=precision(run),
    ).ranks
    found = []
    for rank in ranks:
        memory = run.memory[run.job.topology.rank(rank.rank)]
        measured = {part: float(memory[part]) for part in list(PARTS)[:3]}
        measured["activations"] = float(memory["held_peak"])
        found.append(Holding(name, (rank.rank,), _told(rank), measured))
    return found


def _told(rank: RankMemory) -> dict[str, float]:
    told = {part: getattr(rank.states, part) for part in list(PARTS)[:3]}
    return {**told, "activations": rank.activations}


def _alike(rows: list[Holding]) -> list[Holding]:
    """Neighbours with the same prediction, 2 % apart at most, become one row: the largest."""
    merged: list[Holding] = []
    for row in rows:
        last = merged[-1] if merged else None
        same = last is not None and row.told == last.told
        if last is not None and same and abs(row.found / last.found - 1) < 0.02:
            largest = max(last, row, key=lambda r: r.found)
            merged[-1] = replace(largest, ranks=(*last.ranks, *row.ranks))
        else:
            merged.append(row)
    return merged
