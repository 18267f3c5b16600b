"""What is read off a timeline: bubble, idle time, phases, critical path, memory."""

import math
from itertools import pairwise

import numpy as np
import pytest
from core_strategies import schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.layout import Layout
from pplab.core.ops import CODE, B, F, Op
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, one_f_one_b, pipedream, zb_h1, zb_h2
from pplab.core.timeline import COLUMNS, Timeline

several = settings(deadline=None, max_examples=50)
costs = st.fixed_dictionaries(
    {
        "forward": st.integers(1, 9),
        "backward": st.integers(1, 9),
        "latency": st.sampled_from([0, 0.25, 3]),
        "overhead": st.sampled_from([0, 0.125]),
    }
)


def copies(timeline, steps, replicas):
    """The same step several times, `steps` one after the other and `replicas` side by side."""
    parts = []
    for step in range(steps):
        for replica in range(replicas):
            columns = timeline.shifted(step * (timeline.step_time + 5)).columns()
            columns["step"] = np.full(len(timeline), step)
            columns["replica"] = np.full(len(timeline), replica)
            parts.append(columns)
    merged = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    return Timeline.of(merged, timeline.layout)


# -- time ------------------------------------------------------------------------------------------


@several
@given(schedules(), costs)
def test_the_bubble_is_one_minus_useful_over_total(plan, times):
    timeline = plan.simulate(**times)
    m = timeline.measures
    useful = float(np.sum(timeline.end - timeline.start))
    total = plan.stages * float(timeline.end.max() - timeline.start.min())
    assert timeline.bubble == pytest.approx(1 - useful / total)
    assert m.bubble_overhead == pytest.approx((total - useful) / useful)
    assert m.step_time == pytest.approx(total / plan.stages)
    assert float(m.busy.sum()) == pytest.approx(useful)
    assert m.busy + m.idle == pytest.approx(np.full(plan.stages, m.step_time))
    assert np.all(m.useful_span <= m.step_time + 1e-9)
    assert 0 <= timeline.bubble < 1


@pytest.mark.parametrize("maker", [gpipe, one_f_one_b], ids=lambda maker: maker.name)
@several
@given(
    P=st.integers(1, 8), M=st.integers(1, 20), forward=st.integers(1, 5), backward=st.integers(1, 9)
)
def test_equal_stages_idle_for_p_minus_1_of_m_plus_p_minus_1(maker, P, M, forward, backward):
    timeline = maker(P, M).simulate(forward=forward, backward=backward)
    assert timeline.bubble == pytest.approx((P - 1) / (M + P - 1))
    assert timeline.measures.bubble_overhead == pytest.approx((P - 1) / M)


@pytest.mark.parametrize(("steps", "replicas"), [(1, 2), (3, 1), (2, 2)])
def test_several_steps_and_replicas_are_averaged(steps, replicas):
    one = zb_h1(3, 5).simulate(forward=2, backward=3)
    many = copies(one, steps, replicas)
    for name in ("step_time", "bubble", "bubble_overhead"):
        assert getattr(many.measures, name) == pytest.approx(getattr(one.measures, name))
    for name in ("busy", "idle", "useful_span"):
        assert getattr(many.measures, name) == pytest.approx(getattr(one.measures, name))
    assert many.measures.window == pytest.approx(steps * one.step_time)


def test_an_empty_timeline_measures_nothing():
    empty = Timeline.of({name: [] for name in COLUMNS}, Layout(2))
    m = empty.measures
    assert (m.bubble, m.bubble_overhead, m.step_time) == (0, 0, 0)


def test_useful_span_is_the_slanted_band_of_zb_h2():
    m = zb_h2(4, 8).simulate(forward=1, backward=2).measures
    assert m.useful_span.tolist() == [24, 24, 24, 24]  # no rank waits inside its own band
    assert m.step_time == 27


def test_steady_bubble_is_what_remains_of_the_bubble_in_a_full_pipeline():
    stream = pipedream(4, 20).simulate(forward=1, backward=2)
    assert stream.bubble > 0.1
    assert stream.measures.steady_bubble == pytest.approx(0)
    slow = pipedream(4, 40).simulate(forward=[1, 2, 1, 1], backward=[2, 4, 2, 2])
    assert slow.measures.steady_bubble == pytest.approx(3 / 8, abs=0.02)  # three ranks half idle
    assert math.isnan(gpipe(4, 8).simulate().measures.steady_bubble)


def test_phases():
    m = one_f_one_b(4, 8).simulate(forward=1, backward=2).measures
    names = [[phase.name for phase in m.phases(rank)] for rank in range(4)]
    assert names == [["warm-up", "steady", "drain"]] * 4
    first, last = m.phases(0), m.phases(3)
    assert [(p.start, p.end) for p in first] == [(0, 10), (10, 22), (22, 33)]
    assert [(p.start, p.end) for p in last] == [(3, 4), (4, 25), (25, 27)]
    all_forward = gpipe(2, 3).simulate().measures.phases(0)
    assert all_forward[1].start == all_forward[1].end  # GPipe has no steady phase
    assert zb_h1(2, 2).simulate().measures.phases(1)[-1].end == 7  # the drain includes W


