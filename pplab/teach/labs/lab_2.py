"""Lab 2: choose GAS under a memory cap. The numbers are measured on real ranks, or simulated."""

from __future__ import annotations

from typing import Any

from pplab.core.batch import least_micro_batches
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.core.timeline import Timeline
from pplab.runtime import models
from pplab.runtime.record import Run
from pplab.runtime.run import run
from pplab.teach.lab import Lab, Question
from pplab.teach.labs.judging import AS_SHARE, is_per_cent, listing, number, numbers_of, share
from pplab.teach.question import Mistake, number_of
from pplab.teach.verdict import Verdict, right, wrong

TITLE = "choose GAS under a memory cap"
P = 4
#: Question 3: samples of a step, and how many samples' activations a rank can hold.
SAMPLES, CAP = 64, 20
#: Question 5: less than this is won by doubling M.
KNEE = 0.05


def _two_replicas() -> Run:
    quick = models.paced(0.005, 0.010)
    return run(one_f_one_b(2, 4), quick, replicas=2, micro_batch_size=3, quiet=True, keep=False)


CASES = {"two replicas": _two_replicas}


def operation(samples: int) -> float:
    """Seconds of a forward pass of one stage: 4 ms to start it, 1 ms for each sample."""
    return 0.004 + 0.001 * samples


def step(samples: int, micro_batches: int) -> Timeline:
    """A step of 1F1B on four stages with micro-batches of `samples` samples, simulated."""
    f = operation(samples)
    return one_f_one_b(P, micro_batches).simulate(forward=f, backward=2 * f, unit="s")


# -- the checks ------------------------------------------------------------------------------------


def _count(answer: Any, lab: Lab) -> Verdict:
    case = lab.case("two replicas")
    one = case.timeline.typical.only(replica=0, kinds="F")
    seen = int((one.rank == 0).sum())
    gas, replicas, size = case.job.micro_batches, case.job.replicas, case.job.micro_batch_size
    return number(
        answer,
        seen,
        "M is GAS and nothing else; the other replica has its own.",
        Mistake(
            gas * replicas,
            f"that is GAS x replicas = {gas} x {replicas}, what *both* pipelines see together. One "
            "pipeline knows nothing of the other: count the F's of rank 0.",
            "gas-times-replicas",
        ),
        Mistake(gas * size, "that counts samples: a micro-batch has several of them."),
        Mistake(gas * size * replicas, "those are the samples of the whole step."),
        within=1e-6,
        measured=f"rank 0 of replica 0 ran {seen} forward passes",
    )


def _held(answer: Any, lab: Lab) -> Verdict:
    M = 16
    held = one_f_one_b(P, M).simulate(forward=1, backward=2).measures.peak_in_flight().tolist()
    try:
        mine = [int(value) for value in answer]
    except (TypeError, ValueError):
        return wrong(f"a list of {P} numbers is asked for, rank 0 first.")
    if mine == held:
        return right("P - s on rank s, and M does not appear in it.")
    if len(mine) != P:
        return wrong(f"there are {P} ranks, and you give {len(mine)} numbers.")
    if mine == held[::-1]:
        return wrong(
            "you have it upside down: the last rank turns each micro-batch round at once and holds "
            "one. The first waits for it to come back.",
            "last-stage-most-memory",
        )
    if max(mine) > P:
        return wrong(
            "more than P are never held: rank 0 runs B0 before F4. The number of micro-batches "
            "does not matter, once it is at least P.",
            "memory-grows-with-m",
        )
    if len(set(mine)) == 1:
        return wrong("the ranks differ: the later a rank, the sooner the gradient is back.")
    rank = next(r for r in range(P) if mine[r] != held[r])
    return wrong(f"rank {rank} holds another number: follow its row until its first B.")


