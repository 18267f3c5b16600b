"""The best few plans on real ranks: predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pplab.advise.tune.plan import Plan
from pplab.advise.tune.subject import Say
from pplab.core.timeline import Timeline
from pplab.runtime.failure import RunError
from pplab.runtime.record import Run

STEPS = 6  # the first one warms up


@dataclass(frozen=True)
class Verified:
    """One plan with its runs. steps, bubbles: seconds and idle share of the fastest step of each
    run (see ``quietest``); problem: why there are no runs."""

    plan: Plan
    steps: tuple[float, ...]
    bubbles: tuple[float, ...] = ()
    problem: str = ""
    runs: tuple[Run, ...] = field(default=(), repr=False, compare=False)

    @property
    def step(self) -> float:
        """Measured seconds of the fastest step of all runs; nan when none came to its end."""
        return min(self.steps, default=float("nan"))

    @property
    def bubble(self) -> float:
        """Measured idle / total of that step."""
        if not self.steps:
            return float("nan")
        return self.bubbles[self.steps.index(self.step)]

    @property
    def error(self) -> float:
        """Predicted over measured step, minus 1."""
        return self.plan.step / self.step - 1

    @property
    def noise(self) -> float:
        """How far the two fastest runs lie apart, as a part of the step; nan for one run."""
        first, second, *_ = *sorted(self.steps), float("nan"), float("nan")
        return second / first - 1

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "plan": str(self.plan.what),
            "predicted": self.plan.step,
            "measured": list(self.steps),
            "error": self.error if self.steps else None,
            "predicted_bubble": self.plan.bubble,
            "measured_bubble": self.bubble if self.steps else None,
            "problem": self.problem,
        }


def quietest(timeline: Timeline) -> Timeline:
    """The fastest step but the first: the one that the rest of the machine disturbed least.

    Whatever else runs makes steps longer and none shorter, so that the fastest of many says most
    about the plan itself (as ``timeit`` does). Predictions come from such steps, too.
    """
    return min(settled_steps(timeline), key=lambda one: one.step_time)


def settled_steps(timeline: Timeline) -> list[Timeline]:
    """Every step for itself, without the first one, which also warms up (unless there is one)."""
    return [timeline.only(step=step) for step in timeline.steps[1:] or timeline.steps]


def verify(
    plans: Sequence[Plan],
    *,
    repeats: int = 3,
    steps: int = STEPS,
    say: Say = lambda text: None,
) -> tuple[Verified, ...]:
    """Run each plan `repeats` times, the plans taking turns, so that what the machine does besides
    hits all alike. A plan that fails keeps its reason; raises RunError when all fail."""
    runs: dict[int, list[Run]] = {i: [] for i in range(len(plans))}
    problems: dict[int, str] = {}
    failure: RunError | None = None
    for turn in range(repeats):
        for i, plan in enumerate(plans):
            if i in problems:
                continue
            say(f"runs plan {i + 1} of {len(plans)}, turn {turn + 1} of {repeats}")
            try:
                runs[i].append(plan.run(steps=steps, quiet=True, keep=False))
            except RunError as error:
                failure = failure or error
                problems[i] = str(error).strip().splitlines()[0]
    if failure is not None and len(problems) == len(plans):
        raise failure
    return tuple(
        Verified(
            plan,
            tuple(quietest(run.timeline).step_time for run in runs[i]),
            tuple(quietest(run.timeline).bubble for run in runs[i]),
            problems.get(i, ""),
            tuple(runs[i]),
        )
        for i, plan in enumerate(plans)
    )


def fastest(verified: Sequence[Verified]) -> Verified | None:
    """The plan with the shortest measured step."""
    return min((v for v in verified if v.steps), key=lambda v: v.step, default=None)


def settled(verified: Sequence[Verified]) -> Verified | None:
    """The plan to take: the fastest, or the first choice when both are a tie within noise."""
    best = fastest(verified)
    if best is None or not verified[0].steps:
        return best
    over, noise = _margin(verified[0], best)
    return verified[0] if over <= noise else best


def _margin(first: Verified, best: Verified) -> tuple[float, float]:
    """(how much slower the first choice is, how far runs of one plan lie apart; nan: not known)."""
    known = [v.noise for v in (first, best) if v.noise >= 0]
    return first.step / best.step - 1, max(known, default=float("nan"))


def verdict(verified: Sequence[Verified]) -> str:
    """Whether the first choice is the measured best, in words; a tie within noise is called one."""
    best = fastest(verified)
    if best is None or not verified[0].steps:
        return "The first choice could not be run."
    first = verified[0]
    if len([v for v in verified if v.steps]) == 1:
        return "Only the first choice was run."
    if best is first:
        others = [v for v in verified[1:] if v.steps]
        second = min(others, key=lambda v: v.step)
        return (
            "The first choice is the measured best: the next one takes "
            f"{second.step / first.step - 1:.1%} longer."
        )
    over, noise = _margin(first, best)
    if over <= noise:
        return (
            f"Plan {verified.index(best) + 1} is {over:.1%} faster than the first choice, less "
            f"than runs of one plan differ by ({noise:.1%}): a tie."
        )
    return (
        f"Plan {verified.index(best) + 1} is the measured best: {over:.1%} faster than the first "
        "choice."
    )
