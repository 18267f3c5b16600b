"""What can be wrong with a schedule, each as a code and a sentence a learner can act on.

The checks run from the plain to the subtle, and a later group runs only when the earlier ones
found nothing, so that one slip of the pen gives one sentence: numbers out of range; an operation
missing or run twice; an order a rank breaks by itself; gradients applied too early or never; a
deadlock between ranks.
"""

from __future__ import annotations

from collections import Counter
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from pplab.core.ops import WHOLE_STEP, Op, U

if TYPE_CHECKING:
    from pplab.core.schedule import Problem, Schedule


def validate(schedule: Schedule) -> tuple[Problem, ...]:
    """Everything that keeps `schedule` from running, or () when it can run."""
    checks = (_ranges, _once_each, _own_order, _updates, _deadlock)
    for check in checks[-1:] if _plainly_right(schedule) else checks:
        problems = check(schedule)
        if problems:
            return tuple(problems)
    return ()


def _plainly_right(schedule: Schedule) -> bool:
    """True when the ranks' own orders are right for sure, found with arrays: most schedules are,
    and only the others need a sentence. False says nothing."""
    M = schedule.micro_batches
    if schedule.chunks > 1:
        return False
    for row in schedule.ops:
        if not row:
            return False
        kinds, numbers, chunks = zip(*row, strict=True)
        if not set(kinds) <= {"F", "B", "W"} or set(map(type, numbers + chunks)) != {int}:
            return False
        m = np.array(numbers)
        if m.min() < 0 or m.max() >= M or any(chunks):
            return False
        letter = np.frombuffer("".join(kinds).encode(), dtype=np.uint8)
        place = np.full((3, M), -1)
        for i, kind in enumerate(b"FBW"):
            mine = letter == kind
            place[i, m[mine]] = np.flatnonzero(mine)
        forward, backward, weight = place
        if np.count_nonzero(place >= 0) != len(row):  # some operation comes twice
            return False
        if forward.min() < 0 or np.any(backward <= forward):
            return False
        if np.any((weight >= 0) & (weight <= backward)):
            return False
    return True


def _problem(code: str, sentence: str, rank: int, op: Op, **more: tuple) -> Problem:
    from pplab.core.schedule import Problem

    return Problem(code, sentence, rank, op, **more)


def _ranges(schedule: Schedule) -> list[Problem]:
    found = []
    last_micro_batch, last_chunk = schedule.micro_batches - 1, schedule.chunks - 1
    for rank, row in enumerate(schedule.ops):
        for op in row:
            if not (isinstance(op.micro_batch, Integral) and isinstance(op.chunk, Integral)):
                text = (
                    f"rank {rank} runs {op.kind} of micro-batch {op.micro_batch!r}, chunk "
                    f"{op.chunk!r}: both are counted in whole numbers"
                )
                found.append(_problem("not-whole", text, rank, op))
                continue
            if op.kind == "U":
                inside = WHOLE_STEP <= op.micro_batch <= last_micro_batch
            else:
                inside = 0 <= op.micro_batch <= last_micro_batch
            if op.kind not in "FBWU":
                text = f"rank {rank} runs {op}: the kinds of a schedule are F, B, W and U"
                found.append(_problem("unknown-kind", text, rank, op))
            elif not inside:
                text = f"rank {rank} runs {op}, but the micro-batches are 0 to {last_micro_batch}"
                found.append(_problem("micro-batch-range", text, rank, op))
            elif not 0 <= op.chunk <= last_chunk:
                text = f"rank {rank} runs {op}, but its chunks are 0 to {last_chunk}"
                found.append(_problem("chunk-range", text, rank, op))
    return found


