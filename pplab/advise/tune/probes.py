"""Short runs that measure what the layers' times do not say: one a shape of the job.

A probe runs 1F1B with few micro-batches of a middle size. From it come the time between operations
and of messages, gradient reduction and optimizer, and how much slower layers are when ranks compute
beside each other than alone. Two more tell, where they matter, what splitting a backward pass into
B and W costs, and what recomputation adds. No plan is run before it is ranked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from pplab.advise.tune.candidates import Candidate
from pplab.advise.tune.known import Known, Overheads, Shape, Split
from pplab.advise.tune.price import schedule_of
from pplab.advise.tune.subject import Say, Subject
from pplab.advise.tune.verify import settled_steps
from pplab.core.costs import Costs
from pplab.core.partition import minimax
from pplab.runtime.failure import RunError
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from pplab.runtime.run import run_job
from pplab.runtime.sweep.predict import reference_of

STEPS = 5  # the first one warms up and does not count
TURNS = 3  # runs of each probe


def probe(subject: Subject, candidates: Iterable[Candidate], say: Say = lambda text: None) -> Known:
    """Run the probes that these candidates ask for. A probe that fails costs its shape only;
    raises RunError when all of them fail."""
    wanted = list(candidates)
    shapes: dict[Shape, Candidate] = {}
    for c in wanted:
        shapes.setdefault((c.stages, c.replicas, c.tensor, c.zero), c)
    sizes = {
        shape: middle([one for one in wanted if one.stages == c.stages])
        for shape, c in shapes.items()
    }
    found: dict[Shape, Overheads] = {}
    problems: dict[Shape, str] = {}
    told, failure = [], None
    steps: dict[Shape, list[Run]] = {}
    for turn in range(TURNS):
        for shape, c in shapes.items():
            if shape in problems:
                continue
            say(f"probes {c.shape}{f', ZeRO-{c.zero}' if c.replicas > 1 else ''}, turn {turn + 1}")
            try:
                ran = _run(subject, c, sizes[shape], "1f1b")
            except (RunError, ValueError) as error:
                failure = failure or error
                problems[shape] = str(error).strip().splitlines()[0]
                continue
            steps.setdefault(shape, []).extend(ran)
    for shape, several in steps.items():
        found[shape], c = least(subject, several), shapes[shape]
        many = several[0].job.micro_batches
        told.append(f"{c.shape}, ZeRO-{c.zero}: 1F1B, {many} x {sizes[shape]} samples")
    if failure is not None and not found:
        raise failure
    split, again = _split(subject, wanted, found, say), _again(subject, wanted, found, say)
    return Known(found, split, again, tuple(told), (), problems)


def middle(candidates: list[Candidate]) -> int:
    """A micro-batch size in the middle of those that are offered."""
    sizes = sorted({c.micro_batch_size for c in candidates})
    return sizes[len(sizes) // 2]


def least(subject: Subject, steps: list[Run]) -> Overheads:
    """What the steps of a probe say together. Whatever else the machine does only adds time, so
    the least of each part says most. How the parts fit together comes from the fastest step."""
    each = [overheads(subject, one) for one in steps]
    fastest = each[min(range(len(steps)), key=lambda i: steps[i].timeline.step_time)]
    parts = ("forward", "backward", "ends", "working")
    return replace(fastest, **{name: min(getattr(one, name) for one in each) for name in parts})


def overheads(subject: Subject, run: Run) -> Overheads:
    """What one step of a probe says of its shape."""
    reference = reference_of(run)
    costs, profile = reference.costs, subject.sizes.at(run.job.micro_batch_size)
    ends = np.atleast_1d(np.asarray(costs.update, dtype=float))
    working = reference.update or 0.0
    return Overheads(
        forward=float(np.sum(costs.forward)) / (float(profile.forward.sum()) or 1.0),
        backward=float(np.sum(costs.backward)) / (float(profile.backward.sum()) or 1.0),
        overhead=costs.overhead,
        latency=float(np.asarray(costs.latency, dtype=float).mean()),
        stretch=stretch(run, costs),
        ends=float(ends.max()),
        working=working / run.job.stages,
    )


def stretch(run: Run, costs: Costs) -> float:
    """How much longer the pipeline of a probe took than the simulator makes of its costs."""
    assert run.job.schedule is not None
    simulated = run.job.schedule.simulate(replace(costs, update=0.0)).step_time
    pipeline = run.timeline.only(kinds="FBW").step_time
    return pipeline / simulated if simulated else 1.0


def _split(
    subject: Subject, wanted: list[Candidate], found: dict[Shape, Overheads], say: Say
) -> Split | None:
    """What B + W take against an undivided B. A paced model says it: no more, and how much is W."""
    splitting = [c for c in wanted if _splits(c) and _shape(c) in found]
    if not splitting:
        return None
    if subject.paced and subject.model is not None:
        settings = subject.model(subject.sizes.measured[0]).settings
        if settings.get("weight") is None:
            return Split()
        profile = subject.sizes.at(subject.sizes.measured[0])
        weight = np.broadcast_to(settings["weight"], len(profile)).sum()
        return Split(1.0, float(weight / (profile.backward.sum() or 1.0)))
    c = splitting[0]
    say("probes what it costs to split backward passes")
    try:
        steps = _turns(subject, c, middle(splitting), "zb-h1")
    except (RunError, ValueError):
        return None
    seen, run = least(subject, steps), min(steps, key=lambda one: one.timeline.step_time)
    total = float(np.sum(run.costs.backward))
    weight = float(np.sum(run.costs.weight)) if run.costs.weight is not None else total / 2
    return Split(seen.backward / found[_shape(c)].backward, weight / total)


def _again(
    subject: Subject, wanted: list[Candidate], found: dict[Shape, Overheads], say: Say
) -> float | None:
    """What recomputation adds to B, over the F it repeats."""
    again = [c for c in wanted if c.recompute and not _splits(c) and _shape(c) in found]
    if not again:
        return 1.0
    c = again[0]
    say("probes what recomputation costs")
    size = middle(again)
    try:
        steps = _turns(subject, c, size, "1f1b", recompute=c.recompute)
    except (RunError, ValueError):
        return None
    seen, base = least(subject, steps), found[_shape(c)]
    profile = subject.sizes.at(size)
    more = (seen.backward - base.backward) * float(profile.backward.sum())
    return max(0.0, more / (base.forward * float(profile.forward.sum())))


def _shape(c: Candidate) -> Shape:
    return c.stages, c.replicas, c.tensor, c.zero


def _splits(c: Candidate) -> bool:
    return c.stages > 1 and c.schedule in ("zb-h1", "zb-h2", "dualpipev")


def _turns(
    subject: Subject, c: Candidate, size: int, schedule: str, recompute: int = 0
) -> list[Run]:
    turns = range(TURNS)
    return [one for _ in turns for one in _run(subject, c, size, schedule, recompute)]


def _run(subject: Subject, c: Candidate, size: int, schedule: str, recompute: int = 0) -> list[Run]:
    """A probe, step by step; the first step is left out."""
    assert subject.model is not None
    plan = schedule_of(schedule, c.stages, max(4, 2 * c.stages))
    times = subject.sizes.at(size).times
    settings: dict[str, Any] = {"steps": STEPS, **subject.settings}
    settings |= {"replicas": c.replicas, "tensor": c.tensor, "zero": c.zero}
    settings |= {"micro_batch_size": size, "activation_checkpoint_interval": recompute}
    job = Job(
        model=subject.model(size),
        stages=c.stages,
        micro_batches=plan.micro_batches,
        schedule=plan,
        bounds=minimax(times, c.stages),
        **settings,
    )
    run = run_job(job, quiet=True, keep=False)
    return [replace(run, timeline=one) for one in settled_steps(run.timeline)]
