"""The least step time, with links, speeds, caps, ties, chunks and orders: against brute force."""

from itertools import permutations

import numpy as np
import pytest
from core_strategies import random_schedule, schedules
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pplab.core.costs import Costs
from pplab.core.layout import Layout
from pplab.core.partition import (
    Device,
    DoesNotFit,
    Links,
    Problem,
    devices,
    partition,
    problem_of,
    solve,
)
from pplab.core.partition.certify import busiest, certify, lower_bounds, quick_bound
from pplab.core.partition.cuts import check_bounds, every_cut, uniform
from pplab.core.partition.dynamic import least_worst, slice_costs
from pplab.core.partition.order import count_orders, every_order, least_worst_order
from pplab.core.partition.search import best_of, descend, kicked, neighbours, try_all
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import gpipe, interleaved, one_f_one_b

SEEDS = st.integers(0, 2**32)


def random_problem(seed, schedule=None, most=9, *, capped=True, ties=True):
    """Anything at once: unequal layers and devices, links inside and across, caps, ties."""
    rng = np.random.default_rng(seed)
    if schedule is None:
        maker = (one_f_one_b, gpipe)[rng.integers(2)]
        schedule = maker(stages=int(rng.integers(1, 5)), micro_batches=int(rng.integers(1, 6)))
    ranks, slices = schedule.stages, schedule.layout.slices
    n = slices + int(rng.integers(0, max(1, most - slices + 1)))
    tied = set(rng.choice(n, 2, replace=False).tolist()) if ties and n > 1 else set()
    layers = [
        LayerProfile(
            f"layer {i}",
            forward=float(rng.integers(0, 9)),
            backward=float(rng.integers(0, 9)),
            parameters=int(rng.integers(0, 9)),
            activation_bytes=int(rng.integers(0, 99)),
            output_bytes=int(rng.integers(0, 9)),
            tied="w" if i in tied else None,
        )
        for i in range(n)
    ]
    caps = rng.integers(100, 900, ranks).astype(float) if capped and rng.integers(2) else np.inf
    own = devices(
        ranks, speed=rng.choice([0.5, 1, 2], ranks), memory=caps, per_node=int(rng.integers(1, 3))
    )
    links = Links(
        *rng.integers(0, 3, 1), bandwidth=float(rng.choice([2, np.inf])), across_latency=2
    )
    keep = bool(ties and rng.integers(2))
    return Problem(Profile(layers, unit="units"), schedule, own, links, keep_tied=keep)


def all_cuts(problem):
    return np.concatenate(list(every_cut(problem.layers, problem.slices)))


# -- minimax in general -------------------------------------------------------------------------


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_dynamic_programming_equals_brute_force(seed):
    problem = random_problem(seed)
    cuts = all_cuts(problem)
    messages = problem.times(cuts)[2]
    padded = np.concatenate([np.zeros((1, len(cuts))), messages, np.zeros((1, len(cuts)))])
    worst = (problem.loads(cuts) + padded[:-1] + padded[1:]).max(axis=0)
    worst[problem.excess(cuts) > 0] = np.inf
    found = least_worst(slice_costs(problem), problem.slices, problem.layers)
    if not np.isfinite(worst.min()):
        assert found is None
        with pytest.raises(DoesNotFit):
            solve(problem, "minimax")
        return
    assert found[0] == worst.min()
    plan = solve(problem, "minimax")
    assert plan.fits
    place = np.flatnonzero(np.all(cuts == plan.bounds, axis=1))[0]
    assert worst[place] == pytest.approx(worst.min(), rel=1e-12)


def test_a_slow_stage_is_kept_away_from_a_huge_layer():
    # greedy filling would take both small layers first and leave the huge one to the slow stage
    plan = partition([1, 1, 100], 3, "minimax", devices=devices(3, speed=[1, 1, 100]))
    assert plan.bounds == (0, 1, 2, 3)
    assert plan.max_load == 1


