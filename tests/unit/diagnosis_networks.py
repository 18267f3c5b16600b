"""Networks of simulated steps, with faults put in by replaying them with other times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import pplab
from pplab.advise.diagnose.diagnosis import diagnosis_of
from pplab.advise.diagnose.network import Network
from pplab.advise.diagnose.recorded import network_of_timeline
from pplab.advise.diagnose.report import Diagnosis
from pplab.core.timeline import Timeline

Change = Callable[[Network, np.ndarray], None]


def replicas_of(timeline: Timeline, replicas: int, steps: int = 1) -> Timeline:
    """The same step several times over: in several replicas and steps."""
    parts = [(r, s) for r in range(replicas) for s in range(steps)]
    columns = {name: np.concatenate([c] * len(parts)) for name, c in timeline.columns().items()}
    columns["replica"] = np.repeat([r for r, _ in parts], len(timeline))
    columns["step"] = np.repeat([s for _, s in parts], len(timeline))
    shift = np.repeat([s * 2 * timeline.step_time for _, s in parts], len(timeline))
    columns["start"], columns["end"] = columns["start"] + shift, columns["end"] + shift
    return Timeline.of(columns, timeline.layout, source=timeline.source, unit=timeline.unit)


def network(
    stages: int = 4, micro_batches: int = 8, replicas: int = 1, steps: int = 1,
    schedule: str = "1f1b", latency: float = 0.01, overhead: float = 0.02, update: float = 0.2,
) -> tuple[Network, Timeline]:  # fmt: skip
    """A healthy one: F 1, B 2."""
    plan = pplab.schedules.SCHEDULES[schedule](stages, micro_batches)
    timeline = plan.simulate(
        forward=1, backward=2, latency=latency, overhead=overhead, update=update
    )
    timeline = replicas_of(timeline, replicas, steps)
    return network_of_timeline(timeline), timeline


def planted(healthy: Network, change: Change) -> Network:
    """The network as it would have been recorded with other works."""
    work = healthy.work.copy()
    change(healthy, work)
    end = healthy.replay(work)
    return replace(healthy, work=work, start=end - work, end=end)


def diagnosed(healthy: Network, timeline: Timeline, change: Change) -> Diagnosis:
    """What is said about a network with a fault."""
    return diagnosis_of(planted(healthy, change), timeline)


def computing(net: Network, **where: int) -> np.ndarray:
    """Which nodes compute, with e.g. rank=2, replica=1."""
    rows = net.is_role("F", "B", "W")
    for name, value in where.items():
        rows = rows & (getattr(net, name) == value)
    return rows
