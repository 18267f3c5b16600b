"""Causes in the computation: heavy stages, slow workers, unequal micro-batches, jitter."""

from __future__ import annotations

from typing import Any

import numpy as np

from pplab.advise.diagnose.cause import Cause, Facts, cause_of, times
from pplab.advise.diagnose.factors import Factors
from pplab.advise.diagnose.network import Floats, Network


def imbalance(facts: Facts) -> Cause | None:
    """Stages of unequal load."""
    network, found = facts.network, facts.found
    if network.layout_slices < 2:
        return None
    load = found.load
    heavy = int(np.argmax(load))
    others = np.delete(load, heavy)
    ratio = float(load[heavy] / others.mean())
    forward, backward = (
        float(found.stage[k, heavy] / np.delete(found.stage[k], heavy).mean()) for k in (0, 1)
    )
    heavier = [int(p) for p in np.argsort(-load) if load[p] > 1.05 * np.median(load)]
    loads = ", ".join(f"{facts.stage(p)} {facts.time(float(v))}" for p, v in enumerate(load))
    evidence = [
        f"F + B of a micro-batch: {loads}",
        f"{facts.stage(heavy)} takes {forward:.2f}x the forward and {backward:.2f}x the backward "
        "time of the others",
    ]
    replicas = len(network.replicas)
    if replicas > 1:
        evidence.append(f"in all {replicas} replicas alike, so it is the stage, not a machine")
    else:
        evidence.append(
            "one replica only: a slow machine under this stage would look the same; "
            + (
                "F and B are heavier by the same factor, as a slow machine would have it"
                if abs(forward - backward) < 0.1 * backward
                else "but F and B are heavier by different factors, which a slow machine is not"
            )
        )
    where: dict[str, Any] = {"stage": heavy, "ratio": ratio, "heavier": heavier}
    without = found.times(network, imbalance=False)
    advice = (
        "move layers away from it (given bounds=, this says which), or split its heaviest layer: "
        "the work of an output head can be shared by several ranks"
    )
    if facts.cut is not None:
        moved = facts.cut.best(found.stage)
        if moved is not None:
            without = _loads(network, found, moved.stage)
            advice = moved.sentence
            where["bounds"] = moved.bounds
            evidence.append(f"layers now: {facts.cut.now}; times of layers {facts.cut.source}")
    what = f"{facts.stage(heavy)} is {times(ratio)} heavier than the others"
    return cause_of(facts, "imbalance", without, what, evidence, advice, **where)


def _loads(network: Network, found: Factors, stage: Floats) -> Floats:
    """The recorded works, with the slices' loads replaced by others; shape (N,)."""
    kind, _, _, piece, _ = found.place
    on = kind >= 0
    ratio = np.divide(stage, found.stage, out=np.ones_like(stage), where=found.stage > 0)
    work = network.work.copy()
    work[on] *= ratio[kind[on], piece[on]]
    return work


def slow_worker(facts: Facts) -> Cause | None:
    """Ranks slower than their due."""
    network, found = facts.network, facts.found
    if not found.slow:
        return None
    place, rank = found.slow[0]
    replica = int(network.replicas[place])
    ratio, often = float(found.worker[place, rank]), found.bursts[place, rank]
    many = len(network.replicas) > 1
    who = f"rank {rank} of replica {replica}" if many else f"rank {rank}"
    always = often > 0.9
    mine = network.is_role("F", "B", "W") & (network.rank == rank)
    its = mine & (network.replica == replica)
    evidence = []
    for kind, word in (("F", "forward"), ("B", "backward")):
        rows = network.is_role(kind)
        own = network.work[its & rows]
        if always:
            text = f"{word} {facts.time(float(np.median(own)))} (median)"
        else:
            quick, late = (facts.time(float(v)) for v in np.quantile(own, (0.1, 0.9)))
            text = f"{word} {quick} when it is well, {late} when it is slow"
        if many:
            twins = mine & rows & (network.replica != replica)
            text += f", its twins {facts.time(float(np.median(network.work[twins])))}"
        evidence.append(text)
    evidence.append(
        "all the time" if always else f"slow in {often:.0%} of its operations, not always"
    )
    for other, j in found.slow[1:4]:
        evidence.append(
            f"rank {j} of replica {int(network.replicas[other])} takes "
            f"{found.worker[other, j]:.2f}x its due too"
        )
    without = found.times(network, worker=False)
    what = f"{who} takes {times(ratio)} its due" + ("" if always else ", at times")
    advice = (
        f"look at that machine (clock rate, temperature, other jobs, ECC errors, its PCIe link) "
        f"and take it out of the job if it stays slow: every other rank waits for {who}"
    )
    return cause_of(facts, "slow worker", without, what, evidence, advice,
                  replica=replica, rank=rank, ratio=ratio, share_of_time=often)  # fmt: skip


def sequences(facts: Facts) -> Cause | None:
    """Micro-batches of unequal length."""
    micro = facts.found.micro
    if np.all(micro == 1.0):
        return None
    low, high = (float(v) for v in np.percentile(micro, (5, 95)))
    longest = np.unravel_index(int(np.argmax(micro)), micro.shape)
    step = int(facts.network.steps[longest[0]])
    evidence = [
        f"on all stages alike, micro-batches take from {low:.2f} to {high:.2f} of the mean "
        f"(5th and 95th percentile), the longest {micro.max():.2f} (step {step}, F{longest[2]})",
    ]
    without = facts.found.times(facts.network, sequences=False)
    what = f"micro-batches differ: the longest takes {micro.max() / micro.min():.1f}x the shortest"
    advice = (
        "deal samples out so that every micro-batch has as much work: sort or bucket by length, "
        "or pack sequences to a fixed number of tokens (attention grows with the square)"
    )
    return cause_of(facts, "sequence length", without, what, evidence, advice,
                  longest=int(longest[2]), spread=float(micro.std()))  # fmt: skip


def jitter(facts: Facts) -> Cause:
    """Operations that take now longer, now shorter."""
    network, found = facts.network, facts.found
    steady = found.times(network, jitter=False)
    rows = network.is_role("F", "B", "W")
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = network.work[rows] / steady[rows]
    spread = float(np.nanstd(ratio[np.isfinite(ratio)]))
    return cause_of(
        facts, "jitter", steady,
        f"equal operations differ by {spread:.0%} (standard deviation)",
        ["what stage, worker and micro-batch do not explain; every rank waits for the unlucky one"],
        "look for what else runs on these machines: other jobs, garbage collection (gc.freeze, "
        "or collect at the same step on all ranks), clock changes, too few CPU cores",
        at_most=True,
    )  # fmt: skip
