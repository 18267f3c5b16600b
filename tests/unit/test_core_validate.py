"""Everything that can be wrong with a schedule: code, sentence, rank and operation."""

import random

import pytest
from core_strategies import needs, schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core import validate
from pplab.core.ops import B, F, Op, U
from pplab.core.schedule import Schedule

CASES = {
    "unknown-kind": (
        [[Op("S", 0), F(0), B(0)]],
        {},
        (0, Op("S", 0)),
        "rank 0 runs S0: the kinds of a schedule are F, B, W and U",
    ),
    "not-whole": (
        [[F(0), F(0.5), B(0)]],
        {"micro_batches": 1},
        (0, F(0.5)),
        "rank 0 runs F of micro-batch 0.5, chunk 0: both are counted in whole numbers",
    ),
    "micro-batch-range": (
        ["F0 B0", "F0 F2 B0"],
        {"micro_batches": 1},
        (1, F(2)),
        "rank 1 runs F2, but the micro-batches are 0 to 0",
    ),
    "chunk-range": (
        ["F0.1 B0"],
        {},
        (0, F(0, 1)),
        "rank 0 runs F0.1, but its chunks are 0 to 0",
    ),
    "duplicate": (
        ["F0 B0", "F0 B0 F0"],
        {},
        (1, F(0)),
        "rank 1 runs F0 2 times; every operation runs once a step",
    ),
    "missing": (["F0 B0", "F0"], {}, (1, B(0)), "rank 1 never runs B0"),
    "order": (["F0 B0", "B0 F0"], {}, (1, B(0)), "rank 1 runs B0 before its own F0"),
    "early-update": (
        ["F0 U B0"],
        {},
        (0, U()),
        "rank 0 runs the optimizer step U before the end of its step",
    ),
    "lost-gradient": (
        ["F0 B0 U0 F1 B1"],
        {},
        (0, U(0)),
        "rank 0 never applies the gradient of micro-batch 1: its optimizer steps end with U0",
    ),
}


@pytest.mark.parametrize("code", CASES)
def test_each_reason_has_a_code_a_sentence_and_a_place(code):
    ops, more, (rank, op), sentence = CASES[code]
    (problem,) = Schedule.of(ops, **more).problems
    assert (problem.code, problem.rank, problem.op) == (code, rank, op)
    assert problem.sentence == sentence


@pytest.mark.parametrize(
    ("ops", "sentence"),
    [
        (["F0 W0 B0"], "rank 0 runs W0 before its own B0"),
        (["F0 U0 B0"], "rank 0 runs U0 before its own B0, whose gradient it applies"),
        (["F0 B0 U0 W0"], "rank 0 runs U0 before its own W0, whose gradient it applies"),
        (["F0 F1 B1 U1 B0"], "rank 0 runs U1 before its own B0, whose gradient it applies"),
        (["F0 F0.1 B0 B0.1"], "rank 0 runs B0 before its own B0.1, whose result it takes"),
        (["F0.1 F0 B0.1 B0"], "rank 0 runs F0.1 before its own F0, whose result it takes"),
        (["F0 B0 U", "F0 B0"], "rank 1 never runs an optimizer step, but rank 0 does"),
        (["F0 B0 U0", "F0 B0"], "rank 1 never runs an optimizer step, but rank 0 does"),
        ([[F(0), B(0), U(5)]], "rank 0 runs U5, but the micro-batches are 0 to 0"),
        ([["F0"], []], "rank 0 never runs B0"),
    ],
)
def test_more_sentences(ops, sentence):
    chunks = 1 + any(".1" in row for row in ops)
    M = 1 + any("F1" in row for row in ops)
    assert Schedule.of(ops, M, chunks=chunks).problems[0].sentence == sentence


def test_several_chunks_are_checked_chunk_by_chunk():
    plan = Schedule.of(["F0 F0.1 B0.1"], chunks=2)
    assert [p.sentence for p in plan.problems] == ["rank 0 never runs B0"]


@pytest.mark.parametrize(
    "ops",
    [
        ["F0 B0 U", "F0 B0 U"],
        ["F0 B0 U0 F1 B1 U1"],
        ["F0 F1 B0 B1 U1"],  # one step for both
        ["F0 B0 W0", "F0 B0"],  # only some backward passes are split
        ["F0 B0 U0 U"],
        ["F0 F1 B1 B0"],
    ],
)
def test_nothing_is_wrong_with_these(ops):
    assert Schedule.of(ops).problems == ()


