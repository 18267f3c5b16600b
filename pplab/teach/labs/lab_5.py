"""Lab 5: write a schedule that beats 1F1B in the same memory, and run it for real."""

from __future__ import annotations

from typing import Any

import numpy as np

from pplab.core.costs import Costs
from pplab.core.schedule import Schedule
from pplab.core.schedules import one_f_one_b, pipedream, zb_h2
from pplab.core.timeline import Timeline
from pplab.runtime import models
from pplab.runtime.run import run
from pplab.teach.lab import Lab, Question
from pplab.teach.labs.judging import listing, number, plan_of
from pplab.teach.question import Mistake
from pplab.teach.verdict import Verdict, right, wrong

TITLE = "a schedule that beats 1F1B"
P, M = 4, 8
#: Question 3: the bubble to reach; question 4: the step against 1F1B's, on real ranks.
TARGET, RATIO = 0.15, 0.93
#: Question 6 asks about this micro-batch of a stream of twelve.
ASKED = 5


def on_equal_terms(plan: Schedule, **times: Any) -> Timeline:
    """Simulated with F = B = W = 1 for a whole stage, whatever the number of chunks."""
    share = 1 / plan.chunks
    return plan.simulate(**(times or {"forward": share, "backward": 2 * share, "weight": share}))


def stages_held(plan: Schedule, timeline: Timeline) -> list[float]:
    """Most activations each rank holds at once, in those of a whole stage."""
    return [float(count) / plan.chunks for count in timeline.measures.peak_in_flight()]


# -- the checks ------------------------------------------------------------------------------------


def _one_f_one_b(answer: Any, lab: Lab) -> Verdict:
    for stages, micro_batches in ((P, M), (2, 3), (3, 7), (P, 2), (1, 4)):
        plan = plan_of(answer, stages, micro_batches)
        if isinstance(plan, Verdict):
            return plan
        theirs = one_f_one_b(stages, micro_batches)
        if (plan.stages, plan.micro_batches) != (stages, micro_batches):
            return wrong("it has to work for any number of stages and micro-batches.")
        if plan == theirs:
            continue
        mine, wanted = (one.simulate(forward=1, backward=2) for one in (plan, theirs))
        held, fewest = mine.measures.peak_in_flight(), wanted.measures.peak_in_flight()
        where = f"with P = {stages} and M = {micro_batches}"
        if held.max() > fewest.max():
            return wrong(
                f"{where} its ranks hold {listing(held)} micro-batches, 1F1B's {listing(fewest)}: "
                "run B0 as soon as it can be run."
            )
        if mine.step_time > wanted.step_time * (1 + 1e-9):
            return wrong(
                f"{where} a step takes {mine.step_time:g} units, 1F1B's {wanted.step_time:g}: "
                "a rank needs P - 1 - s forward passes ahead of its steady phase."
            )
        if held.tolist() != fewest.tolist():
            return wrong(
                f"{where} its ranks hold {listing(held)} micro-batches, 1F1B's {listing(fewest)}."
            )
    return right("as fast as DeepSpeed's and as small, for five sizes.")


def _floor(answer: Any, lab: Lab) -> Verdict:
    work = 3 * M
    least = zb_h2(P, M).simulate(forward=1, backward=2, weight=1)
    return number(
        answer,
        least.step_time,
        f"the last rank cannot start before {P - 1} and has {work} units to work.",
        Mistake(
            work,
            f"{work} is the work of a rank. But rank {P - 1} is idle until micro-batch 0 has "
            "passed "
            f"the {P - 1} others, whatever the schedule: zero bubble is not zero idle.",
            "zero-bubble-zero-idle",
        ),
        Mistake(
            one_f_one_b(P, M).simulate(forward=1, backward=2).step_time,
            "that is what 1F1B takes; it idles at the end as well, and there W could be run.",
        ),
        Mistake(work + 2 * (P - 1), "the start costs P - 1; the end need not cost anything."),
        within=0.005,
    )


def _beat(answer: Any, lab: Lab) -> Verdict:
    plan = plan_of(answer, P, M)
    if isinstance(plan, Verdict):
        return plan
    if (plan.stages, plan.micro_batches) != (P, M):
        return wrong(f"it is for {plan.stages} stages and {plan.micro_batches} micro-batches.")
    if any(op.kind == "U" for row in plan.ops for op in row):
        return wrong("an optimizer step within the step changes what is learnt; leave U out.")
    mine, theirs = on_equal_terms(plan), on_equal_terms(one_f_one_b(P, M))
    held, cap = stages_held(plan, mine), max(stages_held(one_f_one_b(P, M), theirs))
    if max(held) > cap:
        return wrong(
            f"its ranks hold {listing(held)} activations, and no rank of 1F1B holds more than "
            f"{cap:g}. (Its bubble is {mine.bubble:.1%}; memory is what it pays with.)"
        )
    if not plan.splits_backward and mine.step_time >= theirs.step_time * (1 - 1e-9):
        same = mine.step_time <= theirs.step_time * (1 + 1e-9)
        how = "exactly as long as" if same else "longer than"
        return wrong(
            f"it takes {mine.step_time:g} units, {how} 1F1B. With whole backward passes no order "
            "does better in this memory: split off W."
        )
    if mine.bubble > TARGET:
        return wrong(
            f"its bubble is {mine.bubble:.1%} (1F1B {theirs.bubble:.1%}), and {TARGET:.0%} is "
            "asked for. Where do ranks still wait while a W could be run?"
        )
    return right(
        f"{mine.step_time:g} units instead of {theirs.step_time:g}, bubble {mine.bubble:.1%} "
        f"instead of {theirs.bubble:.1%}, with at most {max(held):g} activations held."
    )


