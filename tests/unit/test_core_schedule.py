"""Building schedules: from generators, from text, and what the generator may do wrong."""

import pickle

import pytest
from core_strategies import schedules
from hypothesis import given, settings

from pplab.core.costs import Costs
from pplab.core.ops import B, F, Op, W
from pplab.core.schedule import Schedule, ScheduleError, ScheduleMaker, schedule
from pplab.core.schedules import gpipe, one_f_one_b


@schedule
def sequential(stage, stages, micro_batches):
    """One micro-batch at a time."""
    for m in range(micro_batches):
        yield F(m)
        yield B(m)


def test_a_generator_becomes_a_schedule():
    assert isinstance(sequential, ScheduleMaker)
    assert sequential.__doc__ == "One micro-batch at a time."
    plan = sequential(stages=2, micro_batches=2)
    assert plan.ops == ((F(0), B(0), F(1), B(1)),) * 2
    assert (plan.name, plan.stages, plan.chunks, plan.micro_batches) == ("sequential", 2, 1, 2)
    assert plan.problems == ()
    assert plan.check() is plan
    assert "stages=" in repr(sequential)


def test_the_decorator_takes_name_chunks_and_placement():
    @schedule(name="Folded", chunks=2, placement="v")
    def folded(stage, stages, micro_batches):
        yield from (F(0), F(0, 1), B(0, 1), B(0))

    plan = folded(3, 1)
    assert plan.name == "Folded"
    assert (plan.layout.chunks, plan.layout.placement) == (2, "v")
    assert plan.problems == ()


def test_a_generator_that_asks_for_chunks_is_told_how_many():
    @schedule(chunks=2)
    def by_chunk(stage, stages, micro_batches, chunks, first=0):
        for c in range(chunks):
            yield F(first, c)
        for c in reversed(range(chunks)):
            yield B(first, c)

    assert by_chunk(2, 1).ops[0] == (F(0), F(0, 1), B(0, 1), B(0))
    assert by_chunk(2, 1, chunks=3).chunks == 3
    assert by_chunk(2, 1, first=7).ops[0][0] == F(7)


def test_at_least_one_micro_batch():
    with pytest.raises(ValueError, match="at least one micro-batch, not 0"):
        gpipe(2, 0)


def test_a_generator_that_yields_something_else():
    @schedule
    def wrong(stage, stages, micro_batches):
        yield F(0)
        yield "B0"

    (first, second) = wrong(2, 1).problems
    assert (first.code, first.rank, second.rank) == ("not-an-op", 0, 1)
    assert first.sentence == (
        "rank 0 yields 'B0', which is not an operation: yield F(m), B(m) or W(m)"
    )
    assert str(first) == first.sentence


def test_a_function_that_forgot_to_yield():
    @schedule
    def empty(stage, stages, micro_batches):
        F(0)

    (problem,) = empty(1, 1).problems
    assert problem.sentence == ("rank 0 gets None instead of operations: yield F(m), B(m) or W(m)")


def test_a_generator_that_never_ends():
    @schedule
    def forever(stage, stages, micro_batches):
        while True:
            yield F(0)

    (problem,) = forever(1, 2).problems
    assert problem.code == "endless"
    assert problem.sentence == "rank 0 yields more than 9 operations: does its loop end?"


def test_the_longest_valid_schedule_is_not_called_endless():
    from pplab.core.ops import U

    @schedule(chunks=2)
    def longest(stage, stages, micro_batches, chunks):
        for m in range(micro_batches):
            yield from (F(m), F(m, 1), B(m, 1), W(m, 1), B(m), W(m), U(m))

    assert longest(1, 5).problems == ()


def test_schedule_of_reads_text_operations_and_a_mixture():
    plan = Schedule.of(["F0 F1 B0 B1", [F(0), "B0", F(1), Op("B", 1)]])
    assert plan.ops == ((F(0), F(1), B(0), B(1)), (F(0), B(0), F(1), B(1)))
    assert plan.micro_batches == 2
    assert Schedule.of(["F0 B0"], 3).micro_batches == 3
    with pytest.raises(ValueError, match="'X1' is not an operation"):
        Schedule.of(["F0 X1"])


@settings(deadline=None, max_examples=40)
@given(schedules())
def test_the_text_of_a_schedule_reads_back(plan):
    rows = [line.split(": ", 1)[1] for line in str(plan).splitlines()[1:]]
    layout = plan.layout
    again = Schedule.of(rows, plan.micro_batches, chunks=layout.chunks, placement=layout.placement)
    assert again == plan and hash(again) == hash(plan)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_schedules_are_equal_whatever_their_names():
    plan = gpipe(2, 1)
    assert plan == Schedule.of(["F0 B0", "F0 B0"], name="by hand")
    assert plan == one_f_one_b(2, 1)
    assert plan != gpipe(2, 2)


def test_the_text_of_a_schedule_names_what_is_wrong():
    text = str(Schedule.of(["B0 F0"], name="mine"))
    assert text.splitlines() == [
        "mine: 1 stages, 1 micro-batches",
        "rank 0: B0 F0",
        "! rank 0 runs B0 before its own F0",
    ]
    assert "2 chunks a rank" in str(Schedule.of(["F0 F0.1 B0.1 B0"], chunks=2))


def test_check_raises_every_problem_and_shows_the_first_five():
    plan = Schedule.of(["F0"], 4)
    with pytest.raises(ScheduleError, match=r"rank 0 never runs F1; .* and 2 more") as caught:
        plan.check()
    assert len(caught.value.problems) == 7
    with pytest.raises(ScheduleError):
        plan.simulate()
    with pytest.raises(ScheduleError):
        _ = plan.graph


def test_simulate_takes_costs_or_their_fields_but_not_both():
    plan = gpipe(2, 2)
    assert plan.simulate(forward=3) == plan.simulate(Costs(forward=3))
    with pytest.raises(TypeError, match="not both"):
        plan.simulate(Costs(), forward=1)


def test_splits_backward():
    assert Schedule.of(["F0 B0 W0"]).splits_backward
    assert not gpipe(2, 2).splits_backward
