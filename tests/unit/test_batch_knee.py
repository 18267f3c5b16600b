"""The knee of a GAS sweep, the best cut of a batch, and the rules of thumb."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.batch import article_rule, best_cut, ideal_knee, knee, resolve, rules
from pplab.core.schedules import interleaved, one_f_one_b


def ideal(stages: int):
    """Throughput of equal stages, up to a factor."""
    return lambda m: m / (m + stages - 1)


def test_the_knee_of_equal_stages_is_at_4_5_times_p_minus_1() -> None:
    assert [ideal_knee(p) for p in (1, 2, 4, 8, 16)] == [1, 5, 14, 32, 68]
    assert ideal_knee(3) == 10, "at M = 9 doubling brings 10 %, which is not less than 10 %"
    assert ideal_knee(4, gain=0.05) == 29


@given(stages=st.integers(1, 40), gain=st.sampled_from([0.02, 0.05, 0.1, 0.2, 0.5]))
def test_the_search_finds_what_the_formula_says(stages: int, gain: float) -> None:
    found = knee(ideal(stages), gain)
    assert found == ideal_knee(stages, gain)
    rate = ideal(stages)
    assert rate(2 * found) / rate(found) < 1 + gain
    assert found == 1 or rate(2 * found - 2) / rate(found - 1) >= 1 + gain - 1e-9


def test_a_simulated_schedule_has_the_same_knee() -> None:
    def rate(m: int) -> float:
        return m / one_f_one_b(4, m).simulate(forward=1, backward=2).step_time

    assert knee(rate) == ideal_knee(4) == 14


def test_a_schedule_that_runs_multiples_of_p_has_its_knee_at_one() -> None:
    asked = []

    def rate(m: int) -> float:
        asked.append(m)
        return m / interleaved(4, m).simulate(forward=0.5, backward=1).step_time

    found = knee(rate, unit=4)
    assert found == 8 and all(m % 4 == 0 for m in asked)
    assert rate(16) / rate(8) < 1.1 <= rate(8) / rate(4)


def test_numbers_that_cannot_run_lie_below_the_knee() -> None:
    assert knee(lambda m: None if m < 40 else ideal(4)(m)) == 40


def test_no_knee_where_doubling_goes_on_paying() -> None:
    assert knee(lambda m: float(m), most=1000) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        knee(ideal(4), 10)


@given(
    stages=st.integers(2, 16), batch=st.integers(1, 512), fixed=st.floats(0.01, 10),
    each=st.floats(0.01, 10),
)  # fmt: skip
def test_the_best_cut_is_a_minimum(stages: int, batch: int, fixed: float, each: float) -> None:
    def step(m: float) -> float:
        return (m + stages - 1) * (fixed + each * batch / m)

    best = best_cut(stages, batch, fixed, each)
    assert best >= 1
    for other in (best * 0.9, best * 1.1):
        assert other < 1 or step(best) <= step(other) * (1 + 1e-12)


def test_the_best_cut_in_numbers() -> None:
    assert best_cut(4, 64, 1, 1) == pytest.approx(13.856, abs=1e-3)
    with pytest.raises(ValueError, match="without a fixed part"):
        best_cut(4, 64, 0, 1)


def test_rules_of_thumb() -> None:
    assert rules(4) == {"2P": 8, "4P": 16, "8P": 32}


def test_the_articles_rule_falls_as_stages_are_added() -> None:
    """claims 1.8: the opposite of what the bubble asks for, and blind to the triangle."""
    assert [article_rule(p, 1024) for p in (2, 4, 8, 16)] == [256, 128, 64, 32]
    assert not resolve(train=100, gas=article_rule(3, 100)).ok
    assert article_rule(8, 8) == 16
