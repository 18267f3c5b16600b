"""Sweeps without processes: runs whose timelines are simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import pplab
from pplab.core.costs import Costs
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from pplab.runtime.sweep import runner

KEPT = 1000  # bytes that a rank keeps for a sample


def costs_of(job: Job) -> Costs:
    """A fixed part and a part a sample, in seconds."""
    return Costs(
        forward=0.001 + 0.001 * job.micro_batch_size,
        backward=0.002 + 0.002 * job.micro_batch_size,
        latency=0.0005,
        update=0.004,
        unit="s",
    )


def fake_run(job: Job, *, slower: float = 1.0, counted: bool = True) -> Run:
    """What a run of this job could have measured: two steps, the first one twice as long."""
    assert job.schedule is not None
    costs = costs_of(job)
    table = {name: getattr(costs, name) * slower for name in ("forward", "backward", "update")}
    plan = job.schedule.simulate(replace(costs, **table))
    columns = [{**plan.columns(), "step": plan.step + k} for k in (0, 1)]
    columns[0] = {**columns[0], "start": plan.start * 2, "end": plan.end * 2}
    columns[1] = {**columns[1], "start": plan.start + 100, "end": plan.end + 100}
    both: dict[str, Any] = {n: [*columns[0][n], *columns[1][n]] for n in columns[0]}
    timeline = pplab.Timeline.of(
        both, plan.layout, source="measured: paced", schedule=job.schedule.name, unit="s"
    )
    held = plan.measures.peak_in_flight() / plan.layout.chunks
    each = KEPT * job.micro_batch_size
    memory = [
        {"activation_bytes": each, "activation_peak": int(each * held[rank // job.replicas])}
        for rank in range(job.world)
    ]
    return Run(
        job=job,
        timeline=timeline,
        losses=[2.0, 1.5],
        step_times=[1.0, 1.0],
        memory=memory if counted else [{} for _ in memory],
        config={},
        bounds=(),
        versions={},
        hardware={},
        placement={},
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Job]]:
    """Let ``sweep`` make such runs; returns the list of jobs that were run, in order.

    ``fake(make=...)`` takes another function from a job to a run.
    """

    def install(make: Callable[[Job], Run] = fake_run) -> list[Job]:
        ran: list[Job] = []

        def run_job(job: Job, **_: Any) -> Run:
            ran.append(job)
            return make(job)

        monkeypatch.setattr(runner, "run_job", run_job)
        return ran

    return install
