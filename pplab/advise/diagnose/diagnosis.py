"""``diagnose``: from a run, a timeline or trace files to a ``Diagnosis``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pplab.advise.diagnose.cause import Facts
from pplab.advise.diagnose.causes import causes
from pplab.advise.diagnose.factors import factors
from pplab.advise.diagnose.imported import network_of_trace
from pplab.advise.diagnose.layers import Cut
from pplab.advise.diagnose.network import ROLES, Network
from pplab.advise.diagnose.parts import ideal_steps, parts
from pplab.advise.diagnose.recorded import network_of_timeline
from pplab.advise.diagnose.report import Diagnosis
from pplab.core.ops import Op
from pplab.core.profile import Profile
from pplab.core.schedule import Schedule, ScheduleError
from pplab.core.timeline import Timeline
from pplab.runtime.record import Run

Subject = Run | Timeline | str | Path | Iterable[str | Path]


def diagnose(
    subject: Subject,
    *,
    bounds: Sequence[int] | None = None,
    profile: Profile | None = None,
    **reading: Any,
) -> Diagnosis:
    """Say where the time of a step goes, what makes it longer than it needs to be, and what to do.

    subject: a Run, a Timeline (simulated, measured or read from a trace), or trace files
    (``pplab.traces.read`` says which; `reading` are its options, such as names= and stages=).
    bounds: first layer of each slice of the model and the number of layers; a Run knows its own.
    With them the advice on a heavy stage says which layers to move. profile: what each layer
    costs (``pplab.profile``), else the layers of a stage count as equal.

    Every saving is found by replaying the recorded steps without that one cause. Raises
    ValueError when there is nothing to diagnose (no complete step), TraceError for files that
    cannot be read.
    """
    notes: tuple[str, ...] = ()
    trace = None
    if isinstance(subject, Run):
        bounds = bounds if bounds is not None else subject.bounds
        timeline = subject.timeline
    elif isinstance(subject, Timeline):
        timeline = subject
    else:
        from pplab.traces.reading import load

        found = load(subject, **reading)
        timeline, notes = found.timeline, found.notes
        trace = found.details.get("straggler")
        if found.missing:
            missing = ", ".join(map(str, found.missing))
            raise ValueError(
                f"ranks {missing} are missing: without them nobody can say who waited for whom. "
                "Give the files of all ranks"
            )
    network = network_of_trace(trace) if trace is not None else network_of_timeline(timeline)
    return diagnosis_of(network, timeline, bounds, profile, notes)


def diagnosis_of(
    network: Network,
    timeline: Timeline,
    bounds: Sequence[int] | None = None,
    profile: Profile | None = None,
    notes: tuple[str, ...] = (),
) -> Diagnosis:
    """The diagnosis of a network made from `timeline`."""
    if not np.all(network.recorded > 0):
        raise ValueError("a recorded step takes no time at all: nothing to diagnose")
    cut = _cut(network, timeline, bounds, profile)
    facts = Facts(network, factors(network), timeline.unit, cut)
    replayed = float(network.step_times().mean())
    step = float(network.recorded.mean())
    more = [*notes, *network.notes]
    if abs(replayed / step - 1) > 0.02:
        more.append(
            f"the replay of the recorded steps comes to {replayed / step:.1%} of their length: "
            "something was waited for that was not recorded, and savings are as inexact as that"
        )
    return Diagnosis(
        parts=parts(network, facts.found),
        causes=causes(facts),
        step=step,
        ideal=float(ideal_steps(network).mean()),
        replayed=replayed,
        unit=timeline.unit,
        source=timeline.source,
        counts={
            "ranks": network.ranks,
            "replicas": len(network.replicas),
            "micro_batches": timeline.micro_batches,
            "steps": len(network.steps),
        },
        shape=_shape(network, timeline),
        notes=tuple(more),
    )


def _cut(
    network: Network, timeline: Timeline, bounds: Sequence[int] | None, profile: Profile | None
) -> Cut | None:
    """What is known about the layers; None when nothing is."""
    if bounds is None:
        if profile is not None:
            raise ValueError(
                "a profile of the layers needs bounds=: which stage holds which of them"
            )
        return None
    given = tuple(int(b) for b in bounds)
    slices = network.layout_slices
    if len(given) != slices + 1 or given[0] != 0 or any(np.diff(given) <= 0):
        raise ValueError(
            f"bounds are {slices + 1} rising layer numbers from 0 to the number of layers, not "
            f"{list(given)}"
        )
    return Cut(given, profile, schedule_of(network, timeline))


def schedule_of(network: Network, timeline: Timeline) -> Schedule | None:
    """The order in which the ranks worked, in the first step of the first replica, as a schedule;
    None when that is not a valid one."""
    mine = network.is_role("F", "B", "W")
    mine &= (network.step == network.steps[0]) & (network.replica == network.replicas[0])
    layout = timeline.layout
    rows: list[list[Op]] = [[] for _ in range(layout.stages)]
    for node in np.flatnonzero(mine)[np.argsort(network.start[mine], kind="stable")]:
        _, chunk = layout.place_of(int(network.piece[node]))
        kind, m = ROLES[network.role[node]], int(network.micro_batch[node])
        rows[int(network.rank[node])].append(Op(kind, m, chunk))
    with suppress(ScheduleError):
        return Schedule.of(
            rows, timeline.micro_batches, name=timeline.schedule or "recorded order",
            chunks=layout.chunks, placement=layout.placement,
        ).check()  # fmt: skip
    return None


def _shape(network: Network, timeline: Timeline) -> str:
    """What fill and drain cost, and what would make it less."""
    P, M, v = network.ranks, timeline.micro_batches, timeline.layout.chunks
    if P < 2:
        return ""
    now, twice = ((P - 1) / (v * m + P - 1) for m in (M, 2 * M))
    return (
        f"The shape of the pipeline: {P} ranks and {M} micro-batches a step leave "
        f"{now:.0%} of a balanced 1F1B{' (interleaved)' if v > 1 else ''} step idle while it fills "
        f"and drains ((P-1)/({'v ' if v > 1 else ''}M+P-1)); with {2 * M} micro-batches a step it "
        f"is {twice:.0%}. That is no fault, and not among the causes."
    )
