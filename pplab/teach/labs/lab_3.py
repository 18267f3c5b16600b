"""Lab 3: balance a lopsided model and prove it with a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

from pplab.core.partition import partition
from pplab.core.partition.cuts import PartitionError, check_bounds, every_cut
from pplab.core.partition.deepspeed import partition_balanced
from pplab.core.profile import Profile
from pplab.core.schedules import one_f_one_b
from pplab.core.timeline import Timeline
from pplab.runtime import models
from pplab.runtime.profiling.ask import profile
from pplab.runtime.run import run
from pplab.teach.lab import Lab, Question
from pplab.teach.labs.judging import listing, number
from pplab.teach.question import Mistake, number_of
from pplab.teach.verdict import Verdict, right, wrong

TITLE = "balance a lopsided model"
P, M = 3, 8
#: Milliseconds of each layer's forward pass; backward passes take twice that.
_COSTS = (6.5, 5.0, 1.5, 5.5, 3.0, 7.5, 1.5, 1.5)
UNIFORM = (0, 3, 6, 8)
#: Question 5: how many times faster the balanced cut has to be, on real ranks.
GAIN = 1.15
#: Question 6: a fifth of four stages' time more, for one of them.
_HEAVY, _STAGES = 1.3, 4

_MODEL = models.paced([c / 1e3 for c in _COSTS], [c / 500 for c in _COSTS])
CASES = {
    "model": lambda: _MODEL,
    "profile": lambda: profile(_MODEL, repeats=5, quiet=True),
}


def loads(costs: Sequence[float], bounds: Sequence[int]) -> list[float]:
    """Time of each stage: the sum of its layers."""
    return [sum(costs[a:b]) for a, b in pairwise(bounds)]


def step(measured: Profile, bounds: Sequence[int]) -> Timeline:
    """A simulated step of 1F1B on the stages that `bounds` make of a profile."""
    forward = loads([layer.forward for layer in measured.layers], bounds)
    backward = loads([layer.backward for layer in measured.layers], bounds)
    return one_f_one_b(len(bounds) - 1, M).simulate(forward=forward, backward=backward, unit="s")


# -- the checks ------------------------------------------------------------------------------------


def _heaviest(answer: Any, lab: Lab) -> Verdict:
    times = [layer.time for layer in lab.case("profile").layers]
    place = number_of(answer)
    if place not in range(len(times)):
        return wrong(f"layers are 0 to {len(times) - 1}, not {answer!r}.")
    heaviest = times.index(max(times))
    said = "F + B: " + ", ".join(f"{t * 1e3:.1f}" for t in times) + " ms"
    if place == heaviest:
        return right("forward and backward pass together are what a stage spends on it.", said)
    if place == heaviest + 1:
        return wrong("count from 0.", measured=said)
    return wrong("another one takes longer, forward and backward together.", measured=said)


def _by_parameters(answer: Any, lab: Lab) -> Verdict:
    measured = lab.case("profile")
    times = [1e3 * layer.time for layer in measured.layers]
    weights = [layer.parameters for layer in measured.layers]
    bounds = partition_balanced(weights, P)
    stages = loads(times, bounds)
    said = "stages: " + ", ".join(f"{t:.1f} ms" for t in stages)
    return number(
        answer,
        max(stages),
        "equal parameters, and one stage takes several times as long as another.",
        Mistake(
            sum(times) / P,
            "that would be so if equal parameters took equal time. These layers all have as many, "
            "and take between 4.5 and 22.5 ms: add up the layers of each stage.",
            "parameters-are-time",
        ),
        Mistake(max(stages) / 3, "that is its forward pass; B takes twice as long."),
        within=0.06,
        measured=said,
    )


def _bounds(answer: Any, lab: Lab) -> tuple[int, ...] | Verdict:
    """The answer as bounds, or what is wrong with them."""
    layers = len(_COSTS)
    try:
        given = [int(b) for b in answer]
    except (TypeError, ValueError):
        return wrong(f"bounds are asked for: {P + 1} numbers from 0 to {layers}.")
    if sorted(given) == list(range(layers)):
        return wrong(
            "an order of the layers is no cut. Sorting them makes another model: a stage is a "
            "contiguous piece of the order in which they run."
        )
    try:
        return tuple(check_bounds(given, layers, P))
    except PartitionError as error:
        return wrong(f"{error}.")


def _best(answer: Any, lab: Lab) -> Verdict:
    bounds = _bounds(answer, lab)
    if isinstance(bounds, Verdict):
        return bounds
    times = [layer.time for layer in lab.case("profile").layers]
    mine = loads(times, bounds)
    best = loads(times, partition(times, P, "minimax").bounds)
    said = "stages: " + ", ".join(f"{t * 1e3:.1f} ms" for t in mine)
    if max(mine) <= max(best) * 1.01:
        return right("no cut has a shorter slowest stage: all of them were compared.", said)
    slow = mine.index(max(mine))
    if bounds == UNIFORM:
        return wrong("these are equal numbers of layers, not equal times.", measured=said)
    return wrong(
        f"stage {slow} is the slowest, and its slowest can be {max(mine) / max(best) - 1:.0%} "
        "shorter. Move one of its ends.",
        measured=said,
    )


def _gain(answer: Any, lab: Lab) -> Verdict:
    measured = lab.case("profile")
    times = [layer.time for layer in measured.layers]
    bounds = partition(times, P, "minimax").bounds
    before, after = (step(measured, b).step_time for b in (UNIFORM, bounds))
    least = max(loads(times, bounds))
    slowest = max(loads(times, UNIFORM)) / least
    # Measured times may give several cuts whose slowest stage is the same one: all are the best.
    cuts = chain.from_iterable(every_cut(len(times), P))
    best = [cut for cut in cuts if max(loads(times, cut)) <= least * 1.01]
    return number(
        answer,
        before / after,
        "fill and drain do not shrink with the slowest stage, so the gain is less than its own.",
        Mistake(
            slowest,
            "that is how much shorter the slowest *stage* gets. In fill and drain, the other "
            "stages count as well: simulate both cuts.",
            "excess-lost-in-full",
        ),
        Mistake(after / before, "the other way round: old over new."),
        Mistake(1.0, "nothing is lost, but the waiting is: the step does get shorter."),
        also=[before / step(measured, cut).step_time for cut in best],
        within=0.025,
        measured=f"{before * 1e3:.0f} ms before, {after * 1e3:.0f} ms after (simulated from the "
        "profile)",
    )


def _proof(answer: Any, lab: Lab) -> Verdict:
    bounds = _bounds(answer, lab)
    if isinstance(bounds, Verdict):
        return bounds
    if bounds == UNIFORM:
        return wrong("that is the cut to be beaten.")
    ratio, said, apart = 0.0, "", 0.0
    for _ in range(2):  # once more where the machine was busy with something else
        old, new = (
            run(one_f_one_b(P, M), _MODEL, bounds=cut, quiet=True, keep=False)
            for cut in (UNIFORM, bounds)
        )
        ratio = old.step_time / new.step_time
        said = f"step {old.step_time:.3f} s before, {new.step_time:.3f} s after: {ratio:.2f} times"
        apart = max(abs(a - b) for a, b in zip(old.losses, new.losses, strict=True))
        if ratio >= GAIN:
            break
    if ratio < GAIN:
        return wrong(
            f"it is not {GAIN} times faster on three real ranks. If the machine was busy, run the "
            "check again.",
            measured=said,
        )
    if apart > 1e-5:
        return wrong("the two runs learn different things.", measured=said)
    return right("the same layers, the same losses, cut elsewhere.", said)


def _where(answer: Any, lab: Lab) -> Verdict:
    place = number_of(answer)
    if place not in range(_STAGES):
        return wrong(f"stages are 0 to {_STAGES - 1}, not {answer!r}.")
    times = []
    for heavy in range(_STAGES):
        speed = [_HEAVY if stage == heavy else 1.0 for stage in range(_STAGES)]
        plan = one_f_one_b(_STAGES, M)
        times.append(plan.simulate(forward=speed, backward=[2 * s for s in speed]).step_time)
    rows = f"steps with the heavy stage at 0, 1, 2, 3: {listing(times)} units"
    if place == times.index(min(times)):
        return right(f"{rows}.")
    if place == _STAGES - 1:
        return wrong(
            f"that is the worst place ({rows}): a slow last stage loses all of its excess, an "
            "earlier one only what does not fall into time that others wait anyway.",
            "excess-lost-in-full",
        )
    return wrong(f"there is a cheaper place ({rows}).")


def _own(answer: Any, lab: Lab) -> Verdict:
    try:
        what, bounds = answer
    except (TypeError, ValueError):
        return wrong("two things are asked for: (profile or list of times, bounds).")
    times = [layer.time for layer in what.layers] if isinstance(what, Profile) else list(what)
    stages = len(bounds) - 1
    if stages < 2 or len(times) < 4:
        return wrong("bring at least four layers, and cut them into two stages or more.")
    mine = loads(times, check_bounds(bounds, len(times), stages))
    best = loads(times, partition(times, stages, "minimax").bounds)
    said = f"slowest stage {max(mine) / max(best):.2f} times the best possible"
    if max(mine) > 1.02 * max(best):
        return wrong("another cut has a shorter slowest stage.", measured=said)
    return right("no cut of your layers is better by more than 2 %.", said)


QUESTIONS = {
    "q1": Question(
        "which layer takes longest?",
        4,
        "easy",
        _heaviest,
        (
            "Measured times are in the profile.",
            "Forward and backward pass together; layers count from 0.",
            "times = [layer.time for layer in measured.layers]; times.index(max(times))",
        ),
        "A profile says what each layer costs; nothing else does.",
    ),
    "q2": Question(
        "what equal parameters cost",
        6,
        "easy",
        _by_parameters,
        (
            "All layers have the same number of parameters, so each stage gets about as many of "
            "them.",
            "DeepSpeed cuts at 3 and 6: add up the times of the layers of each stage.",
            "1e3 * max(sum(times[a:b]) for a, b in ((0, 3), (3, 6), (6, 8)))",
        ),
        "Parameters are not time. DeepSpeed knows parameters and layer types, and no times.",
    ),
    "q3": Question(
        "the best cut",
        10,
        "medium",
        _best,
        (
            "The slowest stage sets the pace: make the largest of the three sums as small as "
            "possible.",
            "There are only 21 ways to cut eight layers into three pieces: try them all.",
            "min(((0, a, b, 8) for a in range(1, 7) for b in range(a + 1, 8)), "
            "key=lambda c: max(sum(times[i:j]) for i, j in zip(c, c[1:])))",
        ),
        "Cut at 2 and 5: the slowest stage takes 115 instead of 160 parts.",
    ),
    "q4": Question(
        "predict the gain",
        8,
        "hard",
        _gain,
        (
            "Do not divide the slowest stages: a step also fills and drains.",
            "Simulate 1F1B with the times of the stages of each cut, and divide the steps.",
            "schedules.one_f_one_b(3, 8).simulate(forward=f, backward=b), with f and b the sums of "
            "layer.forward and layer.backward of each stage.",
        ),
        "160/115 = 1.39 for the stage, 1.28 for the step: fill and drain count all stages.",
    ),
    "q5": Question(
        "prove it",
        4,
        "easy",
        _proof,
        (
            "Hand in your bounds: the check trains both cuts on three real ranks.",
            "pplab.run(plan, model, bounds=...) does it yourself.",
            'lab.check("q5", best)',
        ),
        "Predicted 1.28. A prediction that was not run is a guess.",
    ),
    "q6": Question(
        "if one stage must be heavier: which?",
        5,
        "medium",
        _where,
        (
            "Who waits for whom at the end of a step?",
            "Simulate four steps, each with another heavy stage.",
            "for heavy in range(4): one_f_one_b(4, 8).simulate(forward=[1.3 if s == heavy else 1 "
            "...], backward=...).step_time",
        ),
        "Give what is left over to the first stage: 12 % of throughput lost instead of 18 %.",
    ),
    "own": Question(
        "bring your own",
        12,
        "open",
        _own,
        (
            "pplab.profile(model) measures any list of layers.",
            "pplab.partition(profile, stages).bounds is the best cut.",
            "(mine, pplab.partition(mine, 2, 'minimax').bounds)",
        ),
        "Profile, cut, predict, run: the same four steps for every model.",
    ),
}
