"""What a bubble that shrank can explain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.batch import BubbleClaim, activations_for, ideal_bubble, memory_after
from pplab.core.schedules import one_f_one_b

CASE = BubbleClaim(0.38, 0.12, 4.2)


def test_the_closing_case():
    """claims.md 1.37: x1.42 from the bubble, x2.96 unexplained, M/(S-1) from 1.6 to 7.3."""
    assert CASE.from_bubble == pytest.approx(1.42, abs=0.005)
    assert CASE.unexplained == pytest.approx(2.96, abs=0.005)
    assert CASE.limit == pytest.approx(1.61, abs=0.005)
    assert CASE.ratios == pytest.approx((1.63, 7.33), abs=0.005)
    assert CASE.growth == pytest.approx(4.5, abs=0.05)


def test_the_pipelines_that_fit():
    found = {p.stages: p for p in CASE.pipelines((2, 4, 8, 16))}
    assert found[4].before == (5,) and found[4].after == (22, 23)
    assert not found[2].possible and not found[8].possible
    assert found[16].possible
    finer = BubbleClaim(0.375, 0.120, digits=1).pipelines((4,))[0]
    assert finer == (4, (5,), (22,))


@given(st.integers(2, 12), st.integers(1, 40), st.integers(0, 60))
def test_the_speed_up_is_that_of_the_simulated_steps(stages, few, more):
    def rate(m):
        step = one_f_one_b(stages, m).simulate(forward=1, backward=2).step_time
        return m / step

    many = few + more
    claim = BubbleClaim(ideal_bubble(stages, few), ideal_bubble(stages, many))
    assert claim.from_bubble == pytest.approx(rate(many) / rate(few))
    assert claim.growth == pytest.approx(many / few)
    assert claim.from_bubble < claim.limit


@given(st.integers(2, 32), st.integers(1, 200))
def test_a_bubble_as_printed_is_traced_back_to_its_micro_batches(stages, m):
    bubble = round(ideal_bubble(stages, m), 2)
    if not 0 < bubble < 1:
        return
    (found,) = BubbleClaim(bubble, bubble).pipelines((stages,))
    exact = ideal_bubble(stages, m)
    if abs(exact - bubble) < 0.005 - 1e-9:
        assert m in found.before
    for other in found.before:
        assert abs(ideal_bubble(stages, other) - bubble) <= 0.005 + 1e-9


def test_words():
    assert "1.42 times as fast" in str(CASE) and "a factor of 2.96" in str(CASE)
    assert "P=8   M = none before, 50 to 53 after" in str(CASE)
    assert "another cause" not in BubbleClaim(0.38, 0.12).sentence()
    assert "another cause" not in BubbleClaim(0.38, 0.12, 1.42).sentence()
    assert "something else got slower" in BubbleClaim(0.38, 0.12, 1.2).sentence()


@pytest.mark.parametrize("wrong", [(38, 12), (0.12, 0.38), (0.38, 0), (1.0, 0.1)])
def test_bubbles_are_shares_the_larger_first(wrong):
    with pytest.raises(ValueError, match="shares of the step, the larger one first"):
        BubbleClaim(*wrong)
    with pytest.raises(ValueError, match="positive number"):
        BubbleClaim(0.38, 0.12, -1)


@given(st.floats(1.01, 50), st.floats(0, 1))
def test_memory_of_a_fixed_batch_in_smaller_micro_batches(growth, activations):
    left = memory_after(growth, activations)
    assert 0 <= left <= 1
    assert activations_for(growth, 1 - left) == pytest.approx(activations, abs=1e-9)


def test_memory_refuses_what_is_no_share():
    assert activations_for(CASE.growth, 0.63) == pytest.approx(0.81, abs=0.005)
    with pytest.raises(ValueError, match="between 0 and 1"):
        memory_after(2, 1.5)
    with pytest.raises(ValueError, match="nothing is saved"):
        activations_for(1, 0.5)
