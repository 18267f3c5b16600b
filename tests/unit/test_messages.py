"""Messages: for any valid schedule, communications that pair up, cannot deadlock and stay few."""

from collections import defaultdict

import pytest
from core_strategies import needs, schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.costs import Costs
from pplab.core.messages import (
    Recv,
    Run,
    Send,
    blocking_order_problem,
    messages,
    naive_programs,
    posted,
    programs,
    receipts,
)
from pplab.core.ops import B, F
from pplab.core.schedule import Schedule, ScheduleError
from pplab.core.schedules import gpipe, one_f_one_b

several = settings(deadline=None, max_examples=60)
orders = st.sampled_from(
    [None, Costs(1, 1), Costs(0, 0), Costs(forward=3, backward=1), Costs(latency=5)]
)


def meet(rows):
    """Execute programs with sends and receives that both block; the places where each stops.

    Written apart from the library: one step at a time, any rank that can go on goes on.
    """
    at = [0] * len(rows)

    def head(rank):
        return rows[rank][at[rank]] if at[rank] < len(rows[rank]) else None

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            step = head(rank)
            if isinstance(step, Run):
                at[rank] += 1
                moved = True
            elif isinstance(step, Send) and head(step.message.target) == Recv(step.message):
                at[rank] += 1
                at[step.message.target] += 1
                moved = True
    return at


@several
@given(schedules(), orders, st.integers(0, 3))
def test_two_ranks_see_their_messages_in_the_same_order(plan, costs, ahead):
    seen = defaultdict(list)
    for rank, program in enumerate(programs(plan, costs, ahead=ahead)):
        for step in program:
            if not isinstance(step, Run):
                m = step.message
                assert rank == (m.source if isinstance(step, Send) else m.target)
                seen[rank, m.source + m.target - rank].append(m)
    for (rank, other), order in seen.items():
        assert seen[other, rank] == order


@several
@given(schedules(), orders, st.integers(0, 3))
def test_nothing_deadlocks_even_when_every_send_and_receive_blocks(plan, costs, ahead):
    rows = programs(plan, costs, ahead=ahead)
    assert meet(rows) == [len(row) for row in rows]


@several
@given(schedules(), orders, st.integers(0, 3))
def test_a_receipt_names_what_the_other_rank_has_waited_for_before(plan, costs, ahead):
    rows = programs(plan, costs, ahead=ahead)
    for rank, known in enumerate(receipts(rows)):
        named = [message for arrived in known.values() for message in arrived]
        assert len(named) == len(set(named))
        for answer, arrived in known.items():
            assert answer.target == rank
            program = rows[answer.source]
            before = program[: program.index(Send(answer))]
            taken = {step.waits_for for step in before if isinstance(step, Run)}
            assert {(m.source, m.target) for m in arrived} == {(rank, answer.source)}
            assert taken.issuperset(arrived)


def kept(plan):
    """Most messages a rank has sent and not yet got a receipt for, by rank."""
    rows, peaks = programs(plan), []
    for program, known in zip(rows, receipts(rows), strict=True):
        now = peak = 0
        for step in program:
            if isinstance(step, Send):
                now += 1
                peak = max(peak, now)
            elif isinstance(step, Run) and step.waits_for is not None:
                now -= len(known.get(step.waits_for, ()))
        peaks.append(peak)
    return peaks


@pytest.mark.parametrize("stages", [2, 4, 7])
def test_under_1f1b_no_more_messages_are_kept_when_there_are_more_micro_batches(stages):
    few, many = kept(one_f_one_b(stages, 4 * stages)), kept(one_f_one_b(stages, 16 * stages))
    assert few == many and max(many) <= 2 * stages
    assert max(kept(gpipe(stages, 4 * stages))) >= 4 * stages


@several
@given(schedules())
def test_one_message_for_each_dependency_between_ranks_and_none_within(plan):
    layout = plan.layout
    expected = set()
    for rank, row in enumerate(plan.ops):
        for op in row:
            mine = layout.slice_of(rank, op.chunk)
            for kind, piece, m in needs((op.kind, mine, op.micro_batch), layout.slices):
                source, _ = layout.place_of(piece)
                if source != rank:
                    assert kind == op.kind
                    expected.add((kind, m, piece, mine, source, rank))
    found = [m[:-1] for m in messages(plan)]
    assert len(found) == len(set(found))
    assert set(found) == expected


@several
@given(schedules(), orders, st.integers(0, 3))
def test_programs_run_the_schedule_send_at_once_and_receive_before_use(plan, costs, ahead):
    for rank, program in enumerate(programs(plan, costs, ahead=ahead)):
        assert tuple(s.op for s in program if isinstance(s, Run)) == plan.ops[rank]
        last_run, arriving = None, set()
        for step in program:
            if isinstance(step, Run):
                last_run = step.op
                if step.waits_for is not None:
                    m = step.waits_for
                    assert (m.kind, m.micro_batch) == step.op[:2]
                    assert m.piece_to == plan.layout.slice_of(rank, step.op.chunk)
                    arriving.remove(m)
            elif isinstance(step, Recv):
                arriving.add(step.message)
            else:  # a result leaves before anything else runs
                m = step.message
                assert last_run is not None
                assert (m.kind, m.micro_batch) == last_run[:2]
                assert m.piece_from == plan.layout.slice_of(rank, last_run.chunk)
        assert not arriving