def test_a_rank_without_backward_passes_has_no_phases():
    plan = one_f_one_b(2, 2)
    assert plan.simulate().only(kinds="F").measures.phases(0) == ()


# -- critical path ---------------------------------------------------------------------------------


@several
@given(schedules(), costs, st.booleans())
def test_the_critical_path_of_a_simulation_has_no_gap_and_is_as_long_as_the_step(
    plan, times, update
):
    timeline = plan.simulate(**times, update=2 if update else 0)
    path = timeline.measures.critical_path()
    assert path[0].start == 0 and path[0].waited_for == "start of the step"
    assert path[-1].end == timeline.end.max()
    length = 0.0
    for before, link in pairwise(path):
        gap = link.start - before.end
        length += gap
        if link.op.kind == "U":
            assert gap == 0
        elif link.waited_for == "rank":
            assert link.rank == before.rank
            assert gap == pytest.approx(times["overhead"])
        else:
            assert link.waited_for == "message"
            assert link.op[:2] == before.op[:2]
            assert link.rank != before.rank
            assert gap == pytest.approx(times["latency"])
    length += sum(link.end - link.start for link in path)
    assert length == pytest.approx(timeline.step_time)


def test_the_critical_path_runs_through_the_slow_stage():
    slow = one_f_one_b(4, 8).simulate(forward=[1, 1, 3, 1], backward=[2, 2, 6, 2])
    path = slow.measures.critical_path()
    on_slow = [link for link in path if link.rank == 2]
    assert len(on_slow) == 16  # every F and B of the slow stage
    assert all(link.waited_for == "rank" for link in on_slow[1:])


def test_a_late_message_is_named_even_when_the_rank_was_busy_shortly_before():
    # Rank 1 ends F1 at 3; the message of B0 leaves rank 2 at 3 too, but takes 5 to arrive.
    path = one_f_one_b(3, 2).simulate(forward=1, backward=1, latency=5).measures.critical_path()
    assert {link.waited_for for link in path if link.op.kind == "B" and link.rank < 2} == {
        "message"
    }


def test_the_critical_path_of_nothing_is_empty():
    only_waits = Timeline.of(
        {
            "rank": [0],
            "kind": [CODE["R"]],
            "micro_batch": [0],
            "chunk": [0],
            "start": [0],
            "end": [1],
        },
        Layout(1),
    )
    assert only_waits.measures.critical_path() == []
    nothing = Timeline.of({name: [] for name in COLUMNS}, Layout(2)).measures
    assert nothing.critical_path() == [] and nothing.phases(0) == ()
    assert nothing.peak_in_flight().tolist() == [0, 0]
    assert math.isnan(nothing.steady_bubble)


# -- memory ----------------------------------------------------------------------------------------


def plain_in_flight(row):
    """Activations held after each operation of a rank, from their order alone."""
    held, counts = set(), []
    split = {op[1:] for op in row if op.kind == "W"}
    for op in row:
        if op.kind == "F":
            held.add(op[1:])
        elif op.kind == "W" or op[1:] not in split:
            held.discard(op[1:])
        counts.append(len(held))
    return counts


@several
@given(schedules())
def test_activations_in_flight_follow_from_the_order_of_the_operations(plan):
    m = plan.simulate(forward=1, backward=2, overhead=0.5).measures
    peaks = m.peak_in_flight()
    for rank, row in enumerate(plan.ops):
        counted = plain_in_flight(row)
        times, counts = m.in_flight(rank)
        assert peaks[rank] == max(counted) == counts.max()
        assert counts[-1] == 0
        assert np.all(np.diff(times) >= 0)


@several
@given(P=st.integers(1, 6), M=st.integers(1, 12))
def test_gpipe_holds_all_micro_batches_and_1f1b_no_more_than_stages_behind(P, M):
    assert gpipe(P, M).simulate().measures.peak_in_flight().tolist() == [M] * P
    peaks = one_f_one_b(P, M).simulate().measures.peak_in_flight().tolist()
    assert peaks == [min(P - s, M) for s in range(P)]


def test_a_split_backward_pass_keeps_its_activation_until_w():
    plan = Schedule.of(["F0 B0 F1 W0 B1"])
    times, counts = plan.simulate(forward=1, backward=2).measures.in_flight(0)
    assert times.tolist() == [0, 2, 4, 6]
    assert counts.tolist() == [1, 2, 1, 0]


def test_of_several_steps_the_first_one_is_looked_at():
    many = copies(one_f_one_b(2, 3).simulate(), steps=2, replicas=2)
    assert many.measures.peak_in_flight(replica=1).tolist() == [2, 1]
    path = many.measures.critical_path(replica=1)
    assert [link.op for link in path][:2] == [F(0), F(0)]
    assert path[-1].op == B(2) and path[-1].end == many.only(step=0).end.max()
    assert Op("B", 2) == B(2)
