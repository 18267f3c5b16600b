"""Weight versions and staleness of schedules that update within a stream."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.ops import F
from pplab.core.schedule import Schedule
from pplab.core.schedules import SCHEDULES, pipedream, pipedream_2bw
from pplab.core.schedules.weights import staleness, versions_held, versions_used

several = settings(deadline=None, max_examples=40)


@several
@given(P=st.integers(1, 6), M=st.integers(1, 20))
def test_pipedream_gradients_are_as_old_as_the_stage_runs_ahead(P, M):
    ages = staleness(pipedream(P, M))
    assert ages == tuple(tuple(min(m, P - 1 - s) for m in range(M)) for s in range(P))


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_pipedream_reaches_the_published_number_of_versions(stages):
    held = versions_held(pipedream(stages, 2 * stages))
    assert held == tuple(stages - s for s in range(stages))


@several
@given(data=st.data(), P=st.integers(1, 6), M=st.integers(1, 30))
def test_2bw_uses_the_same_version_on_every_stage_one_update_old(data, P, M):
    group = P + data.draw(st.integers(0, 3))
    plan = pipedream_2bw(P, M, group=group)
    expected = {F(m): max(0, m // group - 1) for m in range(M)}
    assert versions_used(plan) == (expected,) * P
    assert staleness(plan) == (tuple(min(1, m // group) for m in range(M)),) * P
    assert max(versions_held(plan)) <= 2


def test_schedules_that_flush_use_one_version():
    for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipev", "eager-1f1b"):
        plan = SCHEDULES[name](3, 6)
        assert versions_held(plan) == (1, 1, 1)
        assert set(staleness(plan)[0]) == {0}
        assert {v for used in versions_used(plan) for v in used.values()} == {0}


def test_an_update_at_the_end_of_the_step_changes_nothing_within_it():
    plan = Schedule.of(["F0 F1 B0 B1 U"])
    assert versions_held(plan) == (1,)
    assert staleness(plan) == ((0, 0),)


def test_a_version_is_held_until_w():
    assert versions_held(Schedule.of(["F0 F1 B0 W0 U0 B1 W1 U1"])) == (2,)
    plan = Schedule.of(["F0 B0 W0 U0 F1 F2 B1 W1 U1 B2 W2 U2"])
    assert versions_used(plan) == ({F(0): 0, F(1): 1, F(2): 1},)
    assert versions_held(plan) == (2,)
    assert staleness(plan) == ((0, 0, 1),)


def test_an_update_covers_all_micro_batches_up_to_its_own():
    plan = Schedule.of(["F0 F1 B0 B1 U1 F2 B2 U2"])
    assert staleness(plan) == ((0, 0, 0),)
    assert versions_used(plan)[0][F(2)] == 1