def _real(answer: Any, lab: Lab) -> Verdict:
    first = _beat(answer, lab)
    if not first.ok:
        return first
    plan = plan_of(answer, P, M)
    assert isinstance(plan, Schedule)
    layers = P * plan.chunks
    each: dict[str, Any] = {
        "forward": 0.020 / plan.chunks,
        "backward": 0.040 / plan.chunks,
        "layers": layers,
    }
    for _ in range(2):  # once more where the machine was busy with something else
        mine = run(plan, models.paced(**each), quiet=True, keep=False)
        theirs = run(one_f_one_b(P, M), models.paced(**each), quiet=True, keep=False)
        ratio = mine.step_time / theirs.step_time
        if ratio <= RATIO:
            break
    said = f"step {mine.step_time:.3f} s, 1F1B {theirs.step_time:.3f} s: ratio {ratio:.3f}"
    apart = max(abs(a - b) for a, b in zip(mine.losses, theirs.losses, strict=True))
    if apart > 1e-5:
        return wrong("it trains something else: the losses differ from 1F1B's.", measured=said)
    if ratio > RATIO:
        return wrong(
            f"on real ranks it takes more than {RATIO} of 1F1B's time. If the machine was busy, "
            "run the check again.",
            measured=said,
        )
    return right("faster on four real ranks, and the losses are equal.", said)


def _idle(answer: Any, lab: Lab) -> Verdict:
    t = zb_h2(P, M).simulate(forward=1, backward=2, weight=1)
    idle = t.measures.idle
    try:
        mine = np.asarray(answer, dtype=float)
        mine = np.broadcast_to(mine, idle.shape)
    except (TypeError, ValueError):
        return wrong(f"a number for each of the {P} ranks is asked for.")
    if np.allclose(mine, idle):
        return right(
            f"each rank works {t.measures.busy[0]:g} of {t.step_time:g} units, without a gap: the "
            "idle time lies before its first and after its last operation."
        )
    if np.allclose(mine, 0):
        return wrong(
            "zero bubble is not zero idle: it means no gap between a rank's own first and last "
            "operation. Compare measures.busy with the length of the step.",
            "zero-bubble-zero-idle",
        )
    return wrong("the step is as long for every rank; take its work off.")


def _stale(answer: Any, lab: Lab) -> Verdict:
    row = pipedream(P, 12).ops[0]
    names = [str(op) for op in row]
    between = row[names.index(f"F{ASKED}") : names.index(f"B{ASKED}")]
    updates = sum(op.kind == "U" for op in between)
    try:
        count, which = int(answer[0]), str(answer[1]).strip().lower()
    except (TypeError, ValueError, IndexError):
        return wrong("two things are asked for: (number of updates, 'stashed' or 'newest').")
    if which not in ("stashed", "newest"):
        return wrong("the second is 'stashed' or 'newest'.")
    if which == "newest":
        return wrong(
            "then the gradient would belong to no weights at all, and be wrong. PipeDream keeps "
            f"the weights that F{ASKED} has used and takes them out again: the gradient is exact.",
            "pipedream-wrong-gradients",
        )
    return number(
        count,
        updates,
        f"B{ASKED} finds weights {updates} updates newer, and uses the stashed ones: exact "
        "gradients, for weights that are a little old.",
        Mistake(0, f"count the U's between F{ASKED} and B{ASKED} in rank 0's row."),
        within=1e-6,
    )


def _own(answer: Any, lab: Lab) -> Verdict:
    try:
        schedule, costs = answer
    except (TypeError, ValueError):
        return wrong("two things are asked for: (schedule, pplab.Costs(...)).")
    if not isinstance(costs, Costs):
        return wrong(f"the second is to be pplab.Costs(...), not a {type(costs).__name__}.")
    plan = plan_of(schedule, P, M)
    if isinstance(plan, Verdict):
        return plan
    base = one_f_one_b(plan.stages, plan.micro_batches)
    if plan.chunks > 1:
        return wrong("bring one with one chunk a rank: your costs are those of whole stages.")
    mine, theirs = plan.simulate(costs), base.simulate(costs)
    held, cap = mine.measures.peak_in_flight().max(), theirs.measures.peak_in_flight().max()
    if held > cap:
        return wrong(f"it holds {held} activations on some rank, 1F1B at most {cap}.")
    gain = 1 - mine.step_time / theirs.step_time
    if gain <= 0:
        return wrong(f"with your costs it takes {-gain:.1%} longer than 1F1B.")
    return right("with your own costs it is faster than 1F1B, in the same memory.",
                 f"{gain:.1%} shorter steps")  # fmt: skip


