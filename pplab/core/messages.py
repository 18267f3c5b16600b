"""From operations to communications: what every rank sends and receives, and when.

The author of a schedule writes F, B and W; sends and receives follow. Each dependency between two
ranks is one message. The programs made here obey one rule:

    All messages of a step stand in one order, that in which they come into being (the simulated
    end of the producing operation). Every rank does its own communications in that order.

Two things follow. Any two ranks see the messages between them in the same order, which is what
NCCL asks for. And nothing can deadlock, even if every send blocks until its receiver is there:
take the first message not yet delivered; both its ranks have finished all earlier communications,
nothing else can hold them up, so they meet. Within that order an operation's result is sent at
once, and a receive is posted as late as the order allows, but one operation before it is needed,
so that the transfer hides behind that operation. A posted receive holds a buffer; posting all of
them at the start would cost as much memory as GPipe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pplab.core.costs import Costs
from pplab.core.ops import CODE, KINDS, Op
from pplab.core.schedule import Problem
from pplab.core.simulate import times

if TYPE_CHECKING:
    from pplab.core.schedule import Schedule


class Message(NamedTuple):
    """What one operation hands to the next across ranks.

    kind F: the activation that F of slice `piece_from` makes for slice `piece_to`;
    kind B: the gradient that B of slice `piece_from` makes for slice `piece_to`.
    `source` and `target` are ranks of the pipeline. `tag` is unique within a step and depends on
    the shape of the schedule only, so that both sides agree on it.
    """

    kind: str
    micro_batch: int
    piece_from: int
    piece_to: int
    source: int
    target: int
    tag: int

    def __str__(self) -> str:
        what = "activation" if self.kind == "F" else "gradient"
        return f"{what} {self.micro_batch} from rank {self.source} to rank {self.target}"


class Send(NamedTuple):
    """Start sending; the operation that made the message has just run on this rank."""

    message: Message

    def __str__(self) -> str:
        return f"send {self.message.kind}{self.message.micro_batch} to {self.message.target}"


class Recv(NamedTuple):
    """Post the receive: hand over a buffer and go on. The wait is part of the ``Run`` it feeds."""

    message: Message

    def __str__(self) -> str:
        return f"recv {self.message.kind}{self.message.micro_batch} from {self.message.source}"


class Run(NamedTuple):
    """Run an operation, once `waits_for` has arrived (None: its input is on this rank already)."""

    op: Op
    waits_for: Message | None = None

    def __str__(self) -> str:
        return f"run {self.op}"


Instruction = Run | Send | Recv
Program = tuple[Instruction, ...]


def messages(schedule: Schedule, costs: Costs | None = None) -> tuple[Message, ...]:
    """Every message of a step, in the one order in which all ranks communicate.

    The order is that of the simulated ends of the producers under `costs` (default: F 1, B 2).
    Raises ScheduleError when the schedule cannot run.
    """
    return tuple(message for message, _, _ in _links(schedule, costs))


def programs(
    schedule: Schedule, costs: Costs | None = None, *, ahead: int = 1
) -> tuple[Program, ...]:
    """What each rank does in a step: runs, sends and receives in order; one program a rank.

    `costs` only settle the order of the messages (see ``messages``). A receive is posted `ahead`
    operations before the one that needs it: later when an earlier send stands in between,
    earlier when a later communication of the same rank comes first.
    Raises ScheduleError when the schedule cannot run.
    """
    waits_for: dict[tuple[int, int], Message] = {}
    talk: list[list[tuple[Message, bool, int]]] = [[] for _ in range(schedule.stages)]
    for message, producer, consumer in _links(schedule, costs):
        waits_for[message.target, consumer] = message
        talk[message.source].append((message, True, producer))
        talk[message.target].append((message, False, consumer))
    rows = []
    for rank, ops in enumerate(schedule.ops):
        program: list[Instruction] = []
        gaps = _gaps(talk[rank], ahead)
        for place in range(len(ops) + 1):
            program += gaps[place]
            if place < len(ops):
                program.append(Run(ops[place], waits_for.get((rank, place))))
        rows.append(tuple(program))
    return tuple(rows)


def _links(schedule: Schedule, costs: Costs | None) -> list[tuple[Message, int, int]]:
    """Messages in order, each with the place of producer and consumer in their ranks' lists."""
    graph = schedule.graph
    _, end = times(schedule, costs if costs is not None else Costs())
    lengths = [len(row) for row in schedule.ops]
    place = np.arange(len(graph.rank)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    consumers = np.flatnonzero(graph.remote)
    producers = graph.needs[consumers]
    # Operations that take no time end together: waves keep a producer before its consumer's own.
    first = np.lexsort((graph.place[producers], end[producers]))
    slices, M = schedule.layout.slices, schedule.micro_batches
    links = []
    for made, used in zip(producers[first].tolist(), consumers[first].tolist(), strict=True):
        kind, m, piece = int(graph.kind[made]), int(graph.micro_batch[made]), int(graph.piece[made])
        message = Message(
            kind=KINDS[kind],
            micro_batch=m,
            piece_from=piece,
            piece_to=int(graph.piece[used]),
            source=int(graph.rank[made]),
            target=int(graph.rank[used]),
            tag=((kind == CODE["B"]) * M + m) * slices + piece,
        )
        links.append((message, int(place[made]), int(place[used])))
    return links


def _gaps(talk: list[tuple[Message, bool, int]], ahead: int) -> dict[int, list[Instruction]]:
    """Where one rank's communications stand: gap i is the place just before its operation i.

    `talk` holds (message, is a send, place of the operation) in the common order, which the gaps
    keep. Sends are fixed: the gap after their producer. A receive takes the gap it wishes for, but
    none before an earlier send's (first pass) nor behind a later communication's (second pass).
    """
    gaps: list[int] = []
    last_send = 0
    for _, is_send, place in talk:
        if is_send:
            last_send = place + 1
        gaps.append(max(last_send, 0 if is_send else place - ahead))
    for i in reversed(range(len(gaps) - 1)):
        gaps[i] = min(gaps[i], gaps[i + 1])
    instructions: dict[int, list[Instruction]] = defaultdict(list)
    for gap, (message, is_send, _) in zip(gaps, talk, strict=True):
        instructions[gap].append(Send(message) if is_send else Recv(message))
    return instructions


def posted(program: Sequence[Instruction]) -> int:
    """Largest number of receives of a program that are posted and not yet used by a ``Run``."""
    now = peak = 0
    for step in program:
        if isinstance(step, Recv):
            now += 1
            peak = max(peak, now)
        elif isinstance(step, Run) and step.waits_for is not None:
            now -= 1
    return peak


def receipts(rows: Sequence[Program]) -> tuple[dict[Message, tuple[Message, ...]], ...]:
    """For each rank: a message it gets -> those it has sent that have arrived by then.

    A rank that sends has waited for what its operations needed until now. So its message tells the
    rank that gets it which of its own have arrived, and their memory can go: no network need be
    asked, and none blocks (gloo calls a send done only to who waits for it). Under 1F1B that holds
    as many messages as micro-batches are in flight, whatever M is. Each is named once at most;
    those after a neighbour's last message never are.
    """
    found: tuple[dict[Message, tuple[Message, ...]], ...] = tuple({} for _ in rows)
    for program in rows:
        taken: dict[int, list[Message]] = defaultdict(list)  # by sender, since a message went there
        for step in program:
            if isinstance(step, Run) and step.waits_for is not None:
                taken[step.waits_for.source].append(step.waits_for)
            elif isinstance(step, Send) and taken[step.message.target]:
                arrived = tuple(taken.pop(step.message.target))
                found[step.message.target][step.message] = arrived
    return found


# -- the order one would write first --------------------------------------------------------------


def naive_programs(schedule: Schedule) -> tuple[Program, ...]:
    """Each rank receives right before an operation and sends right after it.

    This is the order of most textbook pseudo-code. With sends that block until the receiver is
    there (gloo's and NCCL's do) it deadlocks for most schedules: see ``blocking_order_problem``.
    """
    rows: list[Program] = []
    sent = {(m.source, m.kind, m.micro_batch, m.piece_from): m for m in messages(schedule)}
    got = {(m.target, m.kind, m.micro_batch, m.piece_to): m for m in sent.values()}
    for rank, ops in enumerate(schedule.ops):
        program: list[Instruction] = []
        for op in ops:
            key = (rank, op.kind, op.micro_batch, schedule.layout.slice_of(rank, op.chunk))
            if key in got:
                program.append(Recv(got[key]))
            program.append(Run(op, got.get(key)))
            if key in sent:
                program.append(Send(sent[key]))
        rows.append(tuple(program))
    return tuple(rows)


def blocking_order_problem(schedule: Schedule) -> Problem | None:
    """Why `schedule` deadlocks when every send and receive blocks, or None when it does not.

    Takes the naive order (receive right before an operation, send right after it) and sends that
    return only once the receiver is there. The problem's `cycle` holds (rank, the operation whose
    message it is stuck on), each waiting for the next. Raises ScheduleError when the schedule is
    not valid in the first place.
    """
    stuck = _meet(naive_programs(schedule))
    if not stuck:
        return None
    rank, path = min(stuck), []
    while rank not in path:  # every stuck rank waits for another one that is stuck
        path.append(rank)
        message = stuck[rank].message
        rank = message.target if isinstance(stuck[rank], Send) else message.source
    circle = path[path.index(rank) :]
    behind = [rank for rank in stuck if rank not in circle]
    said = {rank: _stuck_in(schedule, stuck[rank]) for rank in stuck}
    text = (
        "deadlock with blocking sends: "
        + ", ".join(f"rank {rank} {said[rank][1]}" for rank in circle)
        + ": none of them returns before the other side is there"
    )
    if behind:
        text += "; behind them, " + ", ".join(f"rank {rank} {said[rank][1]}" for rank in behind)
    cycle = tuple((rank, said[rank][0]) for rank in circle)
    return Problem("blocking-deadlock", text, *cycle[0], cycle)


def _stuck_in(schedule: Schedule, step: Send | Recv) -> tuple[Op, str]:
    """The rank's own operation whose message it is stuck on, and the words for it."""
    m = step.message
    if isinstance(step, Send):
        piece, words = m.piece_from, "is sending the result of its {} to rank {}"
    else:
        piece, words = m.piece_to, "waits to receive the input of its {} from rank {}"
    op = Op(m.kind, m.micro_batch, schedule.layout.place_of(piece)[1])
    return op, words.format(op, m.target if isinstance(step, Send) else m.source)


def _meet(rows: Sequence[Program]) -> dict[int, Send | Recv]:
    """Run programs whose communications block; what each rank is stuck in, {} when all finish."""
    heads = [0] * len(rows)

    def next_talk(rank: int) -> Send | Recv | None:
        program = rows[rank]
        while heads[rank] < len(program):
            step = program[heads[rank]]
            if not isinstance(step, Run):
                return step
            heads[rank] += 1
        return None

    to_try = list(range(len(rows)))
    while to_try:
        rank = to_try.pop()
        step = next_talk(rank)
        if step is None:
            continue
        other = step.message.target if isinstance(step, Send) else step.message.source
        match = next_talk(other)
        if match is not None and match.message == step.message:
            heads[rank] += 1
            heads[other] += 1
            to_try += [rank, other]
    found = {rank: next_talk(rank) for rank in range(len(rows))}
    return {rank: step for rank, step in found.items() if step is not None}
