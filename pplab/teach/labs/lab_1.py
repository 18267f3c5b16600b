"""Lab 1: read a timeline and diagnose. Four runs, each with another ailment; all are measured."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median
from typing import Any

from pplab.core.batch import ideal_bubble, least_micro_batches
from pplab.core.costs import Costs
from pplab.core.schedules import one_f_one_b
from pplab.core.timeline import Timeline
from pplab.runtime import models
from pplab.runtime.record import Run
from pplab.runtime.run import run
from pplab.teach.lab import Lab, Question
from pplab.teach.labs.judging import bubbles, lengths, near, number, share
from pplab.teach.question import Mistake, number_of
from pplab.teach.verdict import Verdict, right, wrong

TITLE = "read a timeline and diagnose"
P, M = 4, 8
#: The least bubble that question 6 asks for.
TARGET = 0.14


# -- the cases: runs whose settings the learner does not see --------------------------------------


def _even() -> Run:
    return run(one_f_one_b(P, M), models.paced(0.020, 0.040), quiet=True, keep=False)


def _heavy_first() -> Run:
    slow = models.paced([0.030, 0.020, 0.020, 0.020], [0.060, 0.040, 0.040, 0.040])
    return run(one_f_one_b(P, M), slow, quiet=True, keep=False)


def _cold() -> Run:
    return run(
        one_f_one_b(2, 4), models.own(_waking, data=_vectors), steps=6, quiet=True, keep=False
    )


def _blocking() -> Run:
    slow = models.paced([0.010, 0.010, 0.010, 0.020], [0.020, 0.020, 0.020, 0.040])
    stages: dict[str, Any] = {"stages": P, "micro_batches": M}
    return run(None, slow, engine="deepspeed", quiet=True, keep=False, **stages)


def _waking() -> list[Any]:
    """Layers of which one does something slow before its very first forward pass."""
    import time

    from torch import nn

    class Waking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.awake = nn.Linear(8, 8), False

        def forward(self, x: Any) -> Any:
            if not self.awake:
                time.sleep(0.5)
                self.awake = True
            time.sleep(0.005)
            return self.linear(x)

    return [Waking(), nn.Linear(8, 8)]


def _vectors(index: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(index)
    return torch.randn(4, 8, generator=generator), torch.randn(4, 8, generator=generator)


CASES = {"A": _even, "B": _heavy_first, "C": _cold, "D": _blocking}


# -- the checks ------------------------------------------------------------------------------------


def _bubble(answer: Any, lab: Lab) -> Verdict:
    step = lab.case("A").timeline.typical
    found = bubbles(step)
    return share(
        answer,
        found[0],
        "that is idle over total.",
        *(
            Mistake(
                bubble / (1 - bubble),
                "you have divided idle by *useful* time. Divide by ranks x step.",
                "overhead-is-bubble",
            )
            for bubble in found
        ),
        Mistake(
            (P - 1) / M,
            "that is (P-1)/M, idle over useful in an ideal pipeline. Add up the spans instead.",
            "overhead-is-bubble",
        ),
        *(
            Mistake(1 - bubble, "that is the useful share: the bubble is the rest.")
            for bubble in found
        ),
        also=found[1:],
        within=0.03,
        measured=f"bubble {step.bubble:.1%}",
    )


def _culprit(answer: Any, lab: Lab) -> Verdict:
    measures = lab.case("B").timeline.typical.measures
    rank = number_of(answer)
    if rank not in range(P):
        return wrong(f"ranks are 0 to {P - 1}, not {answer!r}.")
    slowest, idlest = int(measures.busy.argmax()), int(measures.idle.argmax())
    said = "idle, rank 0 first: " + ", ".join(f"{t * 1e3:.0f} ms" for t in measures.idle)
    if rank == slowest:
        return right("it never waits, and the others wait for it.", said)
    if rank == idlest:
        return wrong("this rank waits most: it is the victim. Who is waited for?", measured=said)
    return wrong("this rank waits as the others do: look for the one that does not.", measured=said)


def _cured(answer: Any, lab: Lab) -> Verdict:
    case = lab.case("B")
    step, costs = case.step_time, case.costs
    forward, backward = _by_stage(costs.forward), _by_stage(costs.backward)
    # Any of the other ranks may be taken as the example, or all: on a busy machine they differ.
    others = [forward[1:], backward[1:]]
    like = [tuple(map(median, others)), tuple(map(mean, others)), *zip(*others, strict=True)]
    plan, evens = one_f_one_b(P, M), []
    for f, b in like:
        for fs, bs in (([f, *forward[1:]], [b, *backward[1:]]), (f, b)):
            in_full = replace(costs, forward=fs, backward=bs)  # with its messages, too
            evens += [plan.simulate(one).step_time for one in (Costs(fs, bs), in_full)]
    return number(
        answer,
        evens[0],
        "less is won than the excess of all micro-batches: part of it fell into time in which the "
        "others waited anyway.",
        *(
            Mistake(
                step - M * (forward[0] - f + backward[0] - b),
                "you have taken off the excess of all M micro-batches. A slow *first* stage does "
                "not lose all of it: while it works on the last backward passes, the others have "
                "nothing to do anyway. Simulate the even pipeline instead.",
                "excess-lost-in-full",
            )
            for f, b in like
        ),
        Mistake(step, "that is the step as it is."),
        *(
            Mistake(
                step * (f + b) / (forward[0] + backward[0]),
                "you have scaled the whole step by the slow stage; fill and drain are not its own.",
            )
            for f, b in like
        ),
        also=evens[1:],
        within=0.05,
        measured=f"now {step:.3f} s; even {evens[0]:.3f} s",
    )


def _by_stage(times: Any) -> list[float]:
    """Mean time of each stage, from costs by stage or by stage and micro-batch."""
    import numpy as np

    array = np.asarray(times, dtype=float)
    return (array.mean(axis=1) if array.ndim == 2 else array).tolist()


def _typical(answer: Any, lab: Lab) -> Verdict:
    times = lab.case("C").step_times
    said = "steps: " + ", ".join(f"{t * 1e3:.0f} ms" for t in times)
    first = "the first step woke something up that later ones find awake. Leave it out."
    return number(
        answer,
        median(times[1:]),
        "the first step is another thing; the median forgives one outlier more.",
        Mistake(mean(times), first, "warm-up-is-slow"),
        Mistake(times[0], first, "warm-up-is-slow"),
        also=[mean(times[1:])],  # which a single slow step moves, on a busy machine
        within=0.15,
        measured=said,
    )


def _busy(answer: Any, lab: Lab) -> Verdict:
    step = lab.case("D").timeline.typical
    looks, bubble = looks_busy(step), step.bubble
    # Or all spans added up as they are: waits for a rank 0 that is late count in full, and the
    # share may even come to more than 1.
    spans = float((step.end - step.start).sum()) / step.stages
    all_looks = [looks, *(spans / length for length in lengths(step))]
    try:
        mine_looks, mine_bubble = map(float, answer)
    except (TypeError, ValueError):
        return wrong("two shares are asked for: (looks_busy, bubble).")
    said = f"inside some span {looks:.1%} of the time, bubble {bubble:.1%}"
    if abs(mine_bubble - (1 - mine_looks)) < 0.02 and abs(mine_bubble - bubble) > 0.05:
        return wrong(
            "1 - looks_busy is not the bubble: a rank inside a receive (R) or a send (S) looks "
            "busy, and does nothing useful. Count F, B and U only.",
            "busy-means-no-bubble",
            said,
        )
    if not any(near(mine_looks, one, 0.05) for one in all_looks):
        return wrong("looks_busy is off: every span counts, whatever its kind.", measured=said)
    if not any(near(mine_bubble, one, 0.05) for one in bubbles(step)):
        return wrong(
            "the bubble is off: only spans of kind F, B, W and U are useful.", measured=said
        )
    return right("a monitor sees the first number, your pipeline runs by the second.", said)


def looks_busy(step: Timeline) -> float:
    """Share of ranks x step that is inside a span of any kind, waiting included."""
    work = step.only(kinds="FBWU")
    begin, end = float(work.start.min()), float(work.end.max())
    inside = 0.0
    for rank in range(step.stages):
        mine = step.rank == rank
        reached = begin
        for start, stop in sorted(zip(step.start[mine], step.end[mine], strict=True)):
            inside += max(0.0, min(stop, end) - max(start, reached))
            reached = max(reached, min(stop, end))
    return inside / (step.stages * (end - begin))


def _fewest(answer: Any, lab: Lab) -> Verdict:
    count = number_of(answer)
    if count is None or count != int(count) or count < 1:
        return wrong(f"a whole number of micro-batches is asked for, not {answer!r}.")
    count = int(count)
    simulated = one_f_one_b(P, count).simulate(forward=0.010, backward=0.020, unit="s").bubble
    if simulated > TARGET:
        rule = ' ("2P keeps the pipeline full" is a saying.)' if count == 2 * P else ""
        return wrong(f"with {count} micro-batches the bubble still is {simulated:.1%}.{rule}")
    fewest = least_micro_batches(P, TARGET)
    if count > fewest:
        if ideal_bubble(P, count) <= (P - 1) / count <= TARGET < (P - 1) / (count - 1):
            return wrong(
                f"you have solved (P-1)/M <= {TARGET:.0%}, which is idle over useful; the bubble "
                f"already is that small with fewer ({simulated:.1%} with yours).",
                "overhead-is-bubble",
            )
        return wrong(f"it can be done with fewer: yours gives {simulated:.1%}.")
    real = run(one_f_one_b(P, count), models.paced(0.010, 0.020), quiet=True, keep=False)
    return right(
        f"simulated {simulated:.1%}, and one micro-batch fewer is too few.",
        f"run on four ranks: bubble {real.bubble:.1%}",
    )


def _own(answer: Any, lab: Lab) -> Verdict:
    try:
        what, bubble, slowest = answer
    except (TypeError, ValueError):
        return wrong("three things are asked for: (run or timeline, bubble, slowest rank).")
    timeline = getattr(what, "timeline", what)
    if not isinstance(timeline, Timeline) or not len(timeline):
        return wrong("the first of the three is to be a run, or a timeline with something in it.")
    step = timeline.typical
    busiest = int(step.measures.busy.argmax())
    said = f"{step.measures.sentence()}; rank {busiest} works most"
    if not any(abs(float(bubble) - one) <= max(0.01, 0.03 * one) for one in bubbles(step)):
        mistaken = near(float(bubble), step.measures.bubble_overhead, 0.03)
        return wrong(
            "that is idle over useful." if mistaken else "its bubble is another.",
            "overhead-is-bubble" if mistaken else "",
            said,
        )
    if slowest != busiest:
        return wrong("another rank works more: the slowest one waits least.", measured=said)
    return right("you can read a timeline nobody has prepared for you.", said)


QUESTIONS = {
    "q1": Question(
        "the bubble of case A, from its spans",
        6,
        "easy",
        _bubble,
        (
            "Idle is what is left of the whole area when useful time is taken off.",
            "Add up end - start of the spans whose kind is F, B or U, over all ranks. The area is "
            "ranks x (last end - first start) of those spans.",
            "useful = sum(s.end - s.start for s in step if s.op.kind in 'FBU'); then "
            "1 - useful / (step.stages * length).",
        ),
        "Useful over total is the share of work; the bubble is the rest. It is a little above "
        "(P-1)/(M+P-1) = 27.3 %, since messages and the optimizer take time.",
    ),
    "q2": Question(
        "case B: who slows the others down?",
        3,
        "easy",
        _culprit,
        (
            "Who waits is the victim.",
            "Look for the rank with the least idle time.",
            "case_b.timeline.typical.measures.idle.argmin()",
        ),
        "The slow rank looks best: it is always busy.",
    ),
    "q3": Question(
        "case B: how long would its step be if it were cured?",
        10,
        "hard",
        _cured,
        (
            "Do not subtract: ask the simulator.",
            "case_b.costs has the measured times of each stage. Give the slow stage the times of "
            "the others, and simulate the same schedule.",
            "one_f_one_b(4, 8).simulate(forward=f, backward=b, unit='s').step_time, where f and b "
            "are one number each: the mean forward and backward time of rank 1.",
        ),
        "A slow first stage costs less than its excess times M: its last backward passes run while "
        "the others have nothing to do anyway.",
    ),
    "q4": Question(
        "case C: how long is a step?",
        4,
        "easy",
        _typical,
        (
            "Look at all six step times before you compute anything.",
            "One of them is not like the others, and its reason is gone after it.",
            "statistics.median(case_c.step_times[1:])",
        ),
        "The first step allocates, agrees on shapes, compiles. None of it comes again.",
    ),
    "q5": Question(
        "case D: busy is not useful",
        8,
        "medium",
        _busy,
        (
            "This timeline has spans of more kinds than F and B: R waits for a message, S sends.",
            "looks_busy counts all spans, the bubble only F, B and U; both over ranks x step.",
            "shares = [sum(s.end - s.start for s in step if s.op.kind in kinds) / area "
            "for kinds in ('FBUSRGL', 'FBU')]; the second one is 1 - bubble.",
        ),
        "GPUs report the first number. A rank that spins in a receive counts as busy.",
    ),
    "q6": Question(
        "how many micro-batches for a bubble of at most 14 %?",
        5,
        "medium",
        _fewest,
        (
            "The formula has a plus below the line.",
            "Solve (P-1)/(M+P-1) <= 0.14 for M, or try one M after the other.",
            "next(m for m in range(1, 99) if 3 / (m + 3) <= 0.14)",
        ),
        "(P-1)(1-b)/b = 18.4 for P = 4 and b = 0.14, so 19.",
    ),
    "own": Question(
        "bring your own",
        15,
        "open",
        _own,
        (
            "Any run will do: another model, other stages, or a trace file you have read.",
            "run.bubble is the bubble of its typical step, measures.busy the work of each rank.",
            "(my_run, my_run.bubble, int(my_run.timeline.typical.measures.busy.argmax()))",
        ),
        "The same two questions for every timeline: how much is idle, and who does not wait?",
    ),
}
