"""What can be wrong with a schedule, each as a code and a sentence a learner can act on.

The checks run from the plain to the subtle, and a later group runs only when the earlier ones
found nothing, so that one slip of the pen gives one sentence: numbers out of range; an operation
missing or run twice; an order a rank breaks by itself; a deadlock between ranks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pplab.core.ops import WHOLE_STEP, Op

if TYPE_CHECKING:
    from pplab.core.schedule import Problem, Schedule


def validate(schedule: Schedule) -> tuple[Problem, ...]:
    """Everything that keeps `schedule` from running, or () when it can run."""
    for check in (_ranges, _once_each, _own_order, _deadlock):
        problems = check(schedule)
        if problems:
            return tuple(problems)
    return ()


def _problem(code: str, sentence: str, rank: int, op: Op, **more: tuple) -> Problem:
    from pplab.core.schedule import Problem

    return Problem(code, sentence, rank, op, **more)


def _ranges(schedule: Schedule) -> list[Problem]:
    found = []
    last_micro_batch, last_chunk = schedule.micro_batches - 1, schedule.chunks - 1
    for rank, row in enumerate(schedule.ops):
        for op in row:
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
            if before:
                needed = Op(before, op.micro_batch, op.chunk)
                if needed not in done:
                    text = f"rank {rank} runs {op} before its own {needed}"
                    found.append(_problem("order", text, rank, op))
            elif op.kind == "U" and op.micro_batch == WHOLE_STEP and op is not row[-1]:
                text = f"rank {rank} runs the optimizer step U before the end of its step"
                found.append(_problem("early-update", text, rank, op))
            done.add(op)
    return found


def _deadlock(schedule: Schedule) -> list[Problem]:
    from pplab.core.graph import Graph

    graph = Graph.of(schedule)
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