def _choose(answer: Any, lab: Lab) -> Verdict:
    try:
        size, gas = (int(value) for value in answer)
    except (TypeError, ValueError):
        return wrong("two whole numbers are asked for: (micro-batch size, GAS).")
    if size < 1 or gas < 1:
        return wrong("both are at least 1.")
    if size * gas != SAMPLES:
        if size * gas <= CAP:
            return wrong(
                f"{size} x {gas} = {size * gas} samples: the batch has {SAMPLES}. If you made it "
                "small so that *all* its micro-batches fit, look again at what 1F1B holds: never "
                f"more than P = {P} of them.",
                "memory-grows-with-m",
            )
        return wrong(f"{size} x {gas} = {size * gas} samples, and the batch has {SAMPLES}.")
    mine = step(size, gas)
    need = size * int(mine.measures.peak_in_flight().max())
    if need > CAP:
        return wrong(
            f"rank 0 holds {need // size} micro-batches of {size} samples, {need} in all: the cap "
            f"is {CAP}."
        )
    sizes = [b for b in range(1, SAMPLES + 1) if SAMPLES % b == 0]
    fits = [b for b in sizes if b * min(P, SAMPLES // b) <= CAP]
    best = min(fits, key=lambda b: step(b, SAMPLES // b).step_time)
    if best != size:
        theirs = step(best, SAMPLES // best).step_time
        more = mine.step_time / theirs - 1
        small = (
            "bubble is small, but each operation costs 4 ms to start"
            if size < best
            else "bubble is large"
        )
        return wrong(f"it fits, but there is a choice that is {more:.0%} faster. Here the {small}.")
    f = operation(size)
    real = run(
        one_f_one_b(P, gas), models.paced(f, 2 * f), micro_batch_size=size, quiet=True, keep=False
    )
    held = size * int(real.timeline.typical.measures.peak_in_flight().max())
    if held > CAP:
        return wrong(f"run for real, rank 0 held {held} samples: the cap is {CAP}.")
    return right(
        f"{need} samples held, a step of {mine.step_time * 1e3:.0f} ms, bubble {mine.bubble:.1%} "
        "(simulated). Not the smallest bubble: the shortest step.",
        f"run on four ranks: {held} samples held, {real.step_time * 1e3:.0f} ms, "
        f"bubble {real.bubble:.1%}",
    )


def _gpipe(answer: Any, lab: Lab) -> Verdict:
    size = 4
    given = numbers_of(answer, 2)
    if given is None:
        return wrong("two numbers are asked for: (micro-batches, bubble as a share).")
    count, bubble = int(given[0]), given[1]
    most = max(
        m for m in range(1, SAMPLES)
        if size * int(gpipe(P, m).simulate().measures.peak_in_flight().max()) <= CAP
    )  # fmt: skip
    if count != most:
        if count > most:
            held = int(gpipe(P, count).simulate().measures.peak_in_flight().max())
            return wrong(f"GPipe holds all {held} of them, {held * size} samples: over the cap.")
        return wrong("one more still fits.")
    true = gpipe(P, most).simulate(forward=1, backward=2).bubble
    return share(
        bubble,
        true,
        "1F1B runs 16 micro-batches in the same memory, with a bubble of "
        f"{one_f_one_b(P, 16).simulate(forward=1, backward=2).bubble:.1%}. That is what it is for.",
        Mistake((P - 1) / most, "that is (P-1)/M: idle over useful.", "overhead-is-bubble"),
        Mistake(
            one_f_one_b(P, 16).simulate(forward=1, backward=2).bubble,
            "that is the bubble of 16 micro-batches; GPipe has room for fewer.",
        ),
        within=0.02,
    )


def _knee(answer: Any, lab: Lab) -> Verdict:
    count = number_of(answer)
    if count is None or count != int(count) or count < 1:
        return wrong(f"a whole number is asked for, not {answer!r}.")
    count = int(count)

    def won(m: int) -> float:
        """By how much throughput grows when m is doubled, at one size of the micro-batches."""
        one, two = (one_f_one_b(P, k).simulate(forward=1, backward=2) for k in (m, 2 * m))
        return 2 * one.step_time / two.step_time - 1

    if won(count) >= KNEE:
        saying = ' ("2P keeps the pipeline full" is a saying.)' if count == 2 * P else ""
        return wrong(f"doubling {count} still brings {won(count):.1%}.{saying}")
    if count > 1 and won(count - 1) < KNEE:
        if count == least_micro_batches(P, KNEE):
            return wrong("that is where the *bubble* is 5 %; doubling stops helping earlier.")
        if count == -(-(P - 1) // KNEE):
            return wrong(
                "that is where (P-1)/M is 5 %, idle over useful; another question.",
                "overhead-is-bubble",
            )
        return wrong(f"fewer will do: at {count - 1} doubling brings {won(count - 1):.1%} already.")
    return right(
        f"doubling {count} brings {won(count):.1%}, doubling {count - 1} {won(count - 1):.1%}."
    )


def _recompute(answer: Any, lab: Lab) -> Verdict:
    before, after = (one_f_one_b(P, 16).simulate(forward=1, backward=b) for b in (2, 3))
    given = numbers_of(answer, 2)
    if given is None:
        return wrong("two numbers are asked for: (bubble, length of the step in units).")
    bubble, length = given
    if is_per_cent(bubble):
        return wrong(AS_SHARE)
    if bubble < before.bubble * 0.99:
        return wrong(
            "the bubble does not shrink: backward passes get longer, and idle time with them, in "
            "the same proportion. What shrinks is memory.",
            "checkpointing-shrinks-bubble",
        )
    if abs(bubble - (P - 1) / 16) < 0.002:
        return wrong("that is (P-1)/M: idle over useful.", "overhead-is-bubble")
    if abs(bubble - after.bubble) > 0.002:
        return wrong("the bubble is another: (P-1)/(M+P-1) has no F and no B in it.")
    if abs(length - before.step_time) < 0.5:
        return wrong("that is the step without recomputing: each backward pass takes 3 now.")
    if abs(length - after.step_time) > 0.5:
        return wrong("the step is (M+P-1)(F+B) long; B takes 3 now.")
    return right(
        f"the share stays, the step grows from {before.step_time:g} to {after.step_time:g} units: "
        "time is what the memory costs."
    )


def _own(answer: Any, lab: Lab) -> Verdict:
    wanted = ("stages", "samples", "micro_batch", "bytes_per_sample", "cap")
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        return wrong(f"a dict with {', '.join(wanted)} is asked for.")
    numbers = {name: number_of(value) for name, value in answer.items()}
    bad = [name for name, value in numbers.items() if value is None or value <= 0]
    if bad:
        return wrong(f"{', '.join(bad)}: numbers above 0.")
    stages, samples, size = (int(numbers[name] or 0) for name in wanted[:3])
    if samples % size:
        return wrong(f"{samples} samples do not divide into micro-batches of {size}.")
    t = one_f_one_b(stages, samples // size).simulate(forward=1, backward=2)
    held = t.measures.peak_in_flight()
    need = float(held.max()) * size * float(numbers["bytes_per_sample"] or 0)
    cap = float(numbers["cap"] or 0)
    rows = f"micro-batches held, rank 0 first: {listing(held)}"
    if need > cap:
        return wrong(f"rank 0 needs {need:.3g} bytes, and the cap is {cap:.3g} ({rows}).")
    if t.bubble > 0.15:
        return wrong(f"it fits, with a bubble of {t.bubble:.1%}: get it to 15 % or less.")
    return right(f"bubble {t.bubble:.1%}, {need / cap:.0%} of the cap used; {rows}.")


QUESTIONS = {
    "q1": Question(
        "how many micro-batches does one pipeline see?",
        5,
        "easy",
        _count,
        (
            "Count in the picture: how many F's does one rank run?",
            "The two replicas are two pipelines that meet only at the end of a step.",
            "case.config['gradient_accumulation_steps']",
        ),
        "M = gradient_accumulation_steps (pipe/engine.py:93). Replicas multiply samples, not M.",
    ),
    "q2": Question(
        "what does each rank hold?",
        5,
        "easy",
        _held,
        (
            "Look at the rows of the plan: how many F's stand before the first B?",
            "Rank 3 turns round at once; each rank before it has one more under way.",
            "plan.simulate(forward=1, backward=2).measures.peak_in_flight()",
        ),
        "P - s on rank s. With 16 or 1600 micro-batches alike.",
    ),
    "q3": Question(
        "micro-batch size and GAS under a cap",
        12,
        "hard",
        _choose,
        (
            "Two things pull apart: many small micro-batches make the bubble small, and each "
            "operation costs 4 ms however small it is.",
            "For each size that divides 64: what does rank 0 hold, and how long is the step? Drop "
            "what is over the cap, take the fastest.",
            "for b in (1, 2, 4, 8, 16): print(b, b * min(4, 64 // b), "
            "one_f_one_b(4, 64 // b).simulate(forward=4 + b, backward=2 * (4 + b)).step_time)",
        ),
        "Size 8 is the fastest but holds 32 samples; of what fits, 4 x 16 takes 456 ms, 2 x 32 "
        "630 ms, 1 x 64 1005 ms.",
    ),
    "q4": Question(
        "the same cap under GPipe",
        6,
        "medium",
        _gpipe,
        (
            "GPipe holds every micro-batch of the step.",
            "Cap over micro-batch size; then the formula.",
            "M = 20 // 4; bubble = 3 / (M + 3)",
        ),
        "Five micro-batches of four, then the memory is full: 3/8 of the time is idle.",
    ),
    "q5": Question(
        "the knee: when does doubling stop helping?",
        8,
        "medium",
        _knee,
        (
            "Throughput at a fixed micro-batch size is micro-batches per time.",
            "M micro-batches take (M+3)(F+B). Compare M and 2M.",
            "next(m for m in range(1, 99) if 2 * (m + 3) / (2 * m + 3) - 1 < 0.05)",
        ),
        "2(M+3)/(2M+3) falls below 1.05 for M > 28.5. Predictable, without any run.",
    ),
    "q6": Question(
        "recomputing activations",
        5,
        "medium",
        _recompute,
        (
            "What does the formula of the bubble depend on?",
            "A backward pass that repeats its forward pass takes 3 instead of 2. Simulate both.",
            "t = one_f_one_b(4, 16).simulate(forward=1, backward=3); (t.bubble, t.step_time)",
        ),
        "The bubble is the same share of a longer step. Recomputing buys memory with time.",
    ),
    "own": Question(
        "bring your own",
        12,
        "open",
        _own,
        (
            "Take a model of yours: run.memory[0]['activation_bytes'] is one micro-batch of it.",
            "Choose a micro-batch size that divides your batch; GAS follows.",
            "dict(stages=4, samples=64, micro_batch=2, bytes_per_sample=..., cap=...)",
        ),
        "Memory sets the size of a micro-batch, the bubble sets how many there are.",
    ),
}
