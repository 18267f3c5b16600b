"""A sweep over the number of micro-batches: measured points over the curve that predicted them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pplab.core.batch import rules
from pplab.core.memory import size
from pplab.core.words import aligned, duration, number
from pplab.runtime.record import Run
from pplab.runtime.sweep.points import Point

FORMAT = 1
#: What must be the same for sweeps to stand in one picture.
SHARED = ("stages", "replicas", "global_batch", "micro_batch_size")


@dataclass(frozen=True)
class Sweep:
    """Runs of one schedule with more and more micro-batches (M, DeepSpeed's GAS).

    points:  measured, ascending in M; curve: simulated from the costs of `costs_from`
    global_batch: samples of a step when they stay the same and micro-batches get smaller; None
             when the size of a micro-batch stays the same (`micro_batch_size`) and the batch grows
    knee:    the least M from which doubling raises the simulated throughput by less than `gain`
             (see ``pplab.batch.knee``); None where doubling goes on paying
    limit:   samples per second that endlessly many micro-batches would reach; None for a fixed
             global batch
    cap:     most bytes a rank may keep for backward passes, or None
    problems: why points are missing, by M; stopped: True when the sweep was interrupted
    runs:    the runs themselves, by M (not kept in files)
    """

    schedule: str
    stages: int
    replicas: int
    model: str
    source: str
    wanted: tuple[int, ...]
    points: tuple[Point, ...] = ()
    curve: tuple[Point, ...] = ()
    costs_from: str = ""
    global_batch: int | None = None
    micro_batch_size: int | None = None
    knee: int | None = None
    limit: float | None = None
    gain: float = 0.10
    cap: float | None = None
    problems: dict[int, str] = field(default_factory=dict)
    stopped: bool = False
    hardware: dict[str, Any] = field(default_factory=dict, repr=False)
    runs: dict[int, Run] = field(default_factory=dict, repr=False, compare=False)

    # -- what can be read off it ------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, micro_batches: int) -> Point:
        """The measured point of so many micro-batches; KeyError when there is none."""
        for point in self.points:
            if point.micro_batches == micro_batches:
                return point
        have = ", ".join(str(point.micro_batches) for point in self.points)
        raise KeyError(
            f"no point with {micro_batches} micro-batches was measured; there are {have}"
        )

    def predicted(self, micro_batches: int) -> Point | None:
        """The simulated point, None where the curve has none."""
        return next((p for p in self.curve if p.micro_batches == micro_batches), None)

    @property
    def errors(self) -> dict[int, float]:
        """Simulated over measured throughput, minus 1, by M."""
        found = {}
        for point in self.points:
            told = self.predicted(point.micro_batches)
            if told is not None:
                off = told.throughput / point.throughput - 1
                found[point.micro_batches] = off if abs(off) > 1e-12 else 0.0
        return found

    @property
    def error(self) -> float:
        """The worst of ``errors`` in size; nan when nothing was both measured and predicted."""
        return max(map(abs, self.errors.values()), default=math.nan)

    @property
    def measured_knee(self) -> int | None:
        """The least measured M whose double was measured too and brought less than `gain`."""
        rate = {p.micro_batches: p.throughput for p in self.points}
        flat = (m for m in rate if 2 * m in rate and rate[2 * m] / rate[m] - 1 < self.gain)
        return min(flat, default=None)

    def fits(self, point: Point) -> bool:
        """True when no rank keeps more than the cap (or there is none)."""
        return self.cap is None or not point.peak > self.cap

    @property
    def best(self) -> Point | None:
        """The measured point with the highest throughput under the cap; None when none fits."""
        fit = [point for point in self.points if self.fits(point)]
        return max(fit, key=lambda point: point.throughput, default=None)

    @property
    def predicted_best(self) -> Point | None:
        """The same on the simulated curve."""
        fit = [point for point in self.curve if self.fits(point)]
        return max(fit, key=lambda point: point.throughput, default=None)

    @property
    def rules(self) -> dict[str, int]:
        """The rules of thumb for so many stages: ``{"2P": 8, "4P": 16, "8P": 32}``."""
        return rules(self.stages)

    def under(self, cap: float | None) -> Sweep:
        """The same sweep with another memory cap, in bytes."""
        return replace(self, cap=cap)

    # -- words ------------------------------------------------------------------------------------

    @property
    def setting(self) -> str:
        """What stays the same along the sweep."""
        who = f"{self.stages} stages"
        if self.replicas > 1:
            who = f"{self.replicas} replicas of {who}"
        if self.global_batch is not None:
            return f"{who}, a batch of {self.global_batch} samples"
        return f"{who}, micro-batches of {self.micro_batch_size} samples"

    @property
    def table(self) -> list[list[str]]:
        """Head and rows as text, measured beside simulated."""
        head = ["M", "micro-batch", "samples/s", "simulated", "off by", "working", "step"]
        rows = [[*head, "in flight", "kept by the fullest rank"]]
        errors = self.errors
        for point in self.points:
            told, m = self.predicted(point.micro_batches), point.micro_batches
            kept = size(point.peak) if point.memory else "not counted"
            rows.append(
                [
                    str(m),
                    str(point.micro_batch_size),
                    number(point.throughput),
                    number(told.throughput) if told else "-",
                    f"{errors[m]:+.1%}" if m in errors else "-",
                    f"{point.utilisation:.1%}",
                    duration(point.step_time, "s"),
                    number(max(point.in_flight, default=0)),
                    kept + (" (over the cap)" if not self.fits(point) else ""),
                ]
            )
        return rows

    def sentence(self) -> str:
        """One or two sentences that say what the picture shows."""
        kind = self.source.removeprefix("measured: ")
        start = f"{kind + ', ' if kind else ''}{self.schedule}, {self.setting}: "
        if not self.points:
            return start + ("nothing measured." if self.problems else "nothing measured yet.")
        first, last = self.points[0], self.points[-1]
        parts = []
        if len(self.points) > 1:
            parts.append(
                f"from M = {first.micro_batches} to {last.micro_batches} throughput goes from "
                f"{number(first.throughput, 3)} to {number(last.throughput, 3)} samples/s"
            )
            if self.best and self.best.micro_batches not in (
                first.micro_batches,
                last.micro_batches,
            ):
                parts.append(
                    f"most at M = {self.best.micro_batches}, {number(self.best.throughput, 3)}"
                )
        else:
            parts.append(f"{number(first.throughput, 3)} samples/s at M = {first.micro_batches}")
        if first.memory and last.memory:
            parts.append(f"the fullest rank keeps {_change(first.peak, last.peak)}")
        if self.curve and not math.isnan(self.error):
            parts.append(f"simulated from {self.costs_from}, off by at most {self.error:.1%}")
        text = start + "; ".join(parts) + "."
        if self.knee is not None and self.global_batch is None:
            text += (
                f" Knee at M = {self.knee}: beyond it doubling M brings less than {self.gain:.0%}."
            )
        if self.stopped or self.problems:
            text += " " + self.missing()
        return text

    def missing(self) -> str:
        """Which points there are not, and why; "" when all are there."""
        have = {point.micro_batches for point in self.points}
        parts = [f"M = {m} failed: {why}" for m, why in sorted(self.problems.items())]
        left = [m for m in self.wanted if m not in have and m not in self.problems]
        if self.stopped and left:
            parts.insert(0, f"Stopped before M = {', '.join(map(str, left))}.")
        return " ".join(parts)

    def __str__(self) -> str:
        rows = aligned(self.table).splitlines()
        return "\n".join([f"[measured] {self.sentence()}", *(f"[measured] {row}" for row in rows)])

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """A notebook shows a sweep as its curves over its points."""
        from pplab.view.sweep import sweep_bundle

        return sweep_bundle([self])

    # -- keeping it -------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Everything but the runs, as plain JSON values."""
        names = [name for name in self.__dataclass_fields__ if name not in ("runs", "problems")]
        data = {name: getattr(self, name) for name in names}
        for name in ("points", "curve"):
            data[name] = [point.as_json() for point in data[name]]
        data["problems"] = {str(m): why for m, why in self.problems.items()}
        return {"format": FORMAT, **data, "wanted": list(self.wanted)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Sweep:
        """What ``as_json`` wrote; ValueError when another version of pplab wrote it."""
        data = dict(data)
        if data.pop("format", None) != FORMAT:
            raise ValueError("this sweep was written by another version of pplab")
        for name in ("points", "curve"):
            data[name] = tuple(Point.from_json(point) for point in data[name])
        data["problems"] = {int(m): why for m, why in data["problems"].items()}
        return cls(**{**data, "wanted": tuple(data["wanted"])})

    def save(self, file: str | Path) -> Path:
        """Write it as JSON."""
        Path(file).write_text(json.dumps(self.as_json(), indent=1), encoding="utf-8")
        return Path(file)

    @classmethod
    def load(cls, file: str | Path) -> Sweep:
        """Read what ``save`` wrote. Nothing in the file is ever executed."""
        return cls.from_json(json.loads(Path(file).read_text(encoding="utf-8")))


class Sweeps(list[Sweep]):
    """Sweeps of several schedules beside each other: one picture, and ``sweeps["GPipe"]``.

    Raises ValueError when they differ in what they keep the same (stages, batch, replicas).
    """

    def __init__(self, sweeps: Iterable[Sweep] = ()) -> None:
        super().__init__(sweeps)
        for name in SHARED:
            values = {getattr(sweep, name) for sweep in self}
            if len(values) > 1:
                raise ValueError(
                    f"these sweeps cannot stand in one picture: {name} is "
                    f"{' and '.join(map(str, sorted(values, key=str)))}"
                )

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, str):
            for sweep in self:
                if sweep.schedule == which:
                    return sweep
            have = ", ".join(sweep.schedule for sweep in self)
            raise KeyError(f"no sweep of {which!r}; there are {have}")
        return super().__getitem__(which)

    @property
    def error(self) -> float:
        """The worst error of all."""
        return max((s.error for s in self if not math.isnan(s.error)), default=math.nan)

    def under(self, cap: float | None) -> Sweeps:
        """The same sweeps with another memory cap, in bytes."""
        return Sweeps(sweep.under(cap) for sweep in self)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pplab.view.sweep import sweep_bundle

        return sweep_bundle(self)


def _change(first: float, last: float) -> str:
    if abs(last / first - 1) < 0.005:
        return f"{size(last)} throughout"
    return f"{size(first)} at first and {size(last)} at last"
