"""How far the ranks of a broken schedule get, held to a slow and simple account of the same."""

import random
from dataclasses import replace

import pytest
from core_strategies import schedules
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.costs import Costs
from pplab.core.messages import blocking_order_problem
from pplab.core.ops import Op
from pplab.core.schedule import Schedule, ScheduleError, schedule
from pplab.core.schedules import SCHEDULES, gpipe, one_f_one_b, zb_h1
from pplab.view.blocking import blocking_reach
from pplab.view.reach import reach

CROSSED = Schedule.of(["F0 B0 F1 B1", "F0 F1 B0 B1"], name="mine")


def mutated(plan: Schedule, seed: int) -> Schedule:
    """The schedule with one to three slips of the pen."""
    pick = random.Random(seed)
    rows = [list(row) for row in plan.ops]
    for _ in range(pick.randint(1, 3)):
        row = pick.choice(rows)
        if not row:
            continue
        i, j = pick.randrange(len(row)), pick.randrange(len(row))
        slip = pick.choice(["swap", "drop", "twice", "other"])
        if slip == "swap":
            row[i], row[j] = row[j], row[i]
        elif slip == "drop":
            del row[i]
        elif slip == "twice":
            row.insert(j, row[i])
        else:
            row[i] = Op(row[i].kind, plan.micro_batches, row[i].chunk)
    return replace(plan, ops=tuple(map(tuple, rows)))


def slow_account(plan: Schedule) -> list[int]:
    """Operations each rank can run: every rank again and again, until nothing moves."""
    layout, done = plan.layout, set()
    heads = [0] * plan.stages
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(plan.ops):
            if heads[rank] == len(row):
                continue
            op = row[heads[rank]]
            piece = layout.slice_of(rank, op.chunk)
            kind, m = op.kind, op.micro_batch
            before = {"B": ("F", piece, m), "W": ("B", piece, m)}.get(kind)
            source = piece + {"F": -1, "B": 1}.get(kind, 0)
            outside = kind == "W" or not 0 <= source < layout.slices
            if (
                m < plan.micro_batches
                and (kind, piece, m) not in done
                and (before is None or before in done)
                and (outside or (kind, source, m) in done)
            ):
                done.add((kind, piece, m))
                heads[rank] += 1
                moved = True
    return heads


@given(schedules(), st.integers(0, 2**32))
def test_a_broken_schedule_runs_as_far_as_it_can(plan: Schedule, seed: int) -> None:
    broken = mutated(plan, seed)
    found = reach(broken)
    ran = [int((found.timeline.rank == rank).sum()) for rank in range(broken.stages)]
    assert ran == slow_account(broken)
    for rank, count in enumerate(ran):
        stands = [g for g in found.ghosts if g.rank == rank]
        assert bool(stands) == (count < len(broken.ops[rank]))
        assert all(g.op == broken.ops[rank][g.place] and g.place >= count for g in stands)
        if stands:
            assert stands[0].place == count, "the first ghost is what the rank stands before"
    assert found.stuck == bool(broken.problems)


@given(schedules())
def test_a_valid_schedule_runs_to_its_end_as_simulated(plan: Schedule) -> None:
    found = reach(plan, Costs(1, 3, 1, latency=0.25))
    assert not found.stuck and not found.ghosts and set(found.notes) == {"is done"}
    assert found.timeline == plan.simulate(Costs(1, 3, 1, latency=0.25))


@given(schedules(), st.integers(0, 2**32))
def test_the_arrows_of_a_deadlock_are_its_circle(plan: Schedule, seed: int) -> None:
    broken = mutated(plan, seed)
    found = reach(broken)
    cycle = broken.problems[0].cycle if broken.problems else ()
    pairs = zip(cycle, cycle[1:] + cycle[:1], strict=True)
    across = [(a, b) for a, b in pairs if a[0] != b[0]]
    arrows = [((a.start.rank, a.start.op), (a.end.rank, a.end.op)) for a in found.arrows]
    assert arrows == across
    assert [a.number for a in found.arrows] == list(range(1, len(across) + 1))
    assert [n for n, _ in found.sentences if n] == [a.number for a in found.arrows]


