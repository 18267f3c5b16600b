"""Where the time of a step goes: parts that add up to it, and the ideal of the straggler study.

The steps are replayed one cause at a time, from the work alone to everything that was recorded;
a part is what its cause adds to the replay before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pplab.advise.diagnose.factors import Factors
from pplab.advise.diagnose.network import Bools, Floats, Network

#: Names of the parts, in the order in which they are added, and what they mean.
MEANINGS = {
    "useful": "forward and backward passes, mean over the ranks, healthy and evenly split",
    "fill and drain": "idle even if all stages, workers and micro-batches were alike",
    "imbalance": "some stages take longer than others, in every replica",
    "slow worker": "ranks slower than their twins, or than themselves at other times",
    "sequence length": "some micro-batches take longer than others, on every stage",
    "jitter": "operations that took longer than stage, worker and micro-batch explain",
    "data loading": "waiting for a batch to be read",
    "communication": "activations and gradients on their way between stages",
    "optimizer and reduction": "gradient reduction, parameter gathering, the optimizer step",
    "overhead": "between operations: launching, bookkeeping, ranks that start late",
}


class Part(NamedTuple):
    """One part of the step: seconds per step (mean over the steps), and share of the step."""

    name: str
    seconds: float
    share: float
    meaning: str


def only(network: Network, work: Floats, kept: Bools) -> Floats:
    """`work`, with nothing for the nodes that are not kept."""
    return np.where(kept, work, 0.0)


def parts(network: Network, found: Factors) -> tuple[Part, ...]:
    """The parts of the step, in the order of ``MEANINGS``; their seconds add up to its length."""
    computes = network.is_role("F", "B", "W")

    def step(work: Floats, *more: str) -> float:
        kept = computes | network.is_role(*more) if more else computes
        return float(network.step_times(only(network, work, kept), 0.0).mean())

    off = {"imbalance": False, "sequences": False, "worker": False, "jitter": False}
    alike = found.times(network, **off)
    ranks = network.ranks * len(network.replicas)
    useful = float(alike[computes].sum()) / ranks / len(network.steps)
    whole = float(network.recorded.mean())
    rebuilt = [
        useful,
        step(alike),
        step(found.times(network, **{**off, "imbalance": True})),
        step(found.times(network, **{**off, "imbalance": True, "worker": True})),
        step(found.times(network, **{**off, "imbalance": True, "worker": True, "sequences": True})),
        step(network.work),
        step(network.work, "L"),
        step(network.work, "L", "FORWARD", "BACKWARD", "S"),
        step(network.work, "L", "FORWARD", "BACKWARD", "S", "G", "U"),
        whole,
    ]
    lengths = [rebuilt[0], *np.diff(rebuilt).tolist()]
    return tuple(
        Part(name, seconds, seconds / whole, meaning)
        for (name, meaning), seconds in zip(MEANINGS.items(), lengths, strict=True)
    )


def ideal_steps(network: Network) -> Floats:
    """Length of every step without launch delays and stragglers; shape (steps,).

    As the straggler study defines it (arXiv 2505.05713): every computation takes the mean of its
    kind over all replicas, stages and steps, every message and collective the median of its own.
    """
    work = network.work.copy()
    names = np.char.add(network.role.astype(str), network.label)
    messages = network.is_role("FORWARD", "BACKWARD", "S", "G")
    for name in np.unique(names):
        rows = names == name
        middle = np.median if messages[rows][0] else np.mean
        work[rows] = middle(work[rows])
    return network.step_times(work, 0.0)


def replayed_span(network: Network) -> tuple[Floats, Floats]:
    """(replayed, recorded) time from first F to last B of every step, without launch delays.

    The replay knows the recorded times of operations and messages, and who waits for whom; it has
    to find when everything happens. Shapes (steps,).
    """
    mine = network.is_role("F", "B", "W")
    end = network.replay(delay=0.0)

    def span(start: Floats, end: Floats) -> Floats:
        first = np.full(len(network.steps), np.inf)
        last = np.full(len(network.steps), -np.inf)
        np.minimum.at(first, network.row[mine], start[mine])
        np.maximum.at(last, network.row[mine], end[mine])
        return last - first

    return span(end - network.work, end), span(network.start, network.end)