# -- least step time ----------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(schedules(max_stages=3, max_micro_batches=4), SEEDS)
def test_optimal_equals_brute_force_with_the_simulator(schedule, seed):
    problem = random_problem(seed, schedule, schedule.layout.slices + 3, capped=False, ties=False)
    problem = Problem(problem.profile, schedule, problem.devices, Links(latency=1.5))
    steps = []
    for bounds in all_cuts(problem):
        forward, backward, _ = problem.times(bounds[None])
        costs = Costs(forward[:, 0], backward[:, 0], latency=1.5)
        steps.append(schedule.simulate(costs).step_time)
    plan = solve(problem)
    assert plan.step == min(steps)
    assert plan.gap == 0


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_optimal_keeps_the_rules_or_says_that_nothing_does(seed):
    problem = random_problem(seed)
    cuts = all_cuts(problem)
    fitting = cuts[problem.excess(cuts) == 0]
    if len(fitting):
        plan = solve(problem)
        assert plan.fits
        assert plan.step == pytest.approx(problem.steps(fitting).min(), rel=1e-12)
    else:
        with pytest.raises(DoesNotFit):
            solve(problem)


@settings(max_examples=150, deadline=None)
@given(schedules(max_stages=4, max_micro_batches=4), SEEDS)
def test_lower_bounds_hold_for_every_cut_of_every_schedule(schedule, seed):
    problem = random_problem(seed, schedule, schedule.layout.slices + 3, capped=False, ties=False)
    cuts = all_cuts(problem)
    steps = problem.steps(cuts)
    assert np.all(busiest(problem) <= steps * (1 + 1e-12))
    assume(schedule.chunks == 1)
    assert quick_bound(problem) <= steps.min() * (1 + 1e-9)
    lower = lower_bounds(problem)
    for s in range(problem.slices):
        bound = lower(s)[cuts[:, s], cuts[:, s + 1]]
        assert np.all(bound <= steps * (1 + 1e-12))


def test_the_lower_bound_is_exact_for_a_slow_last_stage_and_near_for_others():
    for slow in range(4):
        costs = [3.0] * 4
        costs[slow] = 3.9
        problem = partition(costs, 4, [0, 1, 2, 3, 4]).problem
        bound = max(lower_bounds(problem)(s)[s, s + 1] for s in range(4))
        step = problem.steps(np.array([[0, 1, 2, 3, 4]]))[0]
        assert 0.96 * step < bound <= step * (1 + 1e-12)
        if slow == 3:
            assert bound == pytest.approx(step)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_certified_cuts_are_the_best_of_all(seed):
    problem = random_problem(seed, most=11, ties=False)
    best = try_all(problem)
    assume(not best.excess)
    start = least_worst(slice_costs(problem), problem.slices, problem.layers)[1]
    certificate = certify(problem, descend(problem, [start]))
    assert certificate.bound <= best.step * (1 + 1e-9)
    assert certificate.found.step <= best.step * (1 + certificate.gap) * (1 + 1e-9)
    assert certificate.proven  # few cuts remain in cases as small as these
    assert certificate.found.step == pytest.approx(best.step, rel=1e-9)


def test_larger_cases_are_settled_or_bounded():
    rng = np.random.default_rng(1)
    plan = partition(rng.lognormal(sigma=0.5, size=50), 8, micro_batches=16)
    assert plan.gap == 0 and "no cut has a shorter step" in plan.proof
    plan = partition(rng.lognormal(sigma=0.5, size=120), 16, micro_batches=32)
    assert 0 <= plan.gap < 0.08
    assert plan.step <= solve(plan.problem, "minimax").step


def test_walking_downhill_never_ends_above_its_start():
    rng = np.random.default_rng(2)
    problem = partition(rng.random(40), 6, "uniform").problem
    start = uniform(40, 6)
    found = descend(problem, [start])
    assert found.step <= best_of(problem, np.array([start])).step
    around = problem.steps(neighbours(found.bounds))
    assert found.step <= around.min()


def test_a_shaken_cut_is_a_cut():
    chance = np.random.default_rng(0)
    for n in range(4, 12):
        for _ in range(20):
            assert check_bounds(kicked(uniform(n, 4), chance), n, 4)
    assert kicked((0, 5), chance) == (0, 5)


