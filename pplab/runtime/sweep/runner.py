"""``pplab.sweep``: run after run on warm ranks, and a picture that grows with every one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pplab.core.batch.knee import GAIN, check_gain
from pplab.core.costs import Costs
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import SCHEDULES
from pplab.runtime import models
from pplab.runtime.failure import RunError
from pplab.runtime.job import Job
from pplab.runtime.progress import in_notebook
from pplab.runtime.run import run_job
from pplab.runtime.sweep.growing import Growing
from pplab.runtime.sweep.points import Point
from pplab.runtime.sweep.result import Sweep, Sweeps

Makers = str | ScheduleMaker | Iterable[str | ScheduleMaker]


def sweep(
    schedules: Makers = "1f1b",
    model: models.Model | Callable[[int], models.Model] | None = None,
    *,
    stages: int = 4,
    micro_batches: Iterable[int] = (1, 2, 4, 8, 16, 32),
    micro_batch_size: int = 4,
    global_batch: int | None = None,
    costs: Costs | None = None,
    measure_on: int | Sequence[int] | None = None,
    cap: float | None = None,
    gain: float = GAIN,
    repeats: int = 1,
    quiet: bool = False,
    keep: bool = False,
    on_point: Callable[[Sweep, Point], None] | None = None,
    **settings: Any,
) -> Any:
    """Run a schedule with each number of micro-batches; returns a Sweep, which shows itself.

    schedules: one schedule (a maker such as ``schedules.one_f_one_b``, or its short name), or a
    list of them: then a ``Sweeps`` comes back, and the schedules take turns.
    model: as for ``pplab.run``, or a function of the micro-batch size that gives one.

    There are two ways to have more micro-batches. By default their size stays `micro_batch_size`
    and the global batch grows. With ``global_batch=64`` the batch stays and micro-batches shrink:
    a micro-batch has global_batch / (M x replicas) samples.

    The picture grows while the runs run. One of them goes first (`measure_on`, its M; by default
    the first with 2P or more): its costs, simulated, predict all others. A fixed global
    batch needs two (default: the first and the last), because costs depend on the size. With
    `costs`, in seconds, nothing is taken from a run.

    cap: most bytes a rank may keep for backward passes; a line in the picture, and what ``.best``
    looks under. gain: what the knee means (``pplab.batch.knee``). repeats: runs of each point,
    taking turns; the fastest counts (other programs only ever slow a run down). on_point: called
    after each run. quiet: show nothing. keep: write a record of each run. settings: as for
    ``pplab.run``: steps (default 4), replicas, zero, dtype, ...

    Interrupting it keeps the points there are: the Sweep comes back with ``stopped`` set. A run
    that fails (out of memory, say) leaves its reason in ``problems`` and the sweep goes on; when
    all fail, the first RunError is raised. Raises ValueError or ScheduleError before anything runs.
    """
    several = not isinstance(schedules, str | ScheduleMaker)
    makers = _makers(schedules)
    counts = _counts(micro_batches)
    if not makers or repeats < 1:
        raise ValueError("give at least one schedule, and repeats=1 or more")
    check_gain(gain)
    settings = {"steps": 4, **settings}
    sizes = _sizes(counts, micro_batch_size, global_batch, settings.get("replicas", 1))
    first = _first(measure_on, counts, stages, global_batch) if costs is None else ()
    growing = []
    for maker in makers:
        jobs = {m: _job(maker, stages, m, size, model, settings) for m, size in sizes.items()}
        growing.append(Growing(maker, jobs, first, global_batch, costs, cap, gain))
    turn = [(m, one) for m in [*first, *(m for m in counts if m not in first)] for one in growing]
    order = turn * repeats

    show, failure, stopped = _display(quiet), None, False
    show.update([one.sweep() for one in growing], "starting")
    for number, (m, one) in enumerate(order, 1):
        about = f"{one.maker.name + ', ' if several else ''}M = {m} (run {number} of {len(order)})"
        show.say(f"running {about}")
        try:
            run = run_job(
                one.jobs[m], quiet=True, keep=keep, on_loss=_progress(show, about, one.jobs[m])
            )
            one.take(m, run)
        except KeyboardInterrupt:
            stopped = True
            break
        except RunError as error:
            failure = failure or error
            one.problems[m] = str(error).strip().splitlines()[0]
        show.update([one.sweep() for one in growing], f"done: {about}")
        if on_point is not None and m in one.points:
            on_point(one.sweep(), one.points[m])
    if failure is not None and not any(one.points for one in growing):
        show.close([one.sweep(stopped) for one in growing], "failed")
        raise failure
    found = [one.sweep(stopped) for one in growing]
    show.close(found, "stopped; all its processes have ended" if stopped else "")
    return Sweeps(found) if several else found[0]


# -- before anything runs -------------------------------------------------------------------------


def _makers(schedules: Makers) -> list[ScheduleMaker]:
    if isinstance(schedules, str | ScheduleMaker):
        return [_maker(schedules)]
    return [_maker(one) for one in schedules]


def _maker(schedule: str | ScheduleMaker) -> ScheduleMaker:
    if isinstance(schedule, ScheduleMaker):
        return schedule
    if isinstance(schedule, str) and schedule.lower() in SCHEDULES:
        return SCHEDULES[schedule.lower()]
    raise ValueError(
        f"{schedule!r} is not a schedule to sweep: give a maker (pplab.schedules.one_f_one_b, or "
        f"your own @pplab.schedule) or one of {', '.join(SCHEDULES)}"
    )


def _counts(micro_batches: Iterable[int]) -> list[int]:
    counts = sorted(set(micro_batches))
    if not counts or any(not isinstance(m, int) or m < 1 for m in counts):
        raise ValueError(f"micro_batches are whole numbers from 1 on, not {counts}")
    return counts


def _sizes(
    counts: Sequence[int], size: int, global_batch: int | None, replicas: int
) -> dict[int, int]:
    """Micro-batch size by number of micro-batches."""
    if global_batch is None:
        return dict.fromkeys(counts, size)
    if global_batch < 1 or global_batch % replicas:
        raise ValueError(f"{replicas} replicas cannot share a batch of {global_batch} evenly")
    share = global_batch // replicas
    bad = [m for m in counts if share % m]
    if bad:
        whole = ", ".join(str(m) for m in range(1, share + 1) if share % m == 0)
        raise ValueError(
            f"{share} samples of a replica cannot be cut into {bad[0]} equal micro-batches; "
            f"use some of {whole}"
        )
    return {m: share // m for m in counts}


def _first(
    measure_on: int | Sequence[int] | None,
    counts: Sequence[int],
    stages: int,
    global_batch: int | None,
) -> tuple[int, ...]:
    """Numbers of micro-batches of the runs that predict the others."""
    if measure_on is None:
        if global_batch is not None:
            return tuple(sorted({counts[0], counts[-1]}))
        return (next((m for m in counts if m >= 2 * stages), counts[-1]),)
    chosen = (measure_on,) if isinstance(measure_on, int) else tuple(dict.fromkeys(measure_on))
    most = 1 if global_batch is None else 2
    if not 1 <= len(chosen) <= most:
        raise ValueError(f"measure_on names {'one run' if most == 1 else 'one or two runs'}")
    strange = [m for m in chosen if m not in counts]
    if strange:
        raise ValueError(f"measure_on={strange[0]} is not among micro_batches {list(counts)}")
    return chosen


def _job(
    maker: ScheduleMaker,
    stages: int,
    m: int,
    size: int,
    model: Any,
    settings: dict[str, Any],
) -> Job:
    plan = maker(stages=stages, micro_batches=m)
    plan.check()
    is_function = callable(model) and not isinstance(model, models.Model)
    given = model(size) if is_function else model
    return Job(
        model=models.as_model(given or models.gpt()),
        schedule=plan,
        stages=stages,
        micro_batches=m,
        micro_batch_size=size,
        **settings,
    )


# -- what is seen while it runs -------------------------------------------------------------------


class Display:
    """Shows nothing: the base, and what ``quiet=True`` uses."""

    def update(self, sweeps: list[Sweep], status: str) -> None:
        """There is a new point."""

    def say(self, status: str) -> None:
        """What goes on."""

    def close(self, sweeps: list[Sweep], status: str) -> None:
        """The sweep is over."""


class TerminalDisplay(Display):
    """One line a point, on standard error."""

    def update(self, sweeps: list[Sweep], status: str) -> None:
        if any(map(len, sweeps)):
            best = max((p.throughput for s in sweeps for p in s.points), default=0.0)
            print(f"sweep: {status}; best so far {best:.1f} samples/s", file=sys.stderr)


def _display(quiet: bool) -> Any:
    if quiet:
        return Display()
    if in_notebook():
        from pplab.view.sweep import LiveSweep  # a display: the one reason to look up

        return LiveSweep()
    return TerminalDisplay() if sys.stderr.isatty() else Display()


def _progress(show: Any, about: str, job: Job) -> Callable[[int, float], None]:
    last = [0.0]

    def on_loss(seen: int, loss: float) -> None:
        if time.monotonic() > last[0] + 0.25:
            last[0] = time.monotonic()
            done = seen // (job.micro_batches * job.replicas)
            show.say(f"running {about}: step {done} of {job.steps}, loss {loss:.3f}")

    return on_loss
