"""The dependency graph: its waves, its two predecessors, and what it says of a deadlock."""

import numpy as np
from core_strategies import needs, schedules
from hypothesis import given, settings

from pplab.core.graph import Graph
from pplab.core.ops import KINDS, Op
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, one_f_one_b

several = settings(deadline=None, max_examples=60)


def item(plan, rank, op):
    return op.kind, plan.layout.slice_of(rank, op.chunk), op.micro_batch


@several
@given(schedules())
def test_operations_are_numbered_rank_by_rank_in_the_order_of_execution(plan):
    graph = plan.graph
    flat = [(rank, op) for rank, row in enumerate(plan.ops) for op in row]
    assert [(int(graph.rank[n]), graph.op(n)) for n in range(len(flat))] == flat
    pieces = [plan.layout.slice_of(rank, op.chunk) for rank, op in flat]
    assert graph.piece.tolist() == pieces


@several
@given(schedules())
def test_predecessors_are_the_previous_operation_and_the_producer_of_the_input(plan):
    graph = plan.graph
    for n in range(len(graph.rank)):
        rank, op = int(graph.rank[n]), graph.op(n)
        place = plan.ops[rank].index(op)
        if place == 0:
            assert graph.before[n] == -1
        else:
            before = int(graph.before[n])
            assert (graph.rank[before], graph.op(before)) == (rank, plan.ops[rank][place - 1])
        kind, piece, m = item(plan, rank, op)
        inputs = {x for x in needs((kind, piece, m), plan.layout.slices) if x[1] != piece}
        needed = int(graph.needs[n])
        if needed < 0:
            assert not inputs and not graph.remote[n]
        else:
            assert {item(plan, int(graph.rank[needed]), graph.op(needed))} == inputs
            assert graph.remote[n] == (graph.rank[needed] != rank)


@several
@given(schedules())
def test_waves_hold_every_operation_once_after_all_it_waits_for(plan):
    graph = plan.graph
    assert graph.complete and graph.cycle() == []
    assert sorted(graph.order.tolist()) == list(range(len(graph.rank)))
    assert np.array_equal(graph.order[graph.place], np.arange(len(graph.order)))
    wave_of = np.empty(len(graph.order), dtype=int)
    for w, (low, high) in enumerate(zip(graph.waves[:-1], graph.waves[1:], strict=True)):
        members = graph.order[low:high]
        wave_of[members] = w
        assert len(set(graph.rank[members].tolist())) == len(members) > 0
    for predecessors in (graph.before, graph.needs):
        waits = predecessors >= 0
        assert np.all(wave_of[predecessors[waits]] < wave_of[waits])


@several
@given(schedules())
def test_split_marks_exactly_the_backward_passes_that_have_a_w(plan):
    graph = plan.graph
    for n in range(len(graph.rank)):
        op = graph.op(n)
        has_w = op._replace(kind="W") in plan.ops[graph.rank[n]]
        assert graph.split[n] == (op.kind == "B" and has_w)


@several
@given(schedules())
def test_wave_order_is_the_same_graph_renumbered(plan):
    graph = plan.graph
    before, needed = graph.in_wave_order
    count = len(graph.order)
    for here, n in enumerate(graph.order.tolist()):
        for mine, original in ((before[here], graph.before[n]), (needed[here], graph.needs[n])):
            assert mine == (count if original < 0 else graph.place[original])


def test_ideal_schedules_need_as_many_waves_as_slots():
    # F and B as one slot each: P - 1 to fill, 2M to work, P - 1 to drain
    assert len(gpipe(4, 8).graph.waves) - 1 == 2 * (4 - 1 + 8)
    assert len(one_f_one_b(4, 8).graph.waves) - 1 == 2 * (4 - 1 + 8)


def test_a_deadlock_leaves_operations_out_and_names_a_circle():
    graph = Graph.of(Schedule.of(["F0 B0 F1 B1", "F1 F0 B0 B1"]))
    assert not graph.complete
    assert len(graph.order) == 1  # only F0 of rank 0 ever runs
    assert set(graph.cycle()) == {
        (0, Op("B", 0)),
        (1, Op("B", 0)),
        (1, Op("F", 1)),
        (0, Op("F", 1)),
    }


def test_an_idle_rank_and_an_empty_schedule_have_graphs():
    empty = Graph.of(Schedule.of([[], []], 0))
    assert len(empty.order) == 0 and empty.complete
    assert KINDS[gpipe(1, 1).graph.kind[0]] == "F"
