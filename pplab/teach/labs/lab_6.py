"""Lab 6, the capstone: a slow job, made fast, with every millisecond explained."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pplab.core.partition.cuts import check_bounds
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import gpipe
from pplab.core.timeline import Timeline
from pplab.runtime import models
from pplab.runtime.record import Run
from pplab.runtime.run import run
from pplab.teach.lab import Lab, Question
from pplab.teach.labs.judging import bubbles, near, numbers_of, plan_of
from pplab.teach.labs.lab_3 import loads
from pplab.teach.verdict import Verdict, right, wrong

TITLE = "capstone: make a slow job fast"
P, M = 4, 16
#: What is to be reached, on real ranks.
BUBBLE, SPREAD = 0.15, 0.10
#: Milliseconds of each layer's forward pass: an embedding, fourteen blocks, a heavy head.
COSTS = (3.0, *(3.0,) * 14, 15.0)
UNIFORM = (0, 4, 8, 12, 16)
PARTS = ("fill and drain", "imbalance", "variation", "messages", "overhead", "optimizer step")

_MODEL = models.paced([c / 1e3 for c in COSTS], [c / 500 for c in COSTS])


def _slow() -> Run:
    return run(gpipe(P, M), _MODEL, quiet=True, keep=False)


CASES = {"model": lambda: _MODEL, "job": _slow}


def spread(step: Timeline) -> float:
    """How far the ranks' work lies apart: (most - least) / most."""
    busy = step.measures.busy
    return float((busy.max() - busy.min()) / busy.max())


def simulated(maker: ScheduleMaker, bounds: Sequence[int]) -> float:
    """Seconds of a step with this schedule and cut, messages free."""
    forward = [t / 1e3 for t in loads(COSTS, bounds)]
    backward = [2 * t for t in forward]
    return maker(P, M).simulate(forward=forward, backward=backward, unit="s").step_time


# -- the checks ------------------------------------------------------------------------------------


def _measure(answer: Any, lab: Lab) -> Verdict:
    step = lab.case("job").timeline.typical
    try:
        bubble, apart = map(float, answer)
    except (TypeError, ValueError):
        return wrong("two shares are asked for: (bubble, spread).")
    said = f"bubble {step.bubble:.1%}, spread {spread(step):.1%}"
    if near(bubble, step.measures.bubble_overhead, 0.03):
        return wrong("that is idle over useful; the bubble is idle over total.",
                     "overhead-is-bubble", said)  # fmt: skip
    if not any(near(bubble, one, 0.03) for one in bubbles(step)):
        return wrong("the bubble is another.", measured=said)
    if not near(apart, spread(step), 0.06):
        return wrong("the spread is (most - least) / most of the ranks' work.", measured=said)
    return right(
        "nearly half of the machine is idle, and one rank has twice the work of another.", said
    )


def _largest(answer: Any, lab: Lab) -> Verdict:
    parts = lab.case("job").breakdown()
    shares = {name: parts[name] for name in PARTS}
    said = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    # On a busy machine the largest part may be the one that the rebuild does not see.
    losses = {part.name: part.time for part in parts.parts if part.name != "useful work"}
    largest = [max(some, key=lambda name: losses[name]) for some in (shares, losses)]
    name = str(answer).strip().lower()
    if name == "useful work":
        return wrong("useful work is no loss.", measured=said)
    if name not in losses:
        return wrong(f"it is one of: {', '.join(PARTS)}.")
    if name in largest:
        return right("the largest loss first; it is not what people call the bubble.", said)
    return wrong("another part is larger.", measured=said)


def _cut(answer: Any, lab: Lab) -> Verdict:
    bounds = check_bounds([int(b) for b in answer], len(COSTS), P)
    stages = loads(COSTS, bounds)
    apart = (max(stages) - min(stages)) / max(stages)
    said = ", ".join(f"{t:g} ms" for t in stages)
    if tuple(bounds) == UNIFORM:
        return wrong(f"that is the cut it has: {said} (forward).")
    if apart > SPREAD:
        slow = stages.index(max(stages))
        return wrong(f"the stages take {said} (forward): a spread of {apart:.0%}. Stage {slow} is "
                     "the slowest.")  # fmt: skip
    return right(f"the stages take {said} (forward).")


def _fixed(answer: Any, lab: Lab) -> Verdict:
    try:
        maker, bounds = answer
    except (TypeError, ValueError):
        return wrong("two things are asked for: (schedule, bounds).")
    plan = plan_of(maker, P, M)
    if isinstance(plan, Verdict):
        return plan
    if (plan.stages, plan.micro_batches, plan.chunks) != (P, M, 1):
        return wrong(f"keep {P} stages, {M} micro-batches and one chunk a rank.")
    if any(op.kind == "U" for row in plan.ops for op in row):
        return wrong("it updates within the step, so it learns something else.")
    job = lab.case("job")
    verdict = wrong("it was not run.")
    for _ in range(2):  # once more where the machine was busy with something else
        new = run(plan, _MODEL, bounds=tuple(int(b) for b in bounds), quiet=True, keep=False)
        verdict = _compare(job, new)
        if verdict.ok:
            break
    return verdict


def _compare(job: Run, new: Run) -> Verdict:
    step = new.timeline.typical
    said = (
        f"step {job.step_time:.3f} s before, {new.step_time:.3f} s after "
        f"({job.step_time / new.step_time:.2f} times); bubble {step.bubble:.1%}, "
        f"spread {spread(step):.1%}"
    )
    if max(abs(a - b) for a, b in zip(job.losses, new.losses, strict=True)) > 1e-5:
        return wrong("the losses are not those of the old job.", measured=said)
    if spread(step) > SPREAD:
        return wrong(
            f"the ranks' work lies more than {SPREAD:.0%} apart: cut elsewhere. If the machine was "
            "busy, run the check again.",
            measured=said,
        )
    if step.bubble > BUBBLE:
        return wrong(
            f"the bubble is above {BUBBLE:.0%}. The cut is good: now the order. (1F1B has the same "
            "bubble as GPipe: 3/19 = 15.8 % here.)",
            "1f1b-smaller-bubble" if new.job.schedule and new.job.schedule.name == "1F1B" else "",
            said,
        )
    return right(f"bubble below {BUBBLE:.0%}, spread below {SPREAD:.0%}, equal losses.", said)