def test_the_search_with_chunks_is_near_the_best():
    rng = np.random.default_rng(3)
    found = []
    for _ in range(5):
        problem = problem_of(rng.random(14), 3, schedule=interleaved, micro_batches=6)
        best = try_all(problem).step
        found.append(descend(problem, [uniform(14, 6)]).step / best)
    assert min(found) == 1 and max(found) < 1.05


def test_moves_keep_every_slice_filled():
    moves = neighbours((0, 1, 3, 4))
    assert len(moves) and np.all(np.diff(moves, axis=1) > 0)
    assert not len(neighbours((0, 5)))


# -- where the excess lies ----------------------------------------------------------------------


def test_a_slow_first_stage_costs_less_than_a_slow_last_one():
    def step(costs, M):
        return partition(costs, 4, [0, 1, 2, 3, 4], micro_batches=M).step

    lost = {
        (place, M): 1 - step([3] * 4, M) / step([3.9 if s == place else 3 for s in range(4)], M)
        for place in (0, 3)
        for M in (8, 16)
    }
    # numbers.md E: share of the throughput lost
    assert lost[0, 8] == pytest.approx(0.120, abs=5e-4)
    assert lost[0, 16] == pytest.approx(0.170, abs=5e-4)
    assert lost[3, 8] == pytest.approx(0.179, abs=5e-4)
    assert lost[3, 16] == pytest.approx(0.202, abs=5e-4)


def test_the_least_largest_stage_is_not_always_the_least_step():
    minimax = partition([5, 2, 4], 2, "minimax", micro_batches=2)
    optimal = partition([5, 2, 4], 2, "optimal", micro_batches=2)
    assert minimax.bounds == (0, 1, 3) and minimax.max_load == 6
    assert optimal.bounds == (0, 2, 3) and optimal.max_load == 7
    assert minimax.step == pytest.approx(17)
    assert optimal.step == pytest.approx(11 + 14 / 3)
    # with many micro-batches only the largest stage counts
    assert partition([5, 2, 4], 2, "optimal", micro_batches=64).bounds == (0, 1, 3)


def test_messages_move_the_cut_to_a_thin_place():
    wide, thin = 1000, 1
    layers = [LayerProfile(f"{i}", 1, 2, output_bytes=thin if i == 3 else wide) for i in range(6)]
    plan = partition(Profile(layers), 2, links=Links(bandwidth=100))
    assert plan.bounds == (0, 4, 6)
    assert partition(Profile(layers), 2).bounds == (0, 3, 6)


# -- memory and ties ----------------------------------------------------------------------------


def heavy(activation=10):
    return Profile([LayerProfile(f"{i}", 1, 2, 0, 1, 0, activation) for i in range(8)])


def test_a_cap_moves_layers_to_later_stages_which_hold_fewer_micro_batches():
    free = partition(heavy(), 4)
    assert free.memory.tolist() == [112, 92, 72, 52]
    tight = partition(heavy(), 4, devices=devices(4, memory=104))
    assert tight.fits and tight.memory.max() <= 104
    assert tight.bounds[1] == 1
    gpipe_plan = partition(heavy(), 4, schedule=gpipe, devices=devices(4, memory=200))
    assert gpipe_plan.fits


def test_nothing_fits_names_the_cap_that_binds():
    with pytest.raises(DoesNotFit) as error:
        partition(
            heavy(100_000_000), 4, devices=devices(4, memory=[9e9, 2.5e8, 9e9, 9e9], names="T4")
        )
    said = error.value
    assert (said.reason, said.rank, said.cap, said.proven) == ("memory", 1, 2.5e8, True)
    assert said.need == 3e8 + 16
    assert "needs 300 MB on rank 1 (T4), which has 250 MB" in str(said)
    assert "(3 in flight at its peak)" in str(said)


def test_parameters_that_fit_nowhere_are_named():
    layers = [LayerProfile("embedding", 1, 1, parameters=10**9), LayerProfile("head", 1, 1)]
    with pytest.raises(DoesNotFit, match=r"'embedding' alone needs 16 GB.*more than 4 GB"):
        partition(Profile(layers), 2, devices=devices(2, memory=4e9))