@several
@given(schedules(), orders)
def test_tags_are_unique_and_do_not_depend_on_costs(plan, costs):
    by_tag = {m.tag: m for m in messages(plan)}
    assert len(by_tag) == len(messages(plan))
    assert {m.tag: m for m in messages(plan, costs)} == by_tag


@pytest.mark.parametrize("maker", [gpipe, one_f_one_b], ids=lambda maker: maker.name)
@several
@given(stages=st.integers(1, 8), micro_batches=st.integers(1, 16))
def test_at_most_two_receives_wait_at_once(maker, stages, micro_batches):
    for program in programs(maker(stages, micro_batches)):
        assert posted(program) <= 2


@several
@given(schedules(), orders, st.integers(0, 3))
def test_a_receive_is_early_only_when_the_next_communication_forces_it(plan, costs, ahead):
    for program in programs(plan, costs, ahead=ahead):
        use = {s.waits_for: at for at, s in enumerate(program) if isinstance(s, Run)}
        for at, step in enumerate(program[:-1]):
            if isinstance(step, Recv):
                between = sum(isinstance(s, Run) for s in program[at : use[step.message]])
                assert between <= ahead or not isinstance(program[at + 1], Run)


def test_a_receive_is_posted_one_operation_before_its_use():
    def rank1(ahead):
        return ", ".join(map(str, programs(one_f_one_b(2, 3), ahead=ahead)[1]))

    assert rank1(ahead=1) == (
        "recv F0 from 0, run F0, recv F1 from 0, run B0, send B0 to 0, run F1, "
        "recv F2 from 0, run B1, send B1 to 0, run F2, run B2, send B2 to 0"
    )
    # F1 was made before B0, so its receive cannot move behind the send of B0
    assert rank1(ahead=0) == (
        "recv F0 from 0, run F0, run B0, recv F1 from 0, send B0 to 0, run F1, "
        "run B1, recv F2 from 0, send B1 to 0, run F2, run B2, send B2 to 0"
    )


def test_operations_that_take_no_time_keep_producer_before_consumer():
    order = [str(m) for m in messages(one_f_one_b(3, 1), Costs(forward=0, backward=0))]
    assert order == [
        "activation 0 from rank 0 to rank 1",
        "activation 0 from rank 1 to rank 2",
        "gradient 0 from rank 2 to rank 1",
        "gradient 0 from rank 1 to rank 0",
    ]


def test_a_v_hands_over_within_the_rank_at_its_turn_and_at_one_rank_says_nothing():
    turn = Schedule.of(["F0 F0.1 B0.1 B0", "F0 F0.1 B0.1 B0"], chunks=2, placement="v")
    links = [(m.kind, m.piece_from, m.piece_to) for m in messages(turn)]
    assert links == [("F", 0, 1), ("F", 2, 3), ("B", 3, 2), ("B", 1, 0)]
    assert messages(one_f_one_b(1, 4)) == ()


def test_an_invalid_schedule_has_no_programs():
    with pytest.raises(ScheduleError, match="rank 0 runs B0 before its own F0"):
        programs(Schedule.of(["B0 F0"]))


# -- the naive order ------------------------------------------------------------------------------


@several
@given(schedules())
def test_the_naive_order_is_reported_exactly_when_it_deadlocks(plan):
    rows = naive_programs(plan)
    stops = meet(rows)
    problem = blocking_order_problem(plan)
    assert (problem is None) == (stops == [len(row) for row in rows])
    if problem is not None:
        circle = dict(problem.cycle)
        for rank, op in problem.cycle:  # each is stuck in that very message, with the next in line
            m = rows[rank][stops[rank]].message
            assert op.kind == m.kind and op.micro_batch == m.micro_batch
            assert m.source + m.target - rank in circle
            assert f"rank {rank} " in problem.sentence and str(op) in problem.sentence


def test_megatron_order_1f1b_deadlocks_with_blocking_sends():
    """What was seen on the real engine: facts.md (b), stages 0 to 3 in F3, F2, F1 and B0."""
    problem = blocking_order_problem(one_f_one_b(4, 8))
    assert problem.code == "blocking-deadlock"
    assert problem.cycle == ((2, F(1)), (3, B(0)))
    assert problem.sentence == (
        "deadlock with blocking sends: rank 2 is sending the result of its F1 to rank 3, "
        "rank 3 is sending the result of its B0 to rank 2: none of them returns before the other "
        "side is there; behind them, rank 0 is sending the result of its F3 to rank 1, "
        "rank 1 is sending the result of its F2 to rank 2"
    )
    stops = meet(naive_programs(one_f_one_b(4, 8)))
    stuck = [row[at] for row, at in zip(naive_programs(one_f_one_b(4, 8)), stops, strict=True)]
    assert [(s.message.kind, s.message.micro_batch) for s in stuck] == [
        ("F", 3),
        ("F", 2),
        ("F", 1),
        ("B", 0),
    ]


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
def test_gpipe_does_not_deadlock_with_blocking_sends(stages):
    assert blocking_order_problem(gpipe(stages, 8)) is None


def test_one_micro_batch_at_a_time_does_not_deadlock():
    assert blocking_order_problem(one_f_one_b(4, 1)) is None