def test_a_deadlock_in_words() -> None:
    found = reach(CROSSED)
    assert found.text().splitlines() == [
        "Deadlock: 2 of 8 operations run.",
        "1. rank 0 waits in B0 for B0 of rank 1,",
        "rank 1 runs B0 only after F1,",
        "2. rank 1 waits in F1 for F1 of rank 0,",
        "rank 0 runs F1 only after B0,",
        "each waits for the next, so none can start.",
        "rank 0 runs 1 operation, then waits for B0 of rank 1",
        "rank 1 runs 1 operation, then waits for F1 of rank 0",
    ]
    assert found.awaited == ("B", "F") and found.briefs() == ["", ""]
    assert [(g.label, column, left) for g, column, left in found.columns()] == [
        ("B0", 0, 0), ("F1", 1, 0), ("F1", 0, 0), ("B0", 1, 0),
    ]  # fmt: skip


def test_operations_between_two_ghosts_are_counted() -> None:
    rows = [list(row) for row in one_f_one_b(4, 8).ops]
    rows[0] = [Op(kind, m) for m in range(8) for kind in "FB"]
    found = reach(Schedule.of(rows))
    between = {(g.rank, g.label): left for g, _, left in found.columns()}
    assert between[1, "B0"] == 1, "rank 1 stands before F1, then F2, then B0"
    assert found.briefs()[3] == "waits for F1 of rank 2", "rank 3 is behind the circle"


def test_what_is_wrong_stops_its_rank_and_then_the_others() -> None:
    found = reach(Schedule.of(["F0 F1 B1 B0", "B0 F0 F1 B1"]))
    assert found.headline == "Cannot run"
    assert found.sentences == ((None, "rank 1 runs B0 before its own F0."),)
    assert [g.wrong for g in found.ghosts] == [False, True]
    assert found.briefs() == ["waits for B1 of rank 1", "before its own F0"]


def test_an_operation_that_never_comes_is_said() -> None:
    found = reach(Schedule.of(["F0 F1 B1 B0", "F0 B0"], 2))
    assert found.notes[0] == "waits for B1 of rank 1, which never runs it"
    assert found.notes[1] == "is done"


def test_gradients_that_are_lost_stop_nothing() -> None:
    found = reach(Schedule.of(["F0 B0 U0 F1 B1"], 2))
    assert found.headline == "Not valid" and found.caption == "5 of 5 operations run"
    assert "never applies the gradient of micro-batch 1" in found.text()


def test_a_generator_that_yields_something_else() -> None:
    @schedule(name="mine")
    def mine(stage, stages, micro_batches):
        yield Op("F", 0)
        yield "x"

    found = reach(mine(2, 1))
    assert found.notes == ("stops: rank 0 yields 'x', which is not an operation",
                           "stops: rank 1 yields 'x', which is not an operation")  # fmt: skip
    assert len(found.timeline) == 2


def test_split_backwards_keep_their_length_when_their_w_is_never_reached() -> None:
    rows = [list(row) for row in zb_h1(2, 4).ops]
    rows[1].remove(Op("F", 3))  # so that the last W's are never reached
    found = reach(Schedule.of(rows, 4))
    t = found.timeline
    assert set((t.end - t.start)[t.is_kind("B")].tolist()) == {1.0}


@pytest.mark.parametrize("name", SCHEDULES)
def test_blocking_sends_stop_where_the_core_says(name: str) -> None:
    plan = SCHEDULES[name](4, 8)
    found, problem = blocking_reach(plan), blocking_order_problem(plan)
    assert found.stuck == (problem is not None)
    if problem:
        starts = tuple((a.start.rank, a.start.op) for a in found.arrows)
        assert starts == problem.cycle
        for arrow in found.arrows:  # a send leads to its receive, and the other way round
            words = {arrow.start.label.split()[0], arrow.end.label.split()[0]}
            assert words == {"send", "receive"}
        said = [text for number, text in found.sentences if number]
        assert all(text.rstrip(",") in problem.sentence for text in said)
    else:
        assert len(found.timeline) == sum(map(len, plan.ops))


def test_without_a_deadlock_blocking_sends_cost_nothing_when_messages_are_free() -> None:
    plan = gpipe(3, 4)
    assert blocking_reach(plan).timeline.step_time >= plan.simulate().step_time
    assert blocking_reach(gpipe(1, 4)).timeline == gpipe(1, 4).simulate()


def test_blocking_asks_for_a_schedule_that_could_run() -> None:
    with pytest.raises(ScheduleError):
        blocking_reach(CROSSED)