def test_tied_layers_together():
    ends = [LayerProfile(f"{i}", 1, 1, tied="w" if i in (0, 5) else None) for i in range(6)]
    with pytest.raises(DoesNotFit, match="share weights") as error:
        partition(Profile(ends), 2, keep_tied=True)
    assert error.value.reason == "tied-apart"
    near = [LayerProfile(f"{i}", 1, 1, tied="w" if i in (2, 3) else None) for i in range(6)]
    assert partition(Profile(near), 2).bounds == (0, 3, 6)
    kept = partition(Profile(near), 2, keep_tied=True)
    assert kept.bounds in ((0, 2, 6), (0, 4, 6)) and kept.fits
    # in a V the first and the last slice are on the same rank anyway
    v = random_schedule(Layout(2, 2, "v"), 4, 0)
    assert partition(Profile(ends), schedule=v, keep_tied=True).fits


# -- chunks -------------------------------------------------------------------------------------


def test_several_chunks_a_rank_cut_more_finely():
    schedule = random_schedule(Layout(2, 2, "loop"), 4, 3)
    plan = partition([1, 2, 3, 4, 5, 6, 7], schedule=schedule)
    assert len(plan.bounds) == 5
    assert plan.rank_loads.tolist() == [
        plan.loads[0] + plan.loads[2],
        plan.loads[1] + plan.loads[3],
    ]
    assert plan.rank_loads.sum() == 28


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_caps_and_ties_with_chunks_equal_brute_force(seed):
    schedule = random_schedule(Layout(2, 2, ("loop", "v")[seed % 2]), 3, seed)
    problem = random_problem(seed, schedule, 9)
    cuts = all_cuts(problem)
    fitting = cuts[problem.excess(cuts) == 0]
    if len(fitting):
        assert solve(problem).step == pytest.approx(problem.steps(fitting).min())
    else:
        with pytest.raises(DoesNotFit):
            solve(problem)


# -- devices in any order -----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_best_order_equals_brute_force(seed):
    problem = random_problem(seed, most=7)
    orders = list(permutations(range(problem.ranks)))
    assert len(list(every_order(problem.devices))) == count_orders(problem.devices)
    cuts = all_cuts(problem)
    least = {"minimax": np.inf, "optimal": np.inf}
    for order in orders:
        other = problem.reordered(order)
        found = least_worst(slice_costs(other), other.slices, other.layers)
        least["minimax"] = min(least["minimax"], found[0] if found else np.inf)
        fitting = cuts[other.excess(cuts) == 0]
        if len(fitting):
            least["optimal"] = min(least["optimal"], other.steps(fitting).min())
    exact = least_worst_order(problem)
    if exact:
        assert exact.answer == least["minimax"]
    for method, value in least.items():
        if not np.isfinite(value):
            with pytest.raises(DoesNotFit):
                solve(problem, method, free_order=True)
            continue
        plan = solve(problem, method, free_order=True)
        assert plan.fits
        assert plan.devices == tuple(problem.devices[i] for i in plan.order)
        if method == "optimal":
            assert plan.step == pytest.approx(value, rel=1e-12)
        elif problem.links.free:
            assert plan.max_load == value


def test_a_mix_of_fast_and_slow_devices():
    costs = [4] * 6 + [30]  # a heavy head
    own = devices(4, speed=[4, 1, 1, 1], names=["A100", "V100", "V100", "V100"])
    fixed = partition(costs, 4, "minimax", devices=own)
    free = partition(costs, 4, "minimax", devices=own, free_order=True)
    assert fixed.max_load == 30
    assert free.order[-1] == 0 and free.max_load == 8
    assert "in the order" in free.sentence() and "A100" in free.sentence()
    assert partition(costs, 4, devices=own, free_order=True).step <= free.step


def test_many_different_devices_are_searched_and_it_is_said():
    rng = np.random.default_rng(0)
    own = [Device(speed=float(s), node=i % 2) for i, s in enumerate(rng.uniform(1, 3, 7))]
    costs = rng.random(12)
    plan = partition(costs, 7, "minimax", devices=own, free_order=True, links=Links(latency=0.01))
    assert "others were tried" in plan.proof
    plan = partition(costs, 7, "minimax", devices=own, free_order=True)
    assert "in any order" in plan.proof