QUESTIONS = {
    "q1": Question(
        "1F1B in your own words",
        10,
        "medium",
        _one_f_one_b,
        (
            "Three loops: some forward passes, then one forward and one backward in turn, then the "
            "backward passes that are left.",
            "Rank s runs P - 1 - s forward passes first (or M, if that is less). In the steady "
            "phase it runs F of the next micro-batch, then B of the oldest one.",
            "ahead = min(stages - 1 - stage, micro_batches); F(m) for m < ahead; then F(m), "
            "B(m - ahead); then the last `ahead` B's.",
        ),
        "How far a rank runs ahead decides both time and memory.",
    ),
    "q2": Question(
        "what is the least any schedule can take?",
        5,
        "medium",
        _floor,
        (
            "Which rank starts last, and how much has it to do?",
            "Rank 3 gets micro-batch 0 after three forward passes; then it has 8 x (F + B + W) to "
            "work.",
            "3 * 1 + 8 * 3",
        ),
        "27 units, for every schedule that updates once a step. ZB-H1 and ZB-H2 both reach it.",
    ),
    "q3": Question(
        "a bubble of at most 15 %, in 1F1B's memory",
        18,
        "hard",
        _beat,
        (
            "Split W off, and put it where ranks wait: in the drain.",
            "Keep 1F1B's order of F and B. Rank s may leave s W's undone (it holds fewer "
            "micro-batches than rank 0, so there is room); run one W after each B from then on, "
            "and "
            "the rest at the end.",
            "after each yield B(m): if m >= stage: yield W(m - stage). At the end, W(m) for the "
            "last min(stage, micro_batches) micro-batches.",
        ),
        "This is ZB-H1 of the Zero Bubble paper: a third of the bubble, the memory of 1F1B's rank "
        "0 on all ranks.",
    ),
    "q4": Question(
        "run it",
        4,
        "easy",
        _real,
        (
            "Hand your schedule in: the check runs it, and 1F1B, on four real ranks.",
            "The ratio of the simulations is 27/33 = 0.82; a few per cent are lost on the way.",
            'lab.check("q4", mine)',
        ),
        "Same layers, same losses, another order: 0.82 of the time in theory.",
    ),
    "q5": Question(
        "how idle is zero bubble?",
        4,
        "easy",
        _idle,
        (
            "Idle, for a rank, is the length of the step without its work.",
            "schedules.zb_h2(4, 8).simulate(forward=1, backward=2) has measures.idle.",
            "zb.measures.idle",
        ),
        "Three units each: the starts are staggered, so are the ends.",
    ),
    "q6": Question(
        "how old are PipeDream's weights?",
        6,
        "medium",
        _stale,
        (
            "Print the row of rank 0 and look between F5 and B5.",
            "Each U there is an update that B5 must not see.",
            "row = [str(op) for op in schedules.pipedream(4, 12).ops[0]]; count the U's between "
            "row.index('F5') and row.index('B5').",
        ),
        "Three updates pass by; the stashed weights make the gradient exact.",
    ),
    "q7": Question(
        "on two GPUs",
        4,
        "medium",
        lambda answer, lab: _on_gpus(answer),
        (
            "Nothing in the call changes: GPUs are taken where they are.",
            "run.placement says which device and which library were used.",
            "pplab.run(schedules.zb_h1(2, 8), models.gpt())",
        ),
        "Operations last microseconds there, so messages and launches weigh more.",
        gpus=2,
    ),
    "own": Question(
        "bring your own",
        9,
        "open",
        _own,
        (
            "run.costs has the measured costs of any run.",
            "Split a real model's backward pass (ZB-H1) and take the costs of that run: they have "
            "a W of their own.",
            "(mine, pplab.run(mine(4, 8), models.gpt(), quiet=True).costs)",
        ),
        "Whether the split pays depends on F, B, W and messages: your numbers, not the paper's.",
    ),
}


def _on_gpus(answer: Any) -> Verdict:
    placement = getattr(answer, "placement", None)
    if not isinstance(placement, dict):
        return wrong("a finished run is asked for.")
    if placement.get("device") != "cuda" or answer.timeline.stages < 2:
        return wrong(f"it ran here: {placement.get('why')}.")
    return right("the same schedule, on GPUs.", f"bubble {answer.bubble:.1%}")
