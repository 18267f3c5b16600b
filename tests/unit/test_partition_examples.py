"""The article's example, and what a slow stage costs: numbers by search and simulation."""

import numpy as np
import pytest

from pplab.core.partition import compare, partition
from pplab.core.partition.examples import (
    ARTICLE,
    article,
    costs_like,
    gain,
    largest_stages,
    throughput_lost,
)
from pplab.core.schedules import gpipe, interleaved


def test_the_articles_numbers_come_out_exactly() -> None:
    assert largest_stages() == (160, 115)
    equal, best = compare(article(), 3, ("uniform", "optimal"))
    assert equal.bounds == (0, 3, 6, 8) and equal.max_load == 160
    assert best.bounds == (0, 2, 5, 8) and best.max_load == 115
    assert partition(article("s"), 3, "minimax").time(0.115) == "115 ms"


@pytest.mark.parametrize("seed", range(3))
def test_a_search_finds_such_costs(seed: int) -> None:
    costs = costs_like(seed=seed)
    assert len(costs) == len(ARTICLE) and all(cost % 5 == 0 < cost for cost in costs)
    assert partition(costs, 3, "uniform").max_load == 160
    assert partition(costs, 3, "minimax").max_load == 115


def test_a_search_that_cannot_succeed_says_so() -> None:
    with pytest.raises(ValueError, match=r"no 8 multiples of 5 .* 100 when cut uniformly"):
        costs_like(100, 115, tries=2_000)


def test_a_slow_first_stage_loses_less_than_a_slow_last_one() -> None:
    """Box B of the checked claims: 12.0 % and 17.9 %, where the article says 18 %."""
    eight, sixteen = throughput_lost(4, 8), throughput_lost(4, 16)
    assert eight * 100 == pytest.approx([12.0, 14.1, 16.0, 17.9], abs=0.06)
    assert sixteen * 100 == pytest.approx([17.0, 18.1, 19.2, 20.2], abs=0.06)
    for lost in (eight, sixteen, throughput_lost(8, 32), throughput_lost(3, 5, excess=1)):
        assert np.all(np.diff(lost) > 0)
    assert throughput_lost(4, 2_000) == pytest.approx(0.3 / 1.3, abs=1e-3)


def test_a_slow_stage_in_other_schedules() -> None:
    assert throughput_lost(4, 8, excess=0) == pytest.approx(0)
    lost = throughput_lost(4, 8, schedule=gpipe)
    assert lost == pytest.approx([lost[0]] * 4)  # GPipe waits for its slowest stage wherever it is
    with pytest.raises(ValueError, match="chunks a rank"):
        throughput_lost(4, 8, schedule=interleaved)


def test_the_gain_of_the_better_cut() -> None:
    found = [gain(micro_batches=m) for m in (8, 16, 32)]
    assert found == pytest.approx([0.18, 0.28, 0.33], abs=0.005)
    assert gain(micro_batches=5_000) == pytest.approx(160 / 115 - 1, abs=1e-3)
