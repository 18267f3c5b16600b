"""The program of a rank, made ready to run: one object an instruction, called in every step.

A paced or waiting rank sleeps, and what it runs when it wakes up it fetches from memory, line by
line: every function that is called between two operations shows in the timeline. So what does not
change from one step to the next (buffers, neighbours, tags, the words of a status) is worked out
here once, and a call does what is left.

In the order of the schedule:

- ``Post``: hand a buffer to the network for a message that will be needed soon;
- ``Do``: an operation: load, wait for its message, run it, send what it made; and only then, when
  nobody waits any more, note when it all was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from pplab.core.messages import Message, Recv, Run, Send
from pplab.runtime.mail import Outgoing, as_list, gradients_of, in_words
from pplab.runtime.ranges import Unnamed
from pplab.runtime.status import encoded

if TYPE_CHECKING:
    from pplab.core.ops import Op
    from pplab.runtime.engine import ScheduledEngine

Order = Callable[[], None]


def orders(engine: ScheduledEngine) -> list[Order]:
    """What `engine` does in a step, in order; made once its mail and its faults are there."""
    found: list[Order] = []
    for instruction in engine.program:
        match instruction:
            case Recv(message):
                found.append(Post(engine, message))
            case Run(op, _) if op.kind == "U" and engine.updates_at_the_end:
                continue  # a plan may end with U or leave it out: see ``finish_step``
            case Run(op, awaited):
                last = Do(engine, op, awaited)
                found.append(last)
            case Send(message):  # of what the last operation made
                last.sends.append(Dispatch(engine, message))
    return found


class Post:
    """Get ready for a message."""

    def __init__(self, engine: ScheduledEngine, message: Message) -> None:
        self.incoming = engine.mail.incoming(message)
        self.outputs = engine.pipe_buffers["outputs"]
        self.at = None
        if message.kind == "B":
            self.at = engine.buffer(message.micro_batch, message.piece_to)

    def __call__(self) -> None:
        if self.incoming.link.expected is None and self.at is not None:
            outputs = as_list(self.outputs[self.at])
            self.incoming.post([t for t in outputs if t.is_floating_point()])
        else:
            self.incoming.post()


class Dispatch:
    """Send what an operation has just made; part of its ``Do``."""

    def __init__(self, engine: ScheduledEngine, message: Message) -> None:
        self.message, self.outgoing = message, Outgoing(engine.mail, message)
        self.at = engine.buffer(message.micro_batch, message.piece_from)
        self.inputs, self.outputs = (engine.pipe_buffers[name] for name in ("inputs", "outputs"))
        chunk = engine.pieces.index(message.piece_from)
        self.send = named(engine.named, ("S", message.micro_batch, chunk), self.outgoing.send)

    def __call__(self) -> None:
        if self.message.kind == "F":
            self.send(as_list(self.outputs[self.at]))
            return
        inputs = as_list(self.inputs[self.at])
        self.send(gradients_of(inputs, self.message.source, self.message))
        self.inputs[self.at] = None


class Do:
    """One operation, once its message has arrived."""

    def __init__(self, engine: ScheduledEngine, op: Op, awaited: Message | None) -> None:
        self.engine, self.op, self.chunked = engine, op, engine.plan.chunks > 1 and op.kind != "U"
        self.recorder, self.status, self.pace = engine.recorder, engine.status, engine.pace
        self.at = engine.at(op)
        self.runs = encoded(f"runs {op}")
        piece, last = engine.pieces[op.chunk], engine.plan.layout.slices - 1
        self.load = None
        if op.kind == "F" and piece in (0, last):
            self.load = named(engine.named, ("L", *op[1:]), engine.load)
        self.take: Callable[[], list[Tensor]] | None = None
        if awaited is not None:
            self.waits = encoded(f"waits for {in_words(awaited)}, to run {op}")
            self.take = named(engine.named, ("R", *op[1:]), engine.mail.incoming(awaited).take)
        self.compute = named(engine.named, op, engine.compute)
        self.sends: list[Dispatch] = []

    def __call__(self) -> None:
        engine, op, now = self.engine, self.op, self.recorder.now
        if self.chunked:
            engine.turn_to(op.chunk)
        if self.load is not None:
            begin = now()
            self.load(op, self.at)
            loaded = now()
        arrived = None
        if self.take is not None:
            self.status.put(self.waits)
            asked = now()
            arrived = self.take()
            ready = now()
        self.status.put(self.runs)
        if self.pace is not None:
            self.pace(op)
        start = now()
        self.compute(op, self.at, arrived)
        end = now()
        for send in self.sends:
            send()
        if self.load is not None:
            self.note("L", begin, loaded)
        if self.take is not None:
            self.note("R", asked, ready)
        self.note(op.kind, start, end)

    def note(self, kind: str, start: Any, end: Any) -> None:
        """Record what was done between two marks for this operation."""
        self.recorder.add(kind, self.op.micro_batch, self.op.chunk, start, end)


def named(names: Unnamed, about: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, in a range of that name for whoever listens: the very same function if nobody does.

    about: (kind, micro-batch, chunk).
    """
    if type(names) is Unnamed:
        return call

    def ranged(*args: Any) -> Any:
        with names(*about):
            return call(*args)

    return ranged
