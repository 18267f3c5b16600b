"""How far each rank gets when every send and every receive blocks.

The order is the one most people write first: receive right before an operation, send right after
it (``naive_programs``). A send returns only once the receiver is there, so two ranks that send to
each other at the same time both wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from pplab.core.costs import Costs
from pplab.core.messages import (
    Message,
    Program,
    Recv,
    Run,
    Send,
    blocking_order_problem,
    naive_programs,
)
from pplab.core.ops import CODE, Op
from pplab.core.schedule import Schedule
from pplab.view.reach import Arrow, Ghost, Reach, timeline_of


def blocking_reach(schedule: Schedule, costs: Costs | None = None) -> Reach:
    """How far each rank gets with blocking sends; raises ScheduleError for an invalid schedule."""
    costs = costs if costs is not None else Costs()
    rows = naive_programs(schedule)
    heads, starts, ends = _meet(schedule, rows, costs)
    done = [sum(isinstance(s, Run) for s in row[:head]) for row, head in zip(rows, heads)]  # noqa: B905
    ops = [row[:count] for row, count in zip(schedule.ops, done, strict=True)]
    stuck = {r: row[head] for r, (row, head) in enumerate(zip(rows, heads)) if head < len(row)}  # noqa: B905
    problem = blocking_order_problem(schedule)
    circle = [rank for rank, _ in problem.cycle] if problem else []

    ghosts: dict[int, Ghost] = {
        rank: _ghost(schedule, rank, heads[rank], step)
        for rank, step in stuck.items()
        if not isinstance(step, Run)
    }
    arrows, sentences, more = [], [], []
    for number, rank in enumerate(circle, 1):
        step = stuck[rank]
        assert not isinstance(step, Run)
        other = step.message.target if isinstance(step, Send) else step.message.source
        place = next(i for i, s in enumerate(rows[other]) if _matches(s, step))
        answer = _ghost(schedule, other, place, rows[other][place])
        more.append(answer)
        arrows.append(Arrow(number, ghosts[rank], answer))
        sentences.append((number, f"rank {rank} {_words(schedule, step)},"))
    last = "none of them returns before the other side is there." if circle else "No rank is stuck."
    total = sum(map(len, schedule.ops))
    return Reach(
        headline="Deadlock" if circle else "Runs",
        caption=f"sends that block: {sum(done)} of {total} operations run",
        timeline=timeline_of(schedule, ops, starts, ends, costs.unit),
        ghosts=tuple(sorted({*ghosts.values(), *more}, key=lambda g: (g.rank, g.place))),
        arrows=tuple(arrows),
        notes=tuple(
            _words(schedule, stuck[rank]) if rank in stuck else "is done"
            for rank in range(schedule.stages)
        ),
        sentences=(*sentences, (None, last)),
        awaited=tuple(
            step.message.kind if isinstance(step := stuck.get(rank), Send | Recv) else ""
            for rank in range(schedule.stages)
        ),
    )


def _meet(
    schedule: Schedule, rows: Sequence[Program], costs: Costs
) -> tuple[list[int], list[float], list[float]]:
    """Run the programs: how far each gets, and starts and ends of the operations, rank by rank."""
    lasts = _durations(schedule, costs)
    heads, clocks = [0] * len(rows), [0.0] * len(rows)
    spans: list[list[tuple[float, float]]] = [[] for _ in rows]

    def talk(rank: int) -> Send | Recv | None:
        """The communication a rank comes to, after running what stands before it."""
        while heads[rank] < len(rows[rank]):
            step = rows[rank][heads[rank]]
            if not isinstance(step, Run):
                return step
            begin = clocks[rank] + (costs.overhead if spans[rank] else 0.0)
            clocks[rank] = begin + lasts[rank, step.op]
            spans[rank].append((begin, clocks[rank]))
            heads[rank] += 1
        return None

    to_try = list(range(len(rows)))
    while to_try:
        rank = to_try.pop()
        if (step := talk(rank)) is None:
            continue
        other = step.message.target if isinstance(step, Send) else step.message.source
        if (answer := talk(other)) is not None and _matches(answer, step):
            clocks[rank] = clocks[other] = max(clocks[rank], clocks[other]) + costs.message
            heads[rank] += 1
            heads[other] += 1
            to_try += [rank, other]
    flat = [span for row in spans for span in row]
    return heads, [start for start, _ in flat], [end for _, end in flat]


def _durations(schedule: Schedule, costs: Costs) -> dict[tuple[int, Op], float]:
    table = costs.table(schedule.layout.slices, schedule.micro_batches)
    updates = costs.updates(schedule.stages)
    found = {}
    for rank, row in enumerate(schedule.ops):
        split = {op[1:] for op in row if op.kind == "W"}
        for op in row:
            if op.kind == "U":
                found[rank, op] = float(updates[rank])
                continue
            at = (schedule.layout.slice_of(rank, op.chunk), op.micro_batch)
            lasts = float(table[CODE[op.kind]][at])
            if op.kind == "B" and op[1:] in split:
                lasts -= float(table[CODE["W"]][at])
            found[rank, op] = lasts
    return found


def _matches(answer: object, step: Send | Recv) -> bool:
    """True for the other side of a communication."""
    other = Recv if isinstance(step, Send) else Send
    return isinstance(answer, other) and answer.message == step.message


def _own_op(schedule: Schedule, message: Message, sends: bool) -> Op:
    piece = message.piece_from if sends else message.piece_to
    return Op(message.kind, message.micro_batch, schedule.layout.place_of(piece)[1])


def _ghost(schedule: Schedule, rank: int, place: int, step: object) -> Ghost:
    assert isinstance(step, Send | Recv)
    op = _own_op(schedule, step.message, isinstance(step, Send))
    return Ghost(rank, place, op, f"{'send' if isinstance(step, Send) else 'receive'} {op}")


def _words(schedule: Schedule, step: object) -> str:
    """What a rank is stuck in."""
    assert isinstance(step, Send | Recv)
    m, sends = step.message, isinstance(step, Send)
    op = _own_op(schedule, m, sends)
    if sends:
        return f"is sending the result of its {op} to rank {m.target}"
    return f"waits to receive the input of its {op} from rank {m.source}"
