"""Which ranks hand work on to each other, told from the order of their passes.

Between neighbours of a pipeline a forward pass ends before the next one of its micro-batch begins,
and the backward passes the other way round. How far two clocks are apart does not matter: what it
adds to the one gap it takes from the other. Replicas and tensor-parallel partners run the same
micro-batches at the same time, so for them the two gaps add up to minus a forward and a backward
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import median

from pplab.traces.rows import Row

#: Start and end of a forward or backward pass, by kind, step, micro-batch and chunk.
Passes = dict[tuple[str, int, int, int], tuple[int, int]]


def passes(rows: Iterable[Row]) -> Passes:
    """The passes of a rank; of those that occur twice, the last."""
    return {
        (r.named.kind, r.step, r.micro_batch, r.named.chunk or 0): (r.start, r.end)
        for r in rows
        if r.named.kind in "FB"
    }


def _gaps(
    a: Passes, b: Passes, chunk: int, gap: Callable[[tuple[int, int], tuple[int, int]], int]
) -> list[float]:
    """The typical gap from a to b of forward passes, and from b to a of backward passes."""
    found = []
    for kind, first, second in (("F", a, b), ("B", b, a)):
        both = [k for k in first if k[0] == kind and k[3] == chunk and k in second]
        if not both:
            return []
        found.append(median(gap(first[key], second[key]) for key in both))
    return found


def linked(a: Passes, b: Passes) -> bool:
    """Whether b may be the next rank after a; True when nothing speaks against it."""
    gaps = _gaps(a, b, 0, lambda made, used: used[0] - made[1])
    lasts = _gaps(a, a, 0, lambda made, _: made[1] - made[0])
    return not gaps or sum(gaps) >= -sum(lasts) / 2


def upwards(a: Passes, b: Passes) -> bool:
    """Whether the second chunk runs on b before it runs on a, as in a V."""
    return sum(_gaps(a, b, 1, lambda made, used: used[1] - made[1])) < 0


def arrangement(ranks: list[Passes]) -> tuple[int, bool]:
    """(stages, whether each pipeline has consecutive ranks) of all ranks of a job, in order: the
    longest pipelines in which every rank may follow the one before it. Stages that lie `world /
    stages` ranks apart, as Megatron-LM, DeepSpeed and torchtitan number them, come first."""
    world = len(ranks)
    for stages in range(world, 1, -1):
        if world % stages:
            continue
        each = world // stages
        apart = [list(range(r, world, each)) for r in range(each)]
        in_a_row = [list(range(r * stages, (r + 1) * stages)) for r in range(each)]
        for consecutive, chains in ((False, apart), (True, in_a_row)):
            if all(linked(ranks[a], ranks[b]) for chain in chains for a, b in pairwise(chain)):
                return stages, consecutive
    return 1, False
