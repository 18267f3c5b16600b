"""The parts of a step add up to it, and each planted imperfection lands in its own part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.breakdown import breakdown, durations
from pplab.core.costs import Costs
from pplab.core.gaps import gaps
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, one_f_one_b

PLAN = one_f_one_b(4, 8)
NAMES = [
    "useful work", "fill and drain", "imbalance", "variation", "messages", "overhead",
    "optimizer step", "not explained",
]  # fmt: skip


def shares(plan: Schedule = PLAN, **costs: object) -> dict[str, float]:
    parts = breakdown(plan.simulate(Costs(**costs)), plan)  # type: ignore[arg-type]
    assert [part.name for part in parts.parts] == NAMES
    assert sum(part.time for part in parts.parts) == pytest.approx(parts.step)
    return {part.name: part.time for part in parts.parts}


def test_a_perfect_pipeline_is_useful_work_and_fill_and_drain() -> None:
    found = shares(forward=1, backward=2)
    assert found["useful work"] == pytest.approx(24)
    assert found["fill and drain"] == pytest.approx(9)
    assert all(abs(found[name]) < 1e-9 for name in NAMES[2:])


@pytest.mark.parametrize(
    ("costs", "part", "time"),
    [
        ({"forward": [1, 1, 1.5, 1], "backward": [2, 2, 3, 2]}, "imbalance", None),
        ({"latency": 0.3}, "messages", 4.8),
        ({"overhead": 0.1}, "overhead", None),
        ({"update": 0.7}, "optimizer step", 0.7),
    ],
)
def test_each_imperfection_lands_in_its_own_part(costs: dict, part: str, time: float) -> None:
    costs = {"forward": 1, "backward": 2, **costs}
    found = shares(**costs)
    small = {name for name in NAMES[2:] if abs(found[name]) < 1e-9}
    assert found[part] > 0.05 and small == set(NAMES[2:]) - {part}
    if time is not None:
        assert found[part] == pytest.approx(time)


def test_one_slow_micro_batch_is_variation() -> None:
    forward = np.ones((4, 8))
    forward[2, 3] = 4
    found = shares(forward=forward, backward=2)
    assert found["variation"] > 0 and found["messages"] == pytest.approx(0)


@given(
    st.integers(1, 5), st.integers(1, 8), st.sampled_from([gpipe, one_f_one_b]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_parts_add_up_whatever_the_costs(P: int, M: int, make, seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = make(P, M)
    costs = Costs(
        forward=rng.uniform(0.5, 2, (P, M)),
        backward=rng.uniform(1, 4, (P, M)),
        update=float(rng.uniform(0, 2)),
        latency=float(rng.uniform(0, 0.5)),
        overhead=float(rng.uniform(0, 0.2)),
    )
    parts = breakdown(plan.simulate(costs), plan)
    assert sum(part.time for part in parts.parts) == pytest.approx(parts.step)
    assert parts["useful work"] > 0


def test_gaps_find_the_latency_and_overhead_that_were_put_in() -> None:
    timeline = PLAN.simulate(forward=1, backward=2, latency=0.25, overhead=0.125)
    assert gaps(timeline) == (pytest.approx(0.125), pytest.approx(0.25))


def test_durations_say_what_is_missing() -> None:
    timeline = PLAN.simulate(forward=1, backward=2)
    with pytest.raises(ValueError, match="has no F8 of slice 0, which the schedule runs"):
        durations(timeline, one_f_one_b(4, 9))


def test_words_and_shares() -> None:
    timeline = PLAN.simulate(forward=0.010, backward=0.020, unit="s")
    parts = breakdown(timeline, PLAN)
    assert parts["fill and drain"] == pytest.approx(3 / 11)
    with pytest.raises(KeyError, match="the parts are useful work, fill and drain"):
        parts["bubble"]
    first = str(parts).splitlines()[0]
    assert first.split() == ["useful", "work", "240.0", "ms", "72.7%", *first.split()[5:]]
    assert not str(parts).startswith("[measured]")
    assert "<th scope" in parts._repr_html_()
