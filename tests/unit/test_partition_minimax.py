"""The least largest stage: equal to brute force to the last bit, and fast."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.partition import PartitionError, least_maximum, minimax
from pplab.core.partition.block import block_partition
from pplab.core.partition.cuts import check_bounds, every_cut, loads, prefix_sums, uniform
from pplab.core.partition.steps import STEPS, snippet

#: Whole numbers, sizes that drown in rounding beside others, zeros, and anything between.
COST = st.one_of(
    st.integers(0, 20),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 1e-18, 1e-300, 5e-324, 1e16, 1 / 3]),
)


@st.composite
def cases(draw, most=9):
    costs = draw(st.lists(COST, min_size=1, max_size=most))
    return costs, draw(st.integers(1, len(costs)))


def brute_force(costs, parts):
    prefix = prefix_sums(costs)
    cuts = np.concatenate(list(every_cut(len(costs), parts)))
    return np.diff(prefix[cuts], axis=1).max(axis=1).min()


@settings(max_examples=500, deadline=None)
@given(cases())
def test_equals_brute_force_exactly(case):
    costs, parts = case
    best = brute_force(costs, parts)
    assert least_maximum(costs, parts) == best
    bounds = minimax(costs, parts)
    assert check_bounds(bounds, len(costs), parts) == bounds
    assert loads(costs, bounds).max() == best


@settings(max_examples=150, deadline=None)
@given(cases())
def test_each_step_of_the_ladder_gives_the_same_value(case):
    costs, parts = case
    best = brute_force(costs, parts)
    for name, step in STEPS[1:]:
        value, bounds = step(costs, parts)
        assert value == best, name
        assert loads(costs, bounds).max() == best, name
        assert check_bounds(bounds, len(costs), parts) == bounds, name
    # the snippet adds up each slice by itself, so its sums are rounded differently
    assert snippet(costs, parts) == pytest.approx(best, rel=1e-12, abs=1e-300)


def test_the_snippet_is_exact_on_whole_numbers_and_infinite_for_too_few_layers():
    assert snippet([1, 4, 2, 2], 3) == 4
    assert snippet([1, 2], 3) == float("inf")


@pytest.mark.parametrize(
    ("costs", "parts", "least"),
    [
        ([1, 4, 2, 2], 3, 4),
        ([18, 4, 18, 5, 5, 8, 3, 13], 5, 18),
        ([65, 50, 15, 55, 30, 75, 15, 15], 3, 115),
        ([7], 1, 7),
        ([0, 0, 0], 2, 0),
        ([3, 3, 3, 3], 4, 3),
    ],
)
def test_golden_numbers(costs, parts, least):
    assert least_maximum(costs, parts) == least
    assert loads(costs, minimax(costs, parts)).max() == least


def test_golden_cuts():
    assert minimax([1, 4, 2, 2], 3) == (0, 1, 2, 4)
    assert minimax([65, 50, 15, 55, 30, 75, 15, 15], 3) == (0, 2, 5, 8)
    assert loads([65, 50, 15, 55, 30, 75, 15, 15], uniform(8, 3)).max() == 160


def test_a_cut_among_equals_is_even():
    # the first layer alone sets the maximum; the rest could be cut anywhere
    costs = [100] + [1] * 30
    assert np.ptp(np.diff(minimax(costs, 4)[1:])) <= 1
    assert minimax([1] * 12, 4) == (0, 3, 6, 9, 12)


def test_large_cases_are_feasible_optimal_and_fast():
    rng = np.random.default_rng(5)
    for n, parts, limit in ((1_000, 64, 0.005), (10_000, 256, 0.040)):
        costs = rng.lognormal(size=n)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            bounds = minimax(costs, parts)
            times.append(time.perf_counter() - start)
        worst = loads(costs, bounds).max()
        assert check_bounds(bounds, n, parts) == bounds
        assert min(times) < limit
        # nothing smaller is possible: filling greedily just below it needs more stages
        prefix, here, used = prefix_sums(costs), 0, 0
        while here < n:
            below = np.flatnonzero(prefix - prefix[here] < worst)
            here, used = int(below.max()), used + 1
        assert used > parts


@settings(max_examples=200, deadline=None)
@given(cases(most=14))
def test_block_partition_keeps_its_promise_and_never_beats_the_optimum(case):
    costs, parts = case
    bounds = block_partition(costs, parts)
    assert bounds[0] == 0 and bounds[-1] == len(costs) and list(bounds) == sorted(bounds)
    scaled = np.array(costs, dtype=float) - min(costs)
    span = scaled.max()
    sums = [scaled[a:b].sum() for a, b in pairwise(bounds)]
    assert max(sums) - min(sums) <= span * (1 + 1e-8) + 1e-300
    assert loads(costs, bounds).max() >= least_maximum(costs, parts)


@pytest.mark.parametrize(
    ("costs", "parts", "words"),
    [
        ([1, 2], 3, "2 layers cannot fill 3 stages: 1 would stay empty"),
        ([1, 2], 0, "at least one slice"),
        ([], 1, "0 layers"),
        ([1, -2], 1, "layer 1 costs -2.0"),
        ([1, float("nan")], 1, "layer 1 costs nan"),
        ([[1, 2]], 1, "shape"),
        ([1e308, 1e308], 1, "too large"),
    ],
)
def test_what_makes_no_sense_is_said(costs, parts, words):
    for method in (minimax, least_maximum, block_partition):
        with pytest.raises(PartitionError, match=words):
            method(costs, parts)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ([0, 3, 6], "wrong-count"),
        ([1, 3, 6, 8], "wrong-start"),
        ([0, 3, 6, 9], "wrong-end"),
        ([0, 3, 3, 8], "empty-stage"),
        ([0, 5, 3, 8], "not-rising"),
        ([0, 2.5, 3, 8], "not-bounds"),
        (["a"], "not-bounds"),
        ([0], "not-bounds"),
        (None, "not-bounds"),
    ],
)
def test_bounds_are_checked_with_a_reason(bounds, reason):
    with pytest.raises(PartitionError) as error:
        check_bounds(bounds, 8, 3)
    assert error.value.reason == reason
    assert len(str(error.value)) > 20
