"""How far each rank gets when every send and every receive blocks.

The order is the one most people write first: receive right before an operation, send right after
it (``naive_programs``). A send returns only once the receiver is there, so two ranks that send to
each other at the same time both wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from pplab.core.costs import Costs
from pplab.core.messages import (
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

Talk = Send | Recv


def blocking_reach(schedule: Schedule, costs: Costs | None = None) -> Reach:
    """How far each rank gets with blocking sends; raises ScheduleError for an invalid schedule."""
    costs = costs if costs is not None else Costs()
    rows = naive_programs(schedule)
    heads, starts, ends = _meet(schedule, rows, costs)
    stuck: dict[int, Talk] = {}
    for rank, (row, head) in enumerate(zip(rows, heads, strict=True)):
        if head < len(row) and not isinstance(step := row[head], Run):
            stuck[rank] = step
    problem = blocking_order_problem(schedule)
    circle = [rank for rank, _ in problem.cycle] if problem else []

    ghosts = {rank: _ghost(schedule, rank, heads[rank], step) for rank, step in stuck.items()}
    arrows = []
    for number, rank in enumerate(circle, 1):
        other = _other_side(stuck[rank])
        place = next(i for i, step in enumerate(rows[other]) if _matches(step, stuck[rank]))
        answer = _ghost(schedule, other, place, _answer(stuck[rank]))
        arrows.append(Arrow(number, ghosts[rank], answer))
    everyone = {*ghosts.values(), *(arrow.end for arrow in arrows)}
    said = {rank: _words(schedule, step) for rank, step in stuck.items()}
    sentences: list[tuple[int | None, str]] = [
        (number, f"rank {rank} {said[rank]},") for number, rank in enumerate(circle, 1)
    ]
    last = "none of them returns before the other side is there." if circle else "No rank is stuck."
    done = [sum(isinstance(step, Run) for step in row[: heads[r]]) for r, row in enumerate(rows)]
    ran = [row[:count] for row, count in zip(schedule.ops, done, strict=True)]
    total = sum(map(len, schedule.ops))
    ranks = range(schedule.stages)
    return Reach(
        headline="Deadlock" if circle else "Runs",
        caption=f"sends that block: {sum(done)} of {total} operations run",
        timeline=timeline_of(schedule, ran, starts, ends, costs.unit),
        ghosts=tuple(sorted(everyone, key=lambda ghost: (ghost.rank, ghost.place))),
        arrows=tuple(arrows),
        notes=tuple(said.get(rank, "is done") for rank in ranks),
        sentences=(*sentences, (None, last)),
        awaited=tuple(stuck[rank].message.kind if rank in stuck else "" for rank in ranks),
    )


def _meet(
    schedule: Schedule, rows: Sequence[Program], costs: Costs
) -> tuple[list[int], list[float], list[float]]:
    """Run the programs: how far each gets, and starts and ends of the operations, rank by rank."""
    lasts = _durations(schedule, costs)
    messages = costs.messages(schedule.layout.slices).tolist()
    heads, clocks = [0] * len(rows), [0.0] * len(rows)
    spans: list[list[tuple[float, float]]] = [[] for _ in rows]

    def talk(rank: int) -> Talk | None:
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
        other = _other_side(step)
        if _matches(talk(other), step):
            takes = messages[min(step.message.piece_from, step.message.piece_to)]
            clocks[rank] = clocks[other] = max(clocks[rank], clocks[other]) + takes
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


def _other_side(step: Talk) -> int:
    """The rank at the other end of a communication."""
    return step.message.target if isinstance(step, Send) else step.message.source


def _answer(step: Talk) -> Talk:
    """What the other side does for it."""
    return Recv(step.message) if isinstance(step, Send) else Send(step.message)


def _matches(step: object, awaited: Talk) -> bool:
    return type(step) is type(_answer(awaited)) and step == _answer(awaited)


def _own_op(schedule: Schedule, step: Talk) -> Op:
    """The operation whose result is sent, or whose input is received."""
    m = step.message
    piece = m.piece_from if isinstance(step, Send) else m.piece_to
    return Op(m.kind, m.micro_batch, schedule.layout.place_of(piece)[1])


def _ghost(schedule: Schedule, rank: int, place: int, step: Talk) -> Ghost:
    op = _own_op(schedule, step)
    return Ghost(rank, place, op, f"{'send' if isinstance(step, Send) else 'receive'} {op}")


def _words(schedule: Schedule, step: Talk) -> str:
    """What a rank is stuck in."""
    op, other = _own_op(schedule, step), _other_side(step)
    if isinstance(step, Send):
        return f"is sending the result of its {op} to rank {other}"
    return f"waits to receive the input of its {op} from rank {other}"
