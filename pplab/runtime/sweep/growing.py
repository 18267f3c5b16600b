"""One schedule's sweep while it runs: its runs so far, and what they predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pplab.core.batch.knee import knee
from pplab.core.costs import Costs
from pplab.core.schedule import ScheduleMaker
from pplab.runtime.hardware import hardware
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from pplab.runtime.sweep.points import Point
from pplab.runtime.sweep.predict import (
    Predictor,
    Reference,
    by_stage,
    curve,
    every,
    reference_of,
    runnable,
)
from pplab.runtime.sweep.result import Sweep


class Growing:
    """One schedule's sweep while it runs."""

    def __init__(
        self,
        maker: ScheduleMaker,
        jobs: dict[int, Job],
        first: Sequence[int],
        global_batch: int | None,
        costs: Costs | None,
        cap: float | None,
        gain: float,
    ) -> None:
        self.maker, self.jobs, self.first, self.costs = maker, jobs, tuple(first), costs
        self.global_batch, self.cap, self.gain = global_batch, cap, gain
        self.points: dict[int, Point] = {}
        self.runs: dict[int, Run] = {}
        self.problems: dict[int, str] = {}
        self._known: tuple[tuple[Reference, ...], tuple[Any, ...]] = ((), ((), None, None))
        self._references: dict[int, Reference] = {}

    def take(self, m: int, run: Run) -> None:
        """Note a finished run; of several of one point the fastest counts."""
        before = self.runs.get(m)
        if before is not None and before.step_time <= run.step_time:
            return
        self.runs[m] = run
        self.points[m] = point_of(run)
        self._references[m] = reference_of(run)

    def sweep(self, stopped: bool = False) -> Sweep:
        """The state as it is now."""
        job, about = next(iter(self.jobs.values())), hardware().as_json()
        source = next((run.timeline.source for run in self.runs.values()), "")
        references, origin = self._chosen()
        if references != self._known[0]:
            self._known = (references, self._predict(references))
        line, bend, limit = self._known[1]
        return Sweep(
            schedule=self.maker.name,
            stages=job.stages,
            replicas=job.replicas,
            model=str(job.model),
            source=source,
            wanted=tuple(sorted(self.jobs)),
            points=tuple(self.points[m] for m in sorted(self.points)),
            curve=line,
            costs_from=origin if references else "",
            global_batch=self.global_batch,
            micro_batch_size=None if self.global_batch is not None else job.micro_batch_size,
            knee=bend,
            limit=limit,
            gain=self.gain,
            cap=self.cap,
            problems=dict(self.problems),
            stopped=stopped,
            hardware=about,
            runs=dict(self.runs),
        )

    def _chosen(self) -> tuple[tuple[Reference, ...], str]:
        """The references to predict from, and where their costs come from in words."""
        have = self._references
        if self.costs is not None:
            one = next(iter(have.values()), None)
            size = next(iter(self.jobs.values())).micro_batch_size
            known = one.activation if one else ()
            return (Reference(0, one.micro_batch_size if one else size, self.costs, known),), (
                "the costs given"
            )
        chosen = [m for m in self.first if m in have]
        if len(chosen) < len(self.first):  # one of them failed or has not run: others stand in
            failed = any(m in self.problems for m in self.first)
            spare = [m for m in sorted(have) if m not in chosen] if failed else []
            chosen = sorted({*chosen, *spare[: len(self.first) - len(chosen)]})
        names = " and ".join(str(m) for m in chosen)
        runs = "runs" if len(chosen) > 1 else "run"
        return tuple(have[m] for m in chosen), f"the {runs} with M = {names}"

    def _predict(self, references: tuple[Reference, ...]) -> tuple[Any, ...]:
        """(curve, knee, limit) from these references."""
        if not references:
            return (), None, None
        job, counts = next(iter(self.jobs.values())), sorted(self.jobs)
        predictor = Predictor(self.maker, job.stages, job.replicas, references)
        if self.global_batch is not None:
            share = self.global_batch // job.replicas
            ways = {m: share // m for m in range(counts[0], counts[-1] + 1) if share % m == 0}
            line = curve(predictor, ways)
            rate = {p.micro_batches: p.throughput for p in line}
            pays = (m for m in rate if 2 * m in rate and rate[2 * m] / rate[m] - 1 < self.gain)
            return line, min(pays, default=None), None
        size = job.micro_batch_size
        unit = next(
            (u for u in (1, job.stages) if runnable(self.maker, job.stages, 4 * u + u)), None
        )
        drawn = every(counts[0], counts[-1], counts)
        bend = limit = None
        if unit is not None:
            bend = knee(lambda m: predictor.throughput(m, size), self.gain, unit=unit)
            much = 8 * job.stages
            slow, fast = predictor.point(2 * much, size), predictor.point(much, size)
            if slow and fast and slow.step_time > fast.step_time:
                limit = (slow.samples - fast.samples) / (slow.step_time - fast.step_time)
        return curve(predictor, dict.fromkeys(drawn, size)), bend, limit


def point_of(run: Run) -> Point:
    """The point of a sweep that a run is."""
    timeline, job = run.timeline.typical, run.job
    held = timeline.measures.peak_in_flight() / timeline.layout.chunks
    peaks = [rank.get("activation_peak") for rank in run.memory]
    known = all(value is not None for value in peaks)
    return Point(
        micro_batches=job.micro_batches,
        micro_batch_size=job.micro_batch_size,
        replicas=job.replicas,
        step_time=run.step_time,
        bubble=run.bubble,
        in_flight=tuple(held.tolist()),
        memory=by_stage([float(value) for value in peaks if value is not None], job.stages)
        if known
        else (),
        loss=run.losses[-1],
    )
