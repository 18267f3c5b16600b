"""``partition``: one call for every way to cut a model.

    partition(profile, 4)                              # least step time of 1F1B
    partition(profile, 4, "parameters")                # as DeepSpeed would
    partition(profile, 4, [0, 3, 6, 9, 12])            # by hand
    partition(profile, 4, schedule=gpipe, micro_batches=16,
              devices=devices(4, speed=[1, 1, 2, 2], memory=16e9, per_node=2),
              links=Links(bandwidth=200e9, across_bandwidth=10e9))

Methods: ``optimal`` (least step time of the schedule), ``minimax`` (least largest stage),
``uniform``, ``parameters``, ``type:regex`` (DeepSpeed's), ``block`` (torchgpipe's), or bounds.

What is proven: ``minimax`` always has the least possible largest (load + its messages), one slice a
rank or equal devices; over all orders of the devices where `free_order` is asked for and the
answer says so. ``optimal`` is proven when all cuts were tried or bounds settled it, else it is the
best found and `gap` bounds what is left. Each partition says which in its `proof`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pplab.core.partition import deepspeed
from pplab.core.partition.block import block_partition
from pplab.core.partition.certify import LARGEST, certify, lower_bounds
from pplab.core.partition.cluster import Device, Links
from pplab.core.partition.cuts import PartitionError, check_bounds, check_parts, uniform
from pplab.core.partition.dynamic import least_worst, slice_costs
from pplab.core.partition.fit import DoesNotFit, check_single_layers, explain
from pplab.core.partition.minimax import even, least_bound
from pplab.core.partition.order import best_order, count_orders, least_worst_order
from pplab.core.partition.plan import Partition, Partitions
from pplab.core.partition.problem import Problem
from pplab.core.partition.search import Found, best_of, descend, few, try_all
from pplab.core.profile import Profile
from pplab.core.schedule import Schedule, ScheduleMaker
from pplab.core.schedules import one_f_one_b

METHODS = ("optimal", "minimax", "uniform", "parameters", "type:regex", "block")

#: Orders of devices that are all solved: for the largest stage, and for the step time.
ORDERS, STEP_ORDERS = 720, 72

Model = Profile | ArrayLike
Method = str | Sequence[int]


def problem_of(
    model: Model,
    stages: int | None = None,
    *,
    schedule: Schedule | ScheduleMaker = one_f_one_b,
    micro_batches: int = 8,
    chunks: int | None = None,
    devices: Sequence[Device] | None = None,
    links: Links | None = None,
    **options: Any,
) -> Problem:
    """The problem that ``partition`` solves; see there for the arguments."""
    profile = model if isinstance(model, Profile) else Profile.of(np.asarray(model, dtype=float))
    if isinstance(schedule, ScheduleMaker):
        count = stages if stages is not None else len(devices or ())
        if count < 1:
            raise PartitionError("no-stages", "say how many stages, or give the devices")
        schedule = schedule(stages=count, micro_batches=micro_batches, chunks=chunks)
    elif stages is not None and stages != schedule.stages:
        text = f"{schedule.name} is a schedule for {schedule.stages} stages, not {stages}"
        raise PartitionError("wrong-count", text)
    own = tuple(devices) if devices is not None else (Device(),) * schedule.stages
    return Problem(profile, schedule, own, links or Links(), **options)


def partition(
    model: Model,
    stages: int | None = None,
    method: Method = "optimal",
    *,
    free_order: bool = False,
    **options: Any,
) -> Partition:
    """Cut a model into the stages of a pipeline.

    model:   a Profile, or one cost (forward + backward) a layer
    stages:  ranks of the pipeline; may be left out when `schedule` or `devices` says it
    method:  see above
    free_order: let the devices change places as well (optimal and minimax only)
    schedule, micro_batches, chunks: a schedule or a maker of one, called with the other two
        (default: 1F1B, 8 micro-batches, the maker's chunks)
    devices: one Device a rank (see ``devices``); links: see ``Links``
    bytes_per_parameter, keep_tied, overhead: see ``Problem``

    Raises PartitionError (with `reason`) for what makes no sense, DoesNotFit when no cut keeps the
    memory caps and ties.
    """
    return solve(problem_of(model, stages, **options), method, free_order=free_order)


def compare(
    model: Model,
    stages: int | None = None,
    methods: Iterable[Method] = ("uniform", "parameters", "minimax", "optimal"),
    **options: Any,
) -> Partitions:
    """The same model cut in several ways; arguments as for ``partition``."""
    problem = problem_of(model, stages, **options)
    return Partitions(solve(problem, method) for method in methods)


def solve(problem: Problem, method: Method = "optimal", *, free_order: bool = False) -> Partition:
    """Cut `problem` by a method; see ``partition``."""
    if not isinstance(method, str):
        return Partition(problem, check_bounds(method, problem.layers, problem.slices))
    if method in ("optimal", "minimax"):
        check_single_layers(problem)
        if free_order:
            return _in_free_order(problem, method)
        return _optimal(problem) if method == "optimal" else _minimax(problem)
    if free_order:
        raise PartitionError("fixed-order", f"{method} knows nothing of devices: no free order")
    profile, parts = problem.profile, problem.slices
    if method == "uniform":
        return Partition(problem, uniform(problem.layers, parts), method)
    if method == "block":
        return Partition(problem, block_partition(profile.times, parts), method)
    check_parts(problem.layers, parts)
    counts = [layer.parameters for layer in profile.layers]
    kinds = [layer.kind or layer.name for layer in profile.layers]
    return Partition(problem, deepspeed.partition_layers(method, parts, counts, kinds), method)


# -- minimax ------------------------------------------------------------------------------------


def _minimax(problem: Problem) -> Partition:
    """Exact; with several chunks a rank, the largest slice, and caps only by search."""
    bounds = _least_worst(problem)
    if bounds is None:
        raise explain(problem)
    if problem.slices == problem.ranks:
        what = "stage" if problem.links.free else "stage with its messages"
        return Partition(problem, bounds, "minimax", f"the largest {what} is the least possible")
    found = Found(bounds, 0.0, float(problem.excess(np.array([bounds]))[0]), False)
    if not found.excess:
        return Partition(problem, bounds, "minimax", "the largest slice is the least possible")
    found = descend(problem, [bounds])
    if found.excess:
        raise explain(problem, found.bounds, proven=False)
    proof = "the least largest slice does not fit; the nearest found that does"
    return Partition(problem, found.bounds, "minimax", proof)


def _least_worst(problem: Problem) -> tuple[int, ...] | None:
    if problem.plain:
        prefix = problem.prefix.tolist()
        return even(prefix, problem.slices, least_bound(prefix, problem.slices))
    found = least_worst(slice_costs(problem), problem.slices, problem.layers)
    return found[1] if found else None


# -- least step time ----------------------------------------------------------------------------


def _optimal(problem: Problem) -> Partition:
    if few(problem):
        found = try_all(problem)
        if found.excess:
            raise explain(problem, found.bounds)
        return Partition(problem, found.bounds, "optimal", "all cuts were tried", gap=0.0)
    starts = _starts(problem)
    if not starts:
        raise explain(problem)
    certificate = certify(problem, descend(problem, starts))
    if certificate.found.excess:
        raise explain(problem, certificate.found.bounds, proven=False)
    if certificate.proven:
        proof = "no cut has a shorter step"
        if certificate.tried:
            proof += f": the {certificate.tried} that could have were tried"
    else:
        proof = f"the best found; no cut can shorten the step by more than {certificate.gap:.2%}"
    bounds = certificate.found.bounds
    return Partition(problem, bounds, "optimal", proof, gap=certificate.gap)


def _starts(problem: Problem) -> list[tuple[int, ...]]:
    """Good cuts to start from: least lower bound of the step, minimax, uniform; [] if none fits."""
    least = _least_worst(problem)
    if least is None:
        return []
    starts = [least, uniform(problem.layers, problem.slices)]
    if problem.slices == problem.ranks and problem.slices * problem.layers**2 <= LARGEST:
        hopeful = least_worst(lower_bounds(problem), problem.slices, problem.layers)
        if hopeful:
            starts.insert(0, hopeful[1])
    return starts


# -- devices in any order -----------------------------------------------------------------------


def _in_free_order(problem: Problem, method: str) -> Partition:
    exact = least_worst_order(problem)
    if exact and not np.isfinite(exact.answer):
        biggest = sorted(range(problem.ranks), key=lambda i: -problem.caps[i])
        raise explain(problem.reordered(tuple(biggest)))
    if method == "minimax":
        ordering = exact or best_order(problem, _worst_of, ORDERS, None)
        if not exact and not np.isfinite(ordering.answer):
            raise explain(problem.reordered(ordering.order), proven=ordering.all)
        plan = _minimax(problem.reordered(ordering.order))
        how = "in any order of the devices" if ordering.all else "in this order; others were tried"
        return replace(plan, order=ordering.order, proof=f"{plan.proof} {how}")
    ordering = best_order(problem, _step_of, STEP_ORDERS, exact.order if exact else None)
    if not np.isfinite(ordering.answer):
        raise explain(problem.reordered(ordering.order), proven=few(problem) and ordering.all)
    total = count_orders(problem.devices)
    if few(problem) and ordering.all:
        plan = _optimal(problem.reordered(ordering.order))
        proof = f"all cuts in all {total} orders of the devices were tried"
        return replace(plan, order=ordering.order, proof=proof)
    plans = []
    for order in {ordering.order, *([exact.order] if exact else [])}:
        with suppress(DoesNotFit):
            plans.append(replace(_optimal(problem.reordered(order)), order=order))
    if not plans:
        raise explain(problem.reordered(ordering.order), proven=False)
    best = min(plans, key=lambda plan: (plan.step, plan.order))
    how = f"in all {total} orders" if ordering.all else f"in some of {total} orders"
    return replace(best, proof=f"the best found {how} of the devices", gap=None)


def _worst_of(problem: Problem) -> float:
    found = least_worst(slice_costs(problem), problem.slices, problem.layers)
    return found[0] if found else np.inf


def _step_of(problem: Problem) -> float:
    """Step time in one order of the devices: of all cuts where they are few, else of good ones."""
    if few(problem):
        found = try_all(problem)
    else:
        starts = _starts(problem)
        if not starts:
            return np.inf
        found = best_of(problem, np.array(starts))
    return found.step if not found.excess else np.inf
