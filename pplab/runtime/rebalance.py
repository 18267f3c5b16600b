"""``pplab.rebalance``: measure a run, cut its model better, and go on training from its checkpoint.

DeepSpeed has no such thing (an article that names an "elastic pipeline" of DeepSpeed describes
none): its pipeline is cut once, and its checkpoints go into the same cut only. Here the training is
stopped, cut anew and started again, which takes about a second in this kit; the losses go on as if
nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pplab.core.partition import Device, Links, Partition, Problem, devices, solve
from pplab.core.partition.methods import Method
from pplab.core.profile import Profile
from pplab.core.schedule import Schedule
from pplab.core.words import duration
from pplab.runtime.partitioned import Chosen, listed, profile_of, schedule_of, tied_notes
from pplab.runtime.progress import progress
from pplab.runtime.record import Run
from pplab.runtime.run import job_of, run_job
from pplab.runtime.stage_times import step_of

BLAME = ("layers", "ranks")


@dataclass(frozen=True)
class Rebalanced:
    """A run, its new cut, and the run that continues it there.

    old, new: both cuts as predicted from what `before` measured.
    """

    before: Run
    after: Run
    old: Partition
    new: Partition

    @property
    def predicted_steps(self) -> tuple[float, float]:
        """Seconds a step with the old and the new cut, from the first run's measurements."""
        return step_of(self.old, self.before.costs), step_of(self.new, self.before.costs)

    @property
    def predicted_gain(self) -> float:
        """How many times as fast a step was to become."""
        old, new = self.predicted_steps
        return old / new

    @property
    def measured_gain(self) -> float:
        """How many times as fast a step became."""
        return self.before.step_time / self.after.step_time

    @property
    def step_error(self) -> float:
        """Predicted step of the new cut over the measured one, minus 1."""
        return self.predicted_steps[1] / self.after.step_time - 1

    @property
    def losses(self) -> list[float]:
        """All losses from the first step of the training on."""
        return self.after.all_losses

    @property
    def moved(self) -> list[tuple[int, int, int]]:
        """(layer, rank before, rank after) of every layer that changed its rank."""
        return moves(self.old, self.new)

    def __str__(self) -> str:
        first = self.after.job.first_step
        before, after = (duration(r.step_time, "s") for r in (self.before, self.after))
        speed = f"step {before} to {after}, {self.measured_gain:.2f} times as fast (predicted "
        speed += f"{duration(self.predicted_steps[1], 's')}, {self.predicted_gain:.2f} times)"
        on = f"the losses go on from step {first}"
        return f"{moved_text(self.moved)}; {speed}; {on} ({self.after.timeline.source})"

    def __repr__(self) -> str:
        return f"[measured] {self}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """A notebook shows the sentence and the step that runs now."""
        shown = dict(self.after._repr_mimebundle_())
        shown["text/plain"] = repr(self)
        return shown


def rebalance(
    run: Run,
    method: Method = "optimal",
    *,
    plan: Schedule | None = None,
    steps: int | None = None,
    profile: Profile | None = None,
    blame: str = "layers",
    devices: tuple[Device, ...] | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Rebalanced:
    """Cut a run's model anew from what the run measured, and continue it with the new cut.

    run: one with checkpoint=True. method: as for ``run(partition=...)`` ("optimal", bounds, ...).
    plan: another schedule for the same ranks and chunks. steps: further steps (default: as many as
    the run had). profile: times of the layers (default: that of the run's partition, else the
    model's own or measured now); within each slice its proportions count, the slice as a whole
    takes what the run measured.
    blame: what is slow when a slice takes longer than the profile says: its "layers" take longer,
    wherever they are put (the default); or its "ranks" are slow, whatever is put on them, like an
    older GPU or one that is too hot: the profile is believed, and the speed of each rank follows.
    devices: memory caps and speeds of the ranks (default: those of the run's partition).
    settings: of the run that continues: zero, replicas, ...; see ``pplab.run(resume=...)``.

    Raises ValueError when there is no checkpoint or nothing was measured, DoesNotFit when no cut
    keeps the memory caps.
    """
    if blame not in BLAME:
        raise ValueError(f"blame is one of {', '.join(BLAME)}, not {blame}")
    wanted = {"steps": run.job.steps if steps is None else steps, **settings}
    job = job_of(plan, None, wanted, run)
    schedule = schedule_of(job)
    if schedule.layout != run.timeline.layout:
        raise ValueError(
            "a rebalanced run keeps its ranks and chunks, since each was measured as it is: for "
            "another layout use pplab.run(plan, resume=run, partition=...)"
        )
    show = progress(job, quiet)
    try:
        if profile is None:
            profile = _profile_of(run, show.say)
        problem = measured_problem(run, profile, blame, devices)
        old = Partition(problem, run.bounds)
        new = solve(replace(problem, schedule=schedule), method)
    except BaseException:
        show.close("nothing was run")
        raise
    notes = tied_notes(problem.profile.tied, new.bounds, job)
    cut = Chosen(new.bounds, job.speeds, new, notes)
    after = run_job(job, quiet=quiet, show=show, cut=cut, earlier=run)
    return Rebalanced(run, after, old, new)


def _profile_of(run: Run, say: Callable[[str], None]) -> Profile:
    """Times of the layers of a run's model: those its cut was made from, if they are seconds."""
    if run.partition is not None and run.partition.problem.profile.unit == "s":
        return run.partition.problem.profile
    return profile_of(run.job, say)


def measured_problem(
    run: Run, profile: Profile, blame: str = "layers", given: tuple[Device, ...] | None = None
) -> Problem:
    """What is to be cut, with every time as the run measured it; see ``rebalance``."""
    costs, layout = run.costs, run.timeline.layout
    before = run.partition.problem if run.partition is not None else None
    own = given or (before.devices if before else devices(layout.stages))
    if given is None and run.job.speeds is not None:
        own = tuple(replace(d, speed=s) for d, s in zip(own, run.job.speeds, strict=True))
    if len(own) != layout.stages:
        raise ValueError(f"{len(own)} devices for {layout.stages} ranks")
    problem = Problem(
        profile,
        schedule_of(run.job),
        own,
        Links(latency=float(np.asarray(costs.latency, dtype=float).mean())),
        bytes_per_parameter=before.bytes_per_parameter if before else 16.0,
        keep_tied=before.keep_tied if before else False,
        overhead=costs.overhead,
    )
    forward, backward = np.asarray(costs.forward), np.asarray(costs.backward)
    if blame == "ranks":
        return replace(problem, devices=at_measured_speeds(problem, run, forward + backward))
    speed = problem.speed  # of each slice: a layer takes longer on a slow rank by being there
    corrected = profile.rescaled(
        run.bounds, (forward * speed).tolist(), (backward * speed).tolist()
    )
    return replace(problem, profile=corrected)


def at_measured_speeds(problem: Problem, run: Run, took: np.ndarray) -> tuple[Device, ...]:
    """The devices with the speeds that explain why each rank took what it took."""
    alike = replace(problem, devices=tuple(replace(d, speed=1.0) for d in problem.devices))
    expected = Partition(alike, run.bounds).rank_loads
    measured = np.zeros(problem.ranks)
    np.add.at(measured, problem.rank_of, took)
    return tuple(
        replace(device, speed=float(e / m))
        for device, e, m in zip(problem.devices, expected, measured, strict=True)
    )


def moves(old: Partition, new: Partition) -> list[tuple[int, int, int]]:
    """(layer, rank before, rank after) of every layer on another rank than before."""
    was, now = (np.repeat(p.problem.rank_of, np.diff(p.bounds)).tolist() for p in (old, new))
    return [(i, a, b) for i, (a, b) in enumerate(zip(was, now, strict=True)) if a != b]


def moved_text(moved: list[tuple[int, int, int]]) -> str:
    """What moved, in words, neighbours with the same way together."""
    if not moved:
        return "no layer moved: the cut was the best already"
    ways: dict[tuple[int, int], list[int]] = {}
    for layer, a, b in moved:
        ways.setdefault((a, b), []).append(layer)
    texts = [
        f"layer{'s' * (len(layers) > 1)} {listed(layers)} from rank {a} to rank {b}"
        for (a, b), layers in ways.items()
    ]
    return "moved " + ", ".join(texts)
