"""Sending and receiving: asynchronous, tagged, into fresh buffers, shapes told once per link.

What DeepSpeed's own sends and receives would not allow (facts.md, part b): they block until the
other side is there, they reuse one buffer for gradients and activations, and they know only the
neighbouring stages. Here messages go between any two ranks, straight through the process group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pplab.core.messages import Message
from pplab.core.ops import Op
from pplab.runtime.courier import Courier
from pplab.runtime.ranges import Unnamed
from pplab.runtime.recorder import Recorder
from pplab.runtime.status import Slot

META_BYTES = 2048  # a message's shapes and dtypes as JSON, sent once per link
TENSORS = 64  # tensors one message may have: tags are message tag * TENSORS + number

#: What travels on a link: (shape, dtype, carries a gradient) of each tensor.
Shapes = list[tuple[list[int], str, bool]]


class Mail:
    """The messages of one rank.

    grid: DeepSpeed's, to find the process of a pipeline rank. staged: messages go through CPU
    memory (gloo on GPU tensors). receipts: see ``core.messages.receipts``.
    """

    def __init__(
        self,
        grid: Any,
        device: Any,
        recorder: Recorder,
        status: Slot,
        staged: bool,
        named: Unnamed,
        receipts: Mapping[Message, Sequence[Message]],
    ) -> None:
        self.grid, self.recorder, self.status = grid, recorder, status
        self.device, self.staged, self.named = device, staged, named
        self.receipts = receipts
        # The process group itself: dist.isend and irecv spend 0.1 ms on checks per message
        self.world: Any = dist.distributed_c10d._get_default_group()
        #: By link (kind, from, to): what was said about it, was sent on it, and is to come.
        self.links: dict[tuple[str, int, int], Shapes] = {}
        self.announced: dict[tuple[str, int, int], list[Any]] = {}
        self.expecting: dict[tuple[str, int, int], list[Any]] = {}
        self.processes: dict[int, int] = {}
        #: By (slice, slice): what sends messages later than they would (planted faults).
        self.couriers: dict[tuple[int, int], Courier] = {}
        #: What was sent and may still be on its way.
        self.sends: dict[Message, list[tuple[Any, Tensor]]] = {}
        self.arriving: dict[Message, list[tuple[Any, Tensor]]] = {}

    def dispatch(self, message: Message, tensors: list[Tensor]) -> None:
        """Start sending; the tensors stay alive until they are known to have arrived."""
        under_way = self.sends[message] = self.announce(message, tensors)
        peer = self.process(message.target)
        for i, tensor in enumerate(tensors):
            data = tensor.detach().contiguous()
            data = data.cpu() if self.staged else data
            tag = message.tag * TENSORS + i
            courier = self.couriers.get((message.piece_from, message.piece_to))
            work = courier.send(data, peer, tag) if courier else self.world.send([data], peer, tag)
            under_way.append((work, data))

    def make_late(self, links: dict[tuple[int, int], float]) -> None:
        """From now on, messages from one slice to another arrive so many seconds later."""
        by_delay = {seconds: Courier(self.world, seconds) for seconds in set(links.values())}
        self.couriers = {link: by_delay[seconds] for link, seconds in links.items()}

    def process(self, rank: int) -> int:
        """The global rank of a rank of this pipeline (DeepSpeed's grid looks it up slowly)."""
        if rank not in self.processes:
            self.processes[rank] = self.grid.stage_to_global(rank)
        return self.processes[rank]

    def announce(self, message: Message, tensors: list[Tensor]) -> list[tuple[Any, Tensor]]:
        """Tell the receiver the shapes at the first message of a link; they must not change.

        Returns what was sent for it.
        """
        link = (message.kind, message.piece_from, message.piece_to)
        looks = [(t.shape, t.dtype) for t in tensors]
        known = self.announced.setdefault(link, looks)
        shapes = shapes_of(tensors) if known is looks or known != looks else []
        if known != looks:
            raise ValueError(
                f"stage {message.source} would send {readable(shapes)} as the {message}, but the "
                f"first one was {readable(self.links[link])}: a pipeline's messages keep one "
                "shape (drop the last, smaller batch, or pad)"
            )
        if known is not looks:
            return []
        self.links[link] = shapes
        if message.kind == "B":
            return []  # the receiver knows: the gradient has the shape of what it sent
        text = json.dumps(shapes).encode()
        if len(text) > META_BYTES:
            raise ValueError(f"the {message} has too many tensors: {len(tensors)}")
        note = torch.zeros(META_BYTES, dtype=torch.uint8)
        note[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        note = note if self.staged else note.to(self.device)
        peer = self.process(message.target)
        tag = message.tag * TENSORS + TENSORS - 1
        return [(self.world.send([note], peer, tag), note)]

    def post(self, message: Message, shapes: Shapes | None = None) -> None:
        """Hand buffers to the network for a message that will be needed soon.

        shapes: what to expect, at the first message of a link; None for an activation, whose
        sender says so.
        """
        peer = self.process(message.source)
        link = (message.kind, message.piece_from, message.piece_to)
        if link not in self.expecting:
            found = self.expected(message, peer) if shapes is None else shapes
            self.expecting[link] = [(shape, getattr(torch, dtype)) for shape, dtype, _ in found]
        device = "cpu" if self.staged else self.device
        self.arriving[message] = []
        for i, (shape, dtype) in enumerate(self.expecting[link]):
            buffer = torch.empty(shape, dtype=dtype, device=device)
            work = self.world.recv([buffer], peer, message.tag * TENSORS + i)
            self.arriving[message].append((work, buffer))

    def expects(self, message: Message) -> bool:
        """True when an earlier message of the same link told the shapes."""
        return (message.kind, message.piece_from, message.piece_to) in self.expecting

    def expected(self, message: Message, peer: int) -> Shapes:
        """Shapes of an activation: asked for once, at the first message of a link."""
        link = (message.kind, message.piece_from, message.piece_to)
        if link not in self.links:
            self.status.say(f"waits for {in_words(message)}, the first one")
            note = torch.empty(META_BYTES, dtype=torch.uint8)
            note = note if self.staged else note.to(self.device)
            dist.recv(note, peer, tag=message.tag * TENSORS + TENSORS - 1)
            text = bytes(note.cpu().tolist()).rstrip(b"\0")
            self.links[link] = [tuple(item) for item in json.loads(text)]
        return self.links[link]

    def collect(self, message: Message, op: Op) -> list[Tensor]:
        """Wait for a message that `op` needs, and record the wait."""
        self.status.say(f"waits for {in_words(message)}, to run {op}")
        start = self.recorder.now()
        tensors = []
        with self.named("R", op.micro_batch, op.chunk):
            for work, buffer in self.arriving.pop(message):
                work.wait()
                tensors.append(buffer.to(self.device) if self.staged else buffer)
            for arrived in self.receipts.get(message, ()):
                self.wait_for(self.sends.pop(arrived))
        self.recorder.add("R", op.micro_batch, op.chunk, start, self.recorder.now())
        if message.kind == "F":
            for tensor in tensors:
                tensor.requires_grad_(tensor.is_floating_point())
        return tensors

    def flush(self) -> None:
        """Wait until everything sent is gone."""
        self.status.say("waits for its last sends")
        for under_way in self.sends.values():
            self.wait_for(under_way)
        self.sends.clear()

    @staticmethod
    def wait_for(under_way: list[tuple[Any, Tensor]]) -> None:
        """Return when messages are gone; at once when they are known to have arrived."""
        for work, _ in under_way:
            work.wait()


def shapes_of(tensors: list[Tensor]) -> Shapes:
    """Shape, dtype and whether a gradient comes back, for each tensor."""
    return [
        (list(t.shape), str(t.dtype).removeprefix("torch."), t.is_floating_point()) for t in tensors
    ]


def as_list(value: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    """What a stage hands on, one tensor or several, as a list."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple) and all(isinstance(item, Tensor) for item in value):
        return list(value)
    kinds = type(value).__name__
    if isinstance(value, tuple):
        kinds = "tuple of " + ", ".join(type(item).__name__ for item in value)
    raise TypeError(f"a stage hands on a tensor or a tuple of tensors, not a {kinds}")


def as_given(tensors: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The list back in the form layers take: one tensor, or a tuple."""
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def handed_on(value: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """What one slice makes as the input of the next on the same rank: cut off from its graph."""
    cut = [t.detach().requires_grad_(t.is_floating_point()) for t in as_list(value)]
    return tuple(cut) if isinstance(value, tuple) else cut[0]


def gradients_of(inputs: list[Tensor], stage: int, message: Any) -> list[Tensor]:
    """The gradients to send back for what `stage` received; `message` words the sentence."""
    grads = []
    for number, tensor in enumerate(inputs):
        if not tensor.is_floating_point():
            continue
        if tensor.grad is None:
            raise ValueError(
                f"tensor {number} of what stage {stage} received has no gradient for the "
                f"{message}: every floating-point tensor that is passed on must reach the loss"
            )
        grads.append(tensor.grad)
    return grads


def in_words(message: Message) -> str:
    """A message by the operation that makes it: ``F3 of rank 1``."""
    return f"{message.kind}{message.micro_batch} of rank {message.source}"


def readable(shapes: Shapes) -> str:
    """Shapes for a sentence: ``(4, 64) float32, (4, 64) int64``."""
    return ", ".join(f"{tuple(shape)} {dtype}" for shape, dtype, _ in shapes)
