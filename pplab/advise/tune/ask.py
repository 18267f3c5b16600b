"""``pplab.tune``: from a model, or its profiles, and a machine to ranked plans."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pplab.advise.tune.candidates import PREFERRED, Candidate, Space, divisors
from pplab.advise.tune.known import Known, Split
from pplab.advise.tune.machine import Machine
from pplab.advise.tune.price import Pricer
from pplab.advise.tune.probes import probe as probe_shapes
from pplab.advise.tune.rank import ranked, sift, sift_again
from pplab.advise.tune.subject import Say, Subject, subject_of
from pplab.advise.tune.tuning import ABOUT_ZERO, Tuning, nothing
from pplab.core.partition import Device, Links
from pplab.core.profile import Profile
from pplab.runtime.job import Job
from pplab.runtime.models import Model
from pplab.runtime.progress import in_notebook

Model_ = Model | Callable[[int], Model]
#: Largest micro-batch that is tried when nobody says, and plans that get their best cut.
LARGEST, TOP = 16, 5
#: Fields of ``Job`` that the plans set, and where to say them instead.
OURS = {
    "stages": "stages=(...)", "replicas": "ranks and stages", "micro_batches": "batch",
    "micro_batch_size": "micro_batch_sizes=(...)", "zero": "zero=(...)", "tensor": "tensor=(...)",
    "schedule": "schedules=(...)", "bounds": "Plan.run(bounds=...)", "engine": "pplab.run",
    "activation_checkpoint_interval": "recompute=(...)", "steps": "verify_steps",
}  # fmt: skip


def tune(
    what: Model_ | Profile | Iterable[Profile],
    ranks: int | Sequence[Device] = 4,
    *,
    batch: int = 64,
    memory: float | str | None = None,
    links: Links | None = None,
    per_node: int | None = None,
    cores: int | None = None,
    stages: Sequence[int] | None = None,
    tensor: Sequence[int] = (1,),
    micro_batch_sizes: Sequence[int] | None = None,
    schedules: Sequence[str] = PREFERRED,
    zero: Sequence[int] | None = None,
    recompute: Sequence[int] | None = None,
    all_ranks: bool = True,
    probe: bool | None = None,
    weight_share: float | None = None,
    model: Model_ | None = None,
    verify: int = 0,
    repeats: int = 3,
    verify_steps: int = 6,
    quiet: bool = False,
    **settings: Any,
) -> Tuning:
    """Rank every way to train a model with a global batch on a machine; returns a ``Tuning``.

    what: a model description; a function of the micro-batch size that gives one; or profiles (one,
    or several of different micro-batch sizes) for a machine that is elsewhere. A computed model is
    profiled at up to three micro-batch sizes, since how its times grow is measured, not assumed;
    the times of a paced model are set, and its micro-batch size stays the same unless a function
    of it is given.
    ranks: a number, or ``pplab.devices(...)`` with speed, memory and node of each.
    batch: samples of a step, all replicas together. memory: bytes a rank has, 16e9 or "16GB".
    links: what messages cost (``pplab.Links``); per_node: ranks of one node. cores: how many ranks
    can compute at the same time; default: this machine's cores (or GPUs) for computed models, and
    no limit for paced ones and for profiles. More than there are here: plans for another machine,
    which are neither probed nor verified.
    Searched: stages (default: all), tensor (only if asked), micro_batch_sizes (default: divisors
    up to 16), schedules by short name, zero (0 and 1), recompute (activation_checkpoint_interval;
    default: none; every layer where memory is limited, but not for paced layers, whose clocks would
    not show what it costs), and with all_ranks=False also plans that leave ranks idle.
    probe: measure overheads with a short run of each shape (``probes``); default: where the model
    can be run here. Without it predictions leave out what a note of the result names. weight_share:
    the part W takes of a backward pass that is split, where that is neither set nor probed.
    model: what to run, when profiles were given. verify: so many of the first plans are run for
    real (`repeats` times each, `verify_steps` steps, taking turns), and the fastest is put to the
    acceptance test. settings: fields of ``Job`` for all runs (dtype, lr, seed, threads, ...).

    Raises ValueError when the request makes no sense or nothing can be run or fits; RunError when
    profiling, all probes or all verifying runs fail.
    """
    _check(settings, verify, repeats, verify_steps, weight_share)
    machine = Machine.of(ranks, memory=memory, links=links, per_node=per_node)
    sizes = tuple(sorted(set(micro_batch_sizes or divisors(max(batch, 0), LARGEST))))
    dtype = settings.get("dtype", "fp32")
    space = Space(
        len(machine),
        batch,
        sizes,
        tuple(stages) if stages is not None else None,
        tuple(tensor),
        tuple(name.lower() for name in schedules),
        tuple(zero) if zero is not None else (1,) if dtype == "bf16" else (0, 1),
        tuple(recompute) if recompute is not None else (0,),
        all_ranks,
    )
    say = _teller(quiet)
    subject = subject_of(what, sizes, micro_batch_sizes is not None, settings, model, say)
    if verify and not subject.runs:
        raise ValueError("to verify plans of a profile, say what to run: tune(profile, model=...)")
    if recompute is None and machine.capped and not subject.paced:
        space = replace(space, recompute=(0, 1))
    if subject.sizes.only:
        space = replace(space, sizes=subject.sizes.only)
    places = cores if cores is not None else subject.places()
    every = list(space.candidates())
    good, out = sift(every, subject, places)
    probing = _probing(subject, good, probe, verify)
    known = _known(subject, good, probing, weight_share, say)
    good, more = sift_again(good, known, probing)
    out += more
    say("ranks the plans")
    pricer = Pricer(subject.sizes, machine, known, dtype)
    plans, more = ranked(good, subject, pricer, max(TOP, verify))
    out += more
    if not plans:
        raise ValueError(nothing(out, machine.sentence(), batch))
    found = Tuning(
        tuple(plans),
        tuple(out),
        len(every),
        batch,
        machine.sentence(),
        subject.sizes.sentence(),
        subject.sizes.source,
        subject.sizes.profiles,
        known,
        notes(subject, known, probing, machine, good),
    )
    if verify:
        found = found.verify(verify, repeats=repeats, steps=verify_steps, say=say)
    say("")
    return found


def _check(
    settings: dict[str, Any], verify: int, repeats: int, steps: int, share: float | None
) -> None:
    for name in settings:
        if name in OURS:
            raise ValueError(f"{name} is what is tuned: say {OURS[name]}")
        if name not in Job.__dataclass_fields__:
            raise ValueError(f"{name!r} is neither an argument of tune nor a field of a job")
    if verify < 0 or repeats < 1 or steps < 2:
        raise ValueError("verify is 0 or more plans, repeats at least 1, verify_steps at least 2")
    if share is not None and not 0 < share < 1:
        raise ValueError(f"weight_share lies between 0 and 1, not {share}")


def _probing(subject: Subject, good: list[Candidate], wish: bool | None, verify: int) -> bool:
    """Whether to probe. Raises ValueError for what this machine cannot run truthfully."""
    here = subject.places()
    beyond = max((c.world for c in good), default=0) > (here if here is not None else float("inf"))
    if wish and not subject.runs:
        raise ValueError("only a model can be probed: give model=, or leave probe out")
    if beyond and (wish or verify):
        raise ValueError(
            f"cores= speaks of another machine: this one computes {here} ranks at once, so that "
            "neither probe nor verify would measure what is planned; leave them out"
        )
    return subject.runs and bool(good) and not beyond if wish is None else wish


def _known(
    subject: Subject, good: list[Any], probing: bool, share: float | None, say: Say
) -> Known:
    """What the probes say, or what is known without."""
    if probing:
        return probe_shapes(subject, good, say)
    split = Split(1.0, share) if share is not None else Split() if subject.paced else None
    return Known(split=split)


def notes(
    subject: Subject, known: Known, probed: bool, machine: Machine, good: Sequence[Candidate]
) -> tuple[str, ...]:
    """What a reader of the predictions must know, in sentences."""
    found = [f"Times: {subject.sizes.sentence()}; {subject.sizes.source}."]
    if probed:
        found.append(
            f"Overheads, messages, gradient reduction and optimizer from {len(known.shapes)} short "
            "runs (1F1B), one a shape; the optimizer is taken to last as long as there, whatever "
            "the cut."
        )
    else:
        if any(c.recompute for c in good):
            found.append("Recomputation is taken to add F to B once; no probe measured it.")
        reduction = "" if machine.links is not None else "messages, gradient reduction, "
        found.append(
            f"Left out of the predicted steps: {reduction}the optimizer, and the time between "
            "operations; probe=True measures them where the model can be run."
        )
    if known.split and known.split.factor > 1.02:
        found.append(
            f"Splitting a backward pass into B and W makes it {known.split.factor - 1:.0%} longer "
            "here (measured)."
        )
    memory = "Memory is counted (core.memory); the process itself is not in it."
    if any(c.tensor > 1 for c in good):
        memory += (
            " Of tensor parts it is counted as if each held whole layers: too much, if at all."
        )
    found.append(memory)
    return (*found, ABOUT_ZERO)


def _teller(quiet: bool) -> Say:
    """Tells what goes on: one line that is updated in a notebook, lines in a terminal."""
    if quiet:
        return lambda text: None
    if in_notebook():
        from IPython.display import display

        handle: list[Any] = []

        def show(text: str) -> None:
            data = {"text/plain": f"[measured] tune: {text or 'done'}"}
            if handle:
                handle[0].update(data, raw=True)
            else:
                handle.append(display(data, raw=True, display_id=True))

        return show
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"tune: {text}", file=sys.stderr) if text else None