def _once_each(schedule: Schedule) -> list[Problem]:
    found = []
    for rank, row in enumerate(schedule.ops):
        count = Counter(row)
        for op, times in count.items():
            if times > 1:
                text = f"rank {rank} runs {op} {times} times; every operation runs once a step"
                found.append(_problem("duplicate", text, rank, op))
        for chunk in range(schedule.chunks):
            for kind in "FB":
                for m in range(schedule.micro_batches):
                    op = Op(kind, m, chunk)
                    if not count[op]:
                        text = f"rank {rank} never runs {op}"
                        found.append(_problem("missing", text, rank, op))
    return found


def _own_order(schedule: Schedule) -> list[Problem]:
    found = []
    for rank, row in enumerate(schedule.ops):
        done: set[Op] = set()
        for op in row:
            before = {"B": "F", "W": "B"}.get(op.kind)
            maker = _maker_on_same_rank(schedule, rank, op)
            if before and (needed := Op(before, op.micro_batch, op.chunk)) not in done:
                text = f"rank {rank} runs {op} before its own {needed}"
                found.append(_problem("order", text, rank, op))
            elif maker and maker not in done:
                text = f"rank {rank} runs {op} before its own {maker}, whose result it takes"
                found.append(_problem("order", text, rank, op))
            elif op.kind == "U" and op.micro_batch == WHOLE_STEP and op is not row[-1]:
                text = f"rank {rank} runs the optimizer step U before the end of its step"
                found.append(_problem("early-update", text, rank, op))
            done.add(op)
    return found


def _maker_on_same_rank(schedule: Schedule, rank: int, op: Op) -> Op | None:
    """The operation of another chunk that makes the input of `op`, when the rank runs it itself."""
    layout = schedule.layout
    if op.kind not in "FB" or layout.chunks == 1:
        return None
    piece = layout.slice_of(rank, op.chunk) + (-1 if op.kind == "F" else 1)
    if not 0 <= piece < layout.slices or layout.place_of(piece)[0] != rank:
        return None
    return Op(op.kind, op.micro_batch, layout.place_of(piece)[1])


def _updates(schedule: Schedule) -> list[Problem]:
    """U(m) applies the gradients up to micro-batch m: they must exist, and none may be lost."""
    found = []
    updating = [rank for rank, row in enumerate(schedule.ops) if any(op.kind == "U" for op in row)]
    for rank, row in enumerate(schedule.ops):
        last = {op[1:]: op for op in row if op.kind in "BW"}  # W follows B where there is one
        open_ = set(last.values())
        for op in row:
            open_.discard(op)
            if op.kind != "U":
                continue
            early = [o for o in open_ if o.micro_batch <= op.micro_batch]
            if early:
                first = min(early, key=lambda o: (o.micro_batch, o.chunk))
                text = f"rank {rank} runs {op} before its own {first}, whose gradient it applies"
                found.append(_problem("order", text, rank, op))
        updates = [op for op in row if op.kind == "U"]
        covered = max((op.micro_batch for op in updates), default=WHOLE_STEP)
        if updates and U() not in updates and covered < schedule.micro_batches - 1:
            text = (
                f"rank {rank} never applies the gradient of micro-batch {covered + 1}: "
                f"its optimizer steps end with U{covered}"
            )
            found.append(_problem("lost-gradient", text, rank, Op("U", covered)))
        if updating and not updates:
            text = f"rank {rank} never runs an optimizer step, but rank {updating[0]} does"
            found.append(_problem("missing", text, rank, U()))
    return found


def _deadlock(schedule: Schedule) -> list[Problem]:
    graph = schedule.unchecked_graph
    if graph.complete:
        return []
    cycle = graph.cycle()
    steps = []
    for (rank, op), (other, awaited) in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        if rank == other:
            steps.append(f"rank {rank} runs {op} only after {awaited}")
        else:
            steps.append(f"rank {rank} waits in {op} for {awaited} of rank {other}")
    text = "deadlock: " + ", and ".join(steps) + ": each waits for the next, so none can start"
    rank, op = cycle[0]
    return [_problem("deadlock", text, rank, op, cycle=tuple(cycle))]
