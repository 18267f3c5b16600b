"""The simulator against a second one, written here in plain Python, and its rules one by one."""

import numpy as np
import pytest
from core_strategies import needs, schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.costs import Costs
from pplab.core.ops import CODE, F, U
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, one_f_one_b, pipedream

several = settings(deadline=None, max_examples=60)
times = st.integers(0, 9).map(float)


@st.composite
def costs_for(draw, plan):
    """Costs in every shape they may take."""
    slices, M = plan.layout.slices, plan.micro_batches

    def shaped(low, high):
        shape = draw(st.sampled_from([(), (slices,), (slices, 1), (1, M), (slices, M)]))
        seed = draw(st.integers(0, 2**32))
        return np.random.default_rng(seed).integers(low, high, shape).astype(float)

    cuts = np.array([draw(times) for _ in range(slices - 1)])  # one latency a cut
    return Costs(
        forward=shaped(0, 9),
        backward=shaped(5, 12),
        weight=draw(st.one_of(st.none(), st.just(shaped(0, 5)))),
        latency=draw(times) if draw(st.booleans()) else cuts,
        message_bytes=draw(times),
        bandwidth=draw(st.sampled_from([2.0, float("inf")])),
        overhead=draw(times),
        unit="s",
    )


def at(value, piece, m):
    """Entry of a cost that is a number, one per slice, or one per slice and micro-batch."""
    array = np.asarray(value, dtype=float)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 0:
        return float(array)
    return float(array[piece % array.shape[0], m % array.shape[1]])


def plain_simulation(plan, costs):
    """{(rank, op): (start, end)}, one operation at a time, from the definition alone."""
    size = costs.message_bytes / costs.bandwidth
    spans, ended, clock, place = {}, {}, [None] * plan.stages, [0] * plan.stages
    while any(place[r] < len(plan.ops[r]) for r in range(plan.stages)):
        for rank in range(plan.stages):
            if place[rank] == len(plan.ops[rank]):
                continue
            op = plan.ops[rank][place[rank]]
            piece = plan.layout.slice_of(rank, op.chunk)
            inputs = needs((op.kind, piece, op.micro_batch), plan.layout.slices)
            if not all(x in ended for x in inputs):
                continue
            start = 0.0 if clock[rank] is None else clock[rank] + costs.overhead
            for x in inputs:
                end, other = ended[x]
                if other != rank:
                    cut = min(piece, x[1])
                    end += costs.latency[cut] if np.ndim(costs.latency) else costs.latency
                    end += size
                start = max(start, end)
            weight = at(costs.backward, piece, op.micro_batch) / 2
            if costs.weight is not None:
                weight = at(costs.weight, piece, op.micro_batch)
            lasts = {
                "F": at(costs.forward, piece, op.micro_batch),
                "B": at(costs.backward, piece, op.micro_batch),
                "W": weight,
            }[op.kind]
            if op.kind == "B" and op._replace(kind="W") in plan.ops[rank]:
                lasts -= weight
            clock[rank] = start + lasts
            spans[rank, op] = (start, start + lasts)
            ended[op.kind, piece, op.micro_batch] = (start + lasts, rank)
            place[rank] += 1
    return spans


@several
@given(st.data(), schedules())
def test_it_agrees_with_a_plain_simulator_on_every_schedule_and_cost(data, plan):
    costs = data.draw(costs_for(plan))
    expected = plain_simulation(plan, costs)
    found = {(s.rank, s.op): (s.start, s.end) for s in plan.simulate(costs)}
    assert found.keys() == expected.keys()
    for key, span in expected.items():
        assert found[key] == pytest.approx(span)


@several
@given(st.data(), schedules())
def test_each_operation_starts_as_early_as_its_predecessors_allow(data, plan):
    costs = data.draw(costs_for(plan))
    timeline = plan.simulate(costs)
    graph = plan.graph
    start, end = timeline.start, timeline.end  # same numbering: rank by rank, in order
    own = np.where(graph.before >= 0, end[graph.before] + costs.overhead, 0.0)
    crossed = np.where(graph.kind == CODE["F"], graph.piece - 1, graph.piece)
    across = [*costs.messages(plan.layout.slices).tolist(), 0.0]  # the last one: none
    delay = np.where(graph.remote, np.take(across, crossed, mode="clip"), 0.0)
    arrived = np.where(graph.needs >= 0, end[graph.needs] + delay, 0.0)
    assert np.array_equal(start, np.maximum(own, arrived))


def test_golden_numbers():
    for maker, peaks in ((gpipe, [8, 8, 8, 8]), (one_f_one_b, [4, 3, 2, 1])):
        plan = maker(4, 8)
        even = plan.simulate(forward=1, backward=1)
        assert even.step_time == 22
        assert even.bubble == pytest.approx(3 / 11)
        assert plan.simulate(forward=1, backward=2).step_time == 33
        assert even.measures.peak_in_flight().tolist() == peaks


SLOW = {  # slow stage: per cent of throughput lost with 8 and 16 micro-batches (claims.md, box B)
    0: (12.0, 17.0),
    1: (14.1, 18.1),
    2: (16.0, 19.2),
    3: (17.9, 20.2),
}


@pytest.mark.parametrize("slow", SLOW)
def test_one_stage_30_percent_slower_costs_less_the_earlier_it_stands(slow):
    for M, published in zip((8, 16), SLOW[slow], strict=True):
        factor = np.ones(4)
        factor[slow] = 1.3
        plan = one_f_one_b(4, M)
        even = plan.simulate(forward=1, backward=2).step_time
        uneven = plan.simulate(forward=factor, backward=2 * factor).step_time
        assert 100 * (1 - even / uneven) == pytest.approx(published, abs=0.06)