def _explain(answer: Any, lab: Lab) -> Verdict:
    from pplab.core.schedules import zb_h1

    even = (0, 5, 10, 15, 16)
    old, cut, new = (
        simulated(maker, bounds)
        for maker, bounds in ((gpipe, UNIFORM), (gpipe, even), (zb_h1, even))
    )
    given = numbers_of(answer, 2)
    if given is None:
        return wrong("two numbers of seconds are asked for: (by the cut, by the schedule).")
    by_cut, by_order = given
    if by_cut > 10 * old:
        return wrong("that is longer than the step took: seconds are asked for, not milliseconds.")
    known = f"a step of {old * 1e3:.0f} ms, then {cut * 1e3:.0f}, then {new * 1e3:.0f}"
    excess = max(loads(COSTS, UNIFORM)) - max(loads(COSTS, even))
    if near(by_cut, old - cut, 0.05) and near(by_order, cut - new, 0.08):
        return right(f"{known} (simulated): the cut brings most of it.")
    if near(by_cut, 3 * M * excess / 1e3, 0.02):
        return wrong(
            "that is the slowest stage's excess times all 16 micro-batches. In fill and drain the "
            "other stages take their time as well: simulate both cuts.",
            "excess-lost-in-full",
        )
    if near(by_cut + by_order, old - new, 0.05):
        return wrong(
            "the sum is right, its parts are not: change one thing at a time, first the cut."
        )
    return wrong("simulate three steps: as it was, with the new cut, with cut and schedule.")


def _own(answer: Any, lab: Lab) -> Verdict:
    try:
        before, after, ratio = answer
    except (TypeError, ValueError):
        return wrong("three things are asked for: (run before, run after, step ratio).")
    if not all(hasattr(one, "timeline") and hasattr(one, "losses") for one in (before, after)):
        return wrong("the first two are to be finished runs.")
    true = before.step_time / after.step_time
    # Also from the log, as lab 1 does it: the typical step is one of these, and they may differ.
    logged = [median(one.step_times[1:] or one.step_times) for one in (before, after)]
    ratios = [true, logged[0] / logged[1]]
    said = f"{before.step_time:.3f} s before, {after.step_time:.3f} s after: {true:.2f} times"
    if len(before.losses) != len(after.losses) or any(
        abs(a - b) > 1e-3 * max(1.0, abs(a))
        for a, b in zip(before.losses, after.losses, strict=True)
    ):
        return wrong("the two jobs do not learn the same.", measured=said)
    if max(ratios) <= 1:
        return wrong("the job did not become faster.", measured=said)
    if not any(near(float(ratio), one, 0.02) for one in ratios):
        return wrong("the ratio is another.", measured=said)
    return right("faster, and the same losses.", said)


QUESTIONS = {
    "q1": Question(
        "measure it",
        5,
        "easy",
        _measure,
        (
            "Look at the typical step: who waits, who does not?",
            "The bubble is a number of the run; busy times are in timeline.typical.measures.busy.",
            "busy = job.timeline.typical.measures.busy; (job.bubble, (busy.max() - busy.min()) / "
            "busy.max())",
        ),
        "Two numbers say where to look: how much is idle, and how uneven the work is.",
    ),
    "q2": Question(
        "name the largest loss",
        4,
        "easy",
        _largest,
        (
            "A breakdown names every part of a step.",
            "job.breakdown(): the largest part that is not useful work.",
            '"imbalance" or "fill and drain", whichever is larger in job.breakdown()',
        ),
        "Work on the largest part first: here the cut, not the schedule.",
    ),
    "q3": Question(
        "cut it elsewhere",
        10,
        "medium",
        _cut,
        (
            "The head takes as long as five blocks.",
            "All layers take 60 ms: each stage should have 15.",
            "pplab.partition(times, 4, 'minimax').bounds",
        ),
        "Embedding and four blocks, five blocks, five blocks, the head alone: 15 ms each.",
    ),
    "q4": Question(
        "make it fast",
        12,
        "hard",
        _fixed,
        (
            "With an even cut, what is left is fill and drain: 15.8 % for GPipe, and for 1F1B.",
            "The batch stays, so more micro-batches are no way out. Which schedule fills the "
            "drain?",
            "(schedules.zb_h1, bounds)",
        ),
        "An even cut and ZB-H1: same batch, same losses, 1.6 times as fast.",
    ),
    "q5": Question(
        "explain it",
        10,
        "hard",
        _explain,
        (
            "Change one thing at a time.",
            "Simulate GPipe with the old cut, GPipe with the new one, ZB-H1 with the new one.",
            "step = lambda make, bounds: make(4, 16).simulate(forward=stage times in seconds, "
            "backward=twice that, unit='s').step_time; two differences.",
        ),
        "1260 ms, 855 ms, 765 ms: 405 ms by the cut and 90 ms by the schedule.",
    ),
    "own": Question(
        "bring your own",
        14,
        "open",
        _own,
        (
            "Any job of yours that runs here, before and after one change.",
            "Keep the batch: then the losses must agree, and the check looks at them.",
            "(before, after, before.step_time / after.step_time)",
        ),
        "Measure, name, predict, change, verify: the whole loop.",
    ),
}
