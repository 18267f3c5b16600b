"""What a schedule costs: step time, bubble, activations, weight versions, messages.

One simulation gives all of them. The units make schedules comparable: a stage's forward pass of
one micro-batch takes `forward`, and its activation counts 1, into however many chunks a schedule
cuts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pplab.core.costs import Costs
from pplab.core.schedule import Schedule, ScheduleMaker
from pplab.core.schedules import SCHEDULES
from pplab.core.schedules.weights import staleness, versions_held
from pplab.core.timeline import Timeline

Makers = str | ScheduleMaker | Iterable[str | ScheduleMaker] | Mapping[str, ScheduleMaker]


@dataclass(frozen=True)
class Numbers:
    """What all schedules of a comparison have in common; `backward` is the whole of it.

    Times are those of a whole stage, of one micro-batch; `weight` is the part of `backward` that
    W takes where it is split off, `link` the time of a message.
    """

    stages: int = 4
    micro_batches: int = 8
    forward: float = 1.0
    backward: float = 2.0
    weight: float = 1.0
    link: float = 0.0

    def __post_init__(self) -> None:
        if self.weight > self.backward:
            raise ValueError(
                f"weight is the part of backward that W takes: it cannot exceed {self.backward:g}"
            )

    def costs(self, chunks: int = 1) -> Costs:
        """Costs of one chunk when a stage is cut into `chunks`."""
        forward, backward, weight = (
            time / chunks for time in (self.forward, self.backward, self.weight)
        )
        return Costs(forward, backward, weight, latency=self.link)

    def __str__(self) -> str:
        split = f"{self.forward:g} : {self.backward - self.weight:g} : {self.weight:g}"
        link = f"a message takes {self.link:g}" if self.link else "messages are free"
        return (
            f"{self.stages} ranks, {self.micro_batches} micro-batches, F : B : W = {split}, {link}"
        )


@dataclass(frozen=True)
class Score:
    """One schedule under given numbers; `problem` says why there is nothing else.

    step: first operation to last; of a stream (PipeDream), whose fill and drain are paid once a
    training run, the time of as many micro-batches in the full pipeline. span: the longest time a
    rank takes for its own part of a step, which counts when the next step may begin on some ranks
    while others still run. bubble: idle share of the step. stream: gradients are those of older
    weights. peak: most activations of a whole stage that a rank holds at once. versions: most
    versions of its weights that it holds. split: B and W are apart. stale: how many updates old a
    gradient is at most when it is applied.
    """

    name: str
    problem: str = ""
    timeline: Timeline | None = None
    step: float = math.nan
    span: float = math.nan
    bubble: float = math.nan
    stream: bool = False
    peak: float = math.nan
    versions: int = 0
    messages: int = 0
    split: bool = False
    chunks: int = 1
    stale: int = 0

    @property
    def runs(self) -> bool:
        """True when the schedule can run with these numbers."""
        return self.timeline is not None

    def fits(self, cap: float | None) -> bool:
        """True when no rank ever holds more than `cap` activations of a stage."""
        return self.runs and (cap is None or self.peak <= cap + 1e-9)


def score(maker: ScheduleMaker, numbers: Numbers, name: str = "") -> Score:
    """The numbers of one schedule, or the sentence that says why it cannot run with these."""
    name = name or maker.name
    plan, problem = build(maker, numbers)
    if plan is None:
        return Score(name, problem)
    costs = numbers.costs(plan.chunks)
    t = plan.simulate(costs)
    step, bubble, span = t.step_time, t.bubble, float(t.measures.useful_span.max())
    stretch, measures = _stream(maker, plan, numbers), t.measures
    if stretch:
        measures = stretch.simulate(costs).measures
        bubble = max(0.0, measures.steady_bubble) if measures.steady_bubble > 1e-9 else 0.0
        span = step = float(t.measures.busy.max()) / (1 - bubble)
    return Score(
        name=name,
        timeline=t,
        step=step,
        span=span,
        bubble=bubble,
        stream=stretch is not None,
        peak=float(measures.peak_in_flight().max()) / plan.chunks,
        versions=max(versions_held(stretch or plan)),
        messages=int(plan.graph.remote.sum()),
        split=plan.splits_backward,
        chunks=plan.chunks,
        stale=max(max(row) for row in staleness(stretch or plan)),
    )


def _stream(maker: ScheduleMaker, plan: Schedule, numbers: Numbers) -> Schedule | None:
    """Of a schedule that never flushes, a stretch long enough to show what goes on for ever."""
    if not any(op.kind == "U" and op.micro_batch >= 0 for op in plan.ops[0]):
        return None
    long = replace(numbers, micro_batches=max(numbers.micro_batches, 4 * numbers.stages))
    stretch, _ = build(maker, long)
    if stretch is None or not any(op.kind == "U" for op in stretch.ops[0][:-1]):
        return None
    return stretch


def build(maker: ScheduleMaker, numbers: Numbers) -> tuple[Schedule | None, str]:
    """The schedule, or None and why there is none."""
    try:
        plan = maker(stages=numbers.stages, micro_batches=numbers.micro_batches)
    except Exception as error:  # a learner's generator may do anything: say what, and go on
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return None, f"{kind}{error}"
    if plan.problems:
        more = f" (and {len(plan.problems) - 1} more)" if len(plan.problems) > 1 else ""
        return None, f"{plan.problems[0]}{more}"
    return plan, ""


def named(schedules: Makers | None) -> dict[str, ScheduleMaker]:
    """Schedules by the name they are shown with; None stands for all published ones.

    Short names ("gpipe", "1f1b", "zb-h1") and makers may be mixed. Raises ValueError for a name
    that does not exist, and when there is nothing.
    """
    if schedules is None:
        schedules = list(SCHEDULES)
    if isinstance(schedules, str | ScheduleMaker):
        schedules = [schedules]
    if isinstance(schedules, Mapping):
        found = dict(schedules)
    else:
        makers = [_maker(one) if isinstance(one, str) else one for one in schedules]
        found = {maker.name: maker for maker in makers}
    if not found:
        raise ValueError("give at least one schedule")
    return found


def _maker(name: str) -> ScheduleMaker:
    if name.lower() in SCHEDULES:
        return SCHEDULES[name.lower()]
    for maker in SCHEDULES.values():
        if maker.name.lower() == name.lower():
            return maker
    raise ValueError(f"no schedule is called {name!r}; there are {', '.join(SCHEDULES)}")