def test_with_many_micro_batches_the_slow_stage_sets_the_pace():
    plan = one_f_one_b(4, 2000)
    uneven = plan.simulate(forward=[1.3, 1, 1, 1], backward=[2.6, 2, 2, 2]).step_time
    even = plan.simulate(forward=1, backward=2).step_time
    assert 1 - even / uneven == pytest.approx(0.3 / 1.3, abs=1e-3)  # 23.1 %


def test_latency_bandwidth_and_overhead_each_where_they_belong():
    plan = gpipe(2, 1)
    assert plan.simulate(forward=1, backward=1).step_time == 4
    assert plan.simulate(forward=1, backward=1, latency=0.5).step_time == 5
    assert plan.simulate(forward=1, backward=1, message_bytes=8, bandwidth=16).step_time == 5
    assert plan.simulate(forward=1, backward=1, overhead=0.5).step_time == 4.5  # rank 1: F, then B
    one = gpipe(1, 2)
    assert one.simulate(forward=1, backward=1, latency=9, overhead=0.25).step_time == 4.75


def test_costs_per_slice_and_micro_batch():
    plan = gpipe(1, 3)
    timeline = plan.simulate(forward=[[1, 2, 3]], backward=4)
    assert (timeline.end - timeline.start).tolist() == [1, 2, 3, 4, 4, 4]
    folded = Schedule.of(["F0 F0.1 B0.1 B0", "F0 F0.1 B0.1 B0"], chunks=2, placement="v")
    timeline = folded.simulate(forward=[1, 2, 3, 4], backward=5)
    assert [s.end - s.start for s in timeline if s.op.kind == "F"] == [1, 4, 2, 3]


def test_w_takes_its_part_of_the_whole_backward_pass():
    split, whole = Schedule.of(["F0 B0 W0"]), Schedule.of(["F0 B0"])
    lasts = {str(s.op): s.end - s.start for s in split.simulate(backward=5, weight=2)}
    assert lasts == {"F0": 1, "B0": 3, "W0": 2}
    lasts = {str(s.op): s.end - s.start for s in split.simulate(backward=5)}
    assert lasts == {"F0": 1, "B0": 2.5, "W0": 2.5}
    for plan in (split, whole):
        assert plan.simulate(backward=5, weight=2).step_time == 6
    mixed = Schedule.of(["F0 F1 B0 W0 B1"]).simulate(backward=5, weight=2)
    assert {str(s.op): s.end - s.start for s in mixed}["B1"] == 5


def test_the_optimizer_step_waits_for_all_ranks_unless_the_schedule_says_when():
    timeline = one_f_one_b(2, 2).simulate(forward=1, backward=2, update=[1, 3])
    updates = {s.rank: (s.start, s.end) for s in timeline if s.op == U()}
    assert updates == {0: (9, 10), 1: (9, 12)}
    assert timeline.step_time == 12
    assert all(s.op.kind != "U" for s in one_f_one_b(2, 2).simulate())

    written = Schedule.of(["F0 B0 U", "F0 B0 U"]).simulate(forward=1, backward=2, update=[1, 3])
    updates = {s.rank: (s.start, s.end) for s in written if s.op == U()}
    assert updates == {1: (4, 7), 0: (6, 7)}  # each rank by itself

    stream = pipedream(2, 3).simulate(update=0.5)
    assert [s.end - s.start for s in stream if s.op.kind == "U"] == [0.5] * 6


def test_the_timeline_carries_its_labels():
    timeline = gpipe(2, 2).simulate(Costs(unit="s"))
    assert (timeline.source, timeline.schedule, timeline.unit) == ("simulated", "GPipe", "s")
    assert next(iter(timeline)).op == F(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"forward": [1, 2, 3]}, r"forward has shape \(3,\); give one number, 2 numbers"),
        ({"backward": [[1, 2], [3, 4]]}, r"backward has shape \(2, 2\).* or 2 x 3"),
        ({"weight": np.ones((2, 3, 1)) / 2}, r"weight has shape \(2, 3, 1\)"),
        ({"update": [1, 2, 3]}, r"update has shape \(3,\); give one number or 2"),
        ({"forward": -1}, "forward must be finite and not negative"),
        ({"backward": [1, float("nan")]}, "backward must be finite"),
        ({"latency": float("inf")}, "latency must be finite"),
        ({"latency": [1, 2, 3]}, r"latency has shape \(3,\); give one number or 1"),
        ({"overhead": -0.1}, "overhead must be"),
        ({"bandwidth": 0}, "bandwidth must be positive"),
        ({"bandwidth": float("nan")}, "bandwidth must be positive"),
        ({"backward": 2, "weight": 3}, "it cannot exceed it"),
    ],
)
def test_costs_that_make_no_sense_say_why(fields, message):
    with pytest.raises(ValueError, match=message):
        gpipe(2, 3).simulate(**fields)


def test_weight_and_backward_are_compared_slice_by_slice():
    with pytest.raises(ValueError, match="cannot exceed"):
        Costs(backward=[1, 5], weight=[[2, 2], [2, 2]])
    assert Costs(backward=[1, 5], weight=[[1, 1], [5, 5]]).table(2, 2)[2].tolist() == [
        [1, 1],
        [5, 5],
    ]


def test_a_large_schedule_takes_milliseconds():
    import time

    plan = one_f_one_b(32, 1024)  # 65,536 operations
    _ = plan.graph
    begin = time.perf_counter()
    plan.simulate()
    assert time.perf_counter() - begin < 1.0
