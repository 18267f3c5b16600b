"""From candidates to plans, the fastest first, and a reason for everything that is out.

Every candidate is priced twice at most: first with the cut of least largest stage, then, where a
lower bound says that it could still be among the first, with the cut of least step time. Candidates
whose bound is above the last place that counts keep their first cut; no cut can bring them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pplab.advise.tune.candidates import ASYNCHRONOUS, PREFERRED, Candidate
from pplab.advise.tune.known import Known
from pplab.advise.tune.plan import Plan
from pplab.advise.tune.price import Priced, Pricer, TooLarge, schedule_of
from pplab.advise.tune.subject import Subject
from pplab.core.partition import PartitionError

#: A gain below this part of the step is what two runs of one plan differ by.
ALIKE = 0.01


@dataclass(frozen=True)
class Out:
    """A candidate that is no plan: a code, and a sentence that says why. need, cap: bytes, where
    memory is the reason; step: what it would take, where it was priced."""

    what: Candidate
    kind: str
    why: str
    need: float = 0.0
    cap: float = 0.0
    step: float = 0.0


#: What the codes mean, for the summary.
KINDS = {
    "cores": "with more ranks than can compute at once",
    "size": "of a micro-batch size without measured times",
    "layers": "with too few layers for so many slices",
    "schedule": "whose schedule does not exist for these numbers",
    "asynchronous": "on stale weights, which is not the training of a single process",
    "zero": "with ZeRO-2 or 3 in a pipeline",
    "refused": "that a run refuses",
    "unmeasured": "whose costs nobody measured",
    "memory": "that do not fit into memory",
    "needless": "recomputing where memory does not ask for it",
    "alike": "no faster than one of the same shape that needs no more memory",
}


def sift(
    candidates: Iterable[Candidate], subject: Subject, places: int | None
) -> tuple[list[Candidate], list[Out]]:
    """Candidates that can be run at all, and the others with the reason."""
    good, out = [], []
    for c in candidates:
        found = why_not(c, subject, places)
        if found is None:
            good.append(c)
        else:
            out.append(Out(c, *found))
    return good, out


def why_not(c: Candidate, subject: Subject, places: int | None) -> tuple[str, str] | None:
    """(code, sentence) of what speaks against a candidate before its costs are known."""
    if c.schedule in ASYNCHRONOUS:
        return "asynchronous", (
            f"{c.order} updates weights while micro-batches are in flight: its gradients are "
            "stale, and its losses not those of a single process"
        )
    if c.zero >= 2:
        return "zero", (
            f"DeepSpeed refuses ZeRO-{c.zero} with a pipeline (pipe/engine.py: gradients of all "
            "micro-batches must stay until the end of a step); use engine='zero' without one"
        )
    if places is not None and c.world > places:
        return "cores", (
            f"{c.world} ranks would share {places} core{'s' * (places > 1)} or GPUs: they would "
            "compute in turns, which no schedule foresees"
        )
    if why := subject.sizes.why_not(c.micro_batch_size):
        return "size", why
    try:
        schedule = schedule_of(c.schedule, c.stages, c.micro_batches)
    except ValueError as error:
        return "schedule", str(error)
    if schedule.layout.slices > subject.sizes.layers:
        return "layers", (
            f"{subject.sizes.layers} layers cannot fill {schedule.layout.slices} slices"
        )
    if c.recompute and schedule.splits_backward:
        return "refused", (
            f"{schedule.name} splits backward passes, and DeepSpeed's activation checkpointing "
            "works in undivided ones only"
        )
    if c.recompute and subject.paced:
        return "unmeasured", (
            "the clock of a paced layer's backward pass runs on while it computes its forward pass "
            "again: recomputation would look free"
        )
    if c.tensor > 1 and subject.family != "gpt":
        return "refused", "only models.gpt knows how to share its layers among tensor parts"
    return None


def sift_again(
    candidates: Iterable[Candidate], known: Known, probed: bool
) -> tuple[list[Candidate], list[Out]]:
    """The same with what the probes said."""
    good, out = [], []
    for c in candidates:
        shape = (c.stages, c.replicas, c.tensor, c.zero)
        splits = schedule_of(c.schedule, c.stages, c.micro_batches).splits_backward
        if shape in known.problems:
            out.append(Out(c, "refused", f"its probe failed: {known.problems[shape]}"))
        elif c.tensor > 1 and not probed:
            out.append(Out(c, "unmeasured", "what tensor parts cost is not in a profile"))
        elif splits and known.split is None:
            text = "what splitting B into B and W costs is not in a profile: probe it, or give "
            out.append(Out(c, "unmeasured", text + "weight_share"))
        elif c.recompute and known.recompute is None:
            out.append(Out(c, "unmeasured", "the probe of recomputation failed"))
        else:
            good.append(c)
    return good, out


def ranked(
    candidates: Sequence[Candidate], subject: Subject, pricer: Pricer, top: int
) -> tuple[list[Plan], list[Out]]:
    """Plans, the fastest first, and what fell out on the way; the first `top` are in their best
    cut."""
    priced: dict[Candidate, Priced] = {}
    out: list[Out] = []
    for c in sorted(candidates, key=lambda c: c.recompute):
        if c.recompute and replace(c, recompute=0) in priced:
            out.append(Out(c, "needless", "it fits without recomputation, which costs time"))
            continue
        try:
            priced[c] = pricer.price(c, "minimax")
        except TooLarge as error:
            out.append(Out(c, "memory", str(error), error.need, error.cap, error.step))
        except PartitionError as error:
            out.append(Out(c, "layers", str(error)))
    _refine(priced, pricer, top)
    plans = [_plan(c, found, subject) for c, found in priced.items()]
    accepted = []
    for plan in plans:
        try:
            plan.job()
            accepted.append(plan)
        except ValueError as error:
            out.append(Out(plan.what, "refused", str(error)))
    kept, alike = _without_alikes(accepted)
    kept.sort(key=_place)
    return [replace(plan, reason=reason(plan, kept)) for plan in kept], [*out, *alike]


def _refine(priced: dict[Candidate, Priced], pricer: Pricer, top: int) -> None:
    """Give the best cut to all that could be among the first `top` with it."""
    bounds = {c: pricer.bound(c) for c in priced}
    refined: dict[Candidate, float] = {}
    for c in sorted(priced, key=lambda c: bounds[c]):
        places = sorted(refined.values())
        if len(places) >= top and bounds[c] > places[top - 1] * (1 + ALIKE):
            break
        try:
            better = pricer.price(c, "optimal")
        except TooLarge:  # the search gave up where another cut had been found
            better = priced[c]
        if better.step <= priced[c].step:
            priced[c] = better
        refined[c] = priced[c].step


def _plan(c: Candidate, found: Priced, subject: Subject) -> Plan:
    unit = subject.sizes.unit
    return Plan(c, found, model=subject.model, settings=subject.settings, unit=unit)


def _place(plan: Plan) -> tuple[float, float, int]:
    return plan.step, plan.memory.peak, PREFERRED.index(plan.what.schedule)


def _without_alikes(plans: list[Plan]) -> tuple[list[Plan], list[Out]]:
    """Of plans of one shape and micro-batch size, those that buy time with their memory."""
    groups: dict[tuple[int, ...], list[Plan]] = {}
    for plan in plans:
        c = plan.what
        key = (c.stages, c.replicas, c.tensor, c.micro_batch_size)
        groups.setdefault(key, []).append(plan)
    kept: list[Plan] = []
    out: list[Out] = []
    for group in groups.values():
        group.sort(key=lambda plan: (plan.memory.peak, *_place(plan)))
        stay: list[Plan] = []
        for plan in group:
            fast = min(stay, key=lambda other: other.step, default=None)
            if fast is not None and fast.step <= plan.step * (1 + ALIKE):
                gain = 1 - plan.step / fast.step
                how = "no faster" if gain <= 0 else f"only {gain:.1%} faster"
                why = f"{how} than {_short(fast, plan)}, with no less memory"
                out.append(Out(plan.what, "alike", why, plan.memory.peak, 0.0, plan.step))
            else:
                stay.append(plan)
        kept += stay
    return kept, out


def _short(plan: Plan, other: Plan) -> str:
    """A plan by what distinguishes it from another of its shape."""
    a, b = plan.what, other.what
    parts = [a.order] if a.schedule != b.schedule else []
    if a.zero != b.zero:
        parts.append(f"ZeRO-{a.zero}")
    if a.recompute != b.recompute:
        parts.append("recomputing" if a.recompute else "keeping everything")
    return " with ".join(parts) or str(a)


# -- why a plan has its place ---------------------------------------------------------------------


def reason(plan: Plan, plans: Sequence[Plan]) -> str:
    """One sentence: why it is first, or what it loses to the first."""
    first = plans[0]
    if plan.what == first.what:
        return _why_first(plan, plans)
    worse = plan.step / first.step - 1
    parts = {
        "idle": plan.priced.idle - first.priced.idle,
        "work": plan.priced.work - first.priced.work,
        "ends": plan.priced.ends - first.priced.ends,
    }
    most = max(parts, key=lambda name: parts[name])
    if worse < ALIKE:
        return f"{max(worse, 0):.1%} slower than the first: less than runs of one plan differ by"
    much = f"{worse:.0%} slower than" if worse < 1 else f"{1 + worse:.1f} times as long as"
    return f"{much} the first: {_told(most, plan, first)}"


def _told(most: str, plan: Plan, first: Plan) -> str:
    if most == "idle":
        return f"its ranks wait {plan.time(plan.priced.idle)} a step instead of " + (
            f"{plan.time(first.priced.idle)} ({_why_idle(plan, first)})"
        )
    if most == "ends":
        return "gradient reduction and optimizer take " + (
            f"{plan.time(plan.priced.ends)} instead of {plan.time(first.priced.ends)}"
        )
    why = "less is spread over each rank"
    if plan.what.recompute and not first.what.recompute:
        why = "forward passes are computed again"
    elif plan.what.tensor > first.what.tensor:
        why = "tensor parts add up every layer's output"
    elif plan.what.micro_batch_size < first.what.micro_batch_size:
        why = "small micro-batches cost more a sample"
    elif plan.what.schedule != first.what.schedule:
        why = "its backward passes are split" if plan.schedule.splits_backward else "its order"
    elif plan.what.world < first.what.world:
        why = f"it uses {plan.what.world} ranks, not {first.what.world}"
    elif plan.what.micro_batch_size > first.what.micro_batch_size:
        why = "large micro-batches cost more a sample here"
    else:
        why = "computing beside more ranks makes each slower"
    return f"its ranks compute {plan.time(plan.priced.work)} a step instead of " + (
        f"{plan.time(first.priced.work)} ({why})"
    )


def _why_idle(plan: Plan, first: Plan) -> str:
    a, b = plan.what, first.what
    if plan.stage_spread() > first.stage_spread() + 0.1:
        return f"its ranks' work lies {plan.stage_spread():.0%} apart"
    if a.stages != b.stages:
        return f"{a.stages} stages to fill instead of {b.stages}"
    if a.micro_batches < b.micro_batches:
        return f"{a.micro_batches} micro-batches fill the pipeline worse than {b.micro_batches}"
    if a.schedule != b.schedule:
        return f"{a.order} fills it worse than {b.order}"
    return "fill, drain and messages"


def _why_first(plan: Plan, plans: Sequence[Plan]) -> str:
    text = f"the shortest step: {plan.bubble:.0%} idle"
    if plan.priced.ends:
        text += f", {plan.priced.ends / plan.step:.0%} for gradient reduction and optimizer"
    others = [p for p in plans if p.what.stages != plan.what.stages]
    if others:
        text += f"; the best with {others[0].what.stages} stage{'s' * (others[0].what.stages > 1)}"
        text += f" takes {others[0].step / plan.step - 1:.0%} longer"
    return text