@settings(deadline=None, max_examples=60)
@given(schedules())
def test_every_order_that_can_be_executed_is_valid(plan):
    assert plan.problems == ()


def test_the_shortest_deadlock_is_told_as_a_circle():
    (problem,) = Schedule.of(["F0 B0 F1 B1", "F1 F0 B0 B1"]).problems
    assert problem.code == "deadlock"
    assert problem.cycle == ((0, B(0)), (1, B(0)), (1, F(1)), (0, F(1)))
    assert problem.sentence == (
        "deadlock: rank 0 waits in B0 for B0 of rank 1, and rank 1 runs B0 only after F1, and "
        "rank 1 waits in F1 for F1 of rank 0, and rank 0 runs F1 only after B0: each waits for "
        "the next, so none can start"
    )


@settings(deadline=None, max_examples=80)
@given(schedules(max_micro_batches=4), st.integers(0, 2**32))
def test_a_shuffled_schedule_is_valid_or_its_deadlock_is_a_real_circle(plan, seed):
    """Shuffle each rank as far as its own order allows; then ranks may wait for each other."""
    rows = tuple(
        tuple(_own_order_shuffle(row, random.Random(seed + r))) for r, row in enumerate(plan.ops)
    )
    shuffled = Schedule("shuffled", plan.micro_batches, rows, plan.layout)
    assert bool(shuffled.problems) == (not _can_run(shuffled))
    for problem in shuffled.problems:
        if problem.code == "order":  # a chunk before the one that feeds it, on the same rank
            assert problem.sentence.endswith("whose result it takes")
            continue
        assert problem.code == "deadlock"
        assert f"rank {problem.rank} " in problem.sentence
        assert len(problem.cycle) >= 2
        for (rank, op), (other, awaited) in zip(
            problem.cycle, problem.cycle[1:] + problem.cycle[:1], strict=True
        ):
            if rank == other:
                row = rows[rank]
                assert row.index(awaited) < row.index(op)
            else:
                item = (op.kind, plan.layout.slice_of(rank, op.chunk), op.micro_batch)
                piece = plan.layout.slice_of(other, awaited.chunk)
                assert (awaited.kind, piece, awaited.micro_batch) in needs(item, plan.layout.slices)


def _own_order_shuffle(row, pick):
    """A random order in which each B still follows its F and each W its B."""
    left, done, out = list(row), set(), []
    while left:
        before = {"B": "F", "W": "B"}
        ready = [op for op in left if op.kind == "F" or op._replace(kind=before[op.kind]) in done]
        op = pick.choice(ready)
        left.remove(op)
        done.add(op)
        out.append(op)
    return out


def _can_run(plan):
    at, done, moved = [0] * plan.stages, set(), True
    while moved:
        moved = False
        for rank, row in enumerate(plan.ops):
            if at[rank] < len(row):
                op = row[at[rank]]
                item = (op.kind, plan.layout.slice_of(rank, op.chunk), op.micro_batch)
                if needs(item, plan.layout.slices) <= done:
                    done.add(item)
                    at[rank] += 1
                    moved = True
    return at == [len(row) for row in plan.ops]


@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_the_quick_look_never_overlooks_what_the_thorough_one_finds(
    stages: int, micro_batches: int, data: st.DataObject
) -> None:
    """``_plainly_right`` only spares the slow checks when they would find nothing."""
    ops = st.builds(
        Op, st.sampled_from("FBWFB"), st.integers(-1, micro_batches), st.sampled_from([0, 0, 0, 1])
    )
    rows = []
    for _ in range(stages):
        right = [Op(kind, m) for kind in "FB" for m in range(micro_batches)]
        row = data.draw(st.permutations(right)) if data.draw(st.booleans()) else right
        if data.draw(st.booleans()):
            row = [*row, data.draw(ops)]
        rows.append(row)
    schedule = Schedule.of(rows, micro_batches)
    slow = [
        problem
        for check in (validate._ranges, validate._once_each, validate._own_order)
        for problem in check(schedule)
    ]
    if validate._plainly_right(schedule):
        assert slow == []
    elif not slow:
        assert any(op.kind not in "FBW" for row in rows for op in row) or schedule.chunks > 1
