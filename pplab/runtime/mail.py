"""Sending and receiving: asynchronous, tagged, into fresh buffers, shapes told once per link.

What DeepSpeed's own sends and receives would not allow (facts.md, part b): they block until the
other side is there, they reuse one buffer for gradients and activations, and they know only the
neighbouring stages. Here messages go between any two ranks, straight through the process group.

Messages are the same in every step, so a rank has an object for each that it sends (``Outgoing``)
and gets (``Incoming``), in which all that does not change is worked out once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pplab.core.messages import Message
from pplab.runtime.courier import Courier
from pplab.runtime.nets.batches import kinds
from pplab.runtime.status import Slot

META_BYTES = 2048  # a message's shapes and dtypes as JSON, sent once per link
TENSORS = 64  # tensors one message may have: tags are message tag * TENSORS + number

#: What travels on a link: (shape, dtype, carries a gradient) of each tensor.
Shapes = list[tuple[list[int], str, bool]]
#: The same to compare and to read: (shape, dtype) of each tensor.
Looks = list[tuple[torch.Size, torch.dtype]]
#: Communications under way and the tensors they need to stay alive.
UnderWay = list[tuple[Any, Tensor]]


class Mail:
    """The messages of one rank.

    grid: DeepSpeed's, to find the process of a pipeline rank. staged: messages go through CPU
    memory (gloo on GPU tensors). receipts: see ``core.messages.receipts``.
    """

    def __init__(
        self,
        grid: Any,
        device: Any,
        status: Slot,
        staged: bool,
        receipts: Mapping[Message, Sequence[Message]],
    ) -> None:
        self.grid, self.device, self.status, self.staged = grid, device, status, staged
        self.receipts = receipts
        # The process group itself: dist.isend and irecv spend 0.1 ms on checks per message
        self.world: Any = dist.distributed_c10d._get_default_group()
        self.links: dict[tuple[str, int, int], Link] = {}
        self.coming: dict[Message, Incoming] = {}
        #: By (slice, slice): what sends messages later than they would (planted faults).
        self.couriers: dict[tuple[int, int], Courier] = {}
        #: What was sent and may still be on its way, by the tag of the message.
        self.sends: dict[int, UnderWay] = {}

    def make_late(self, links: dict[tuple[int, int], float]) -> None:
        """From now on, messages from one slice to another arrive so many seconds later."""
        by_delay = {seconds: Courier(self.world, seconds) for seconds in set(links.values())}
        self.couriers = {link: by_delay[seconds] for link, seconds in links.items()}

    def link(self, message: Message) -> Link:
        """What is known of messages like this one."""
        return self.links.setdefault((message.kind, message.piece_from, message.piece_to), Link())

    def incoming(self, message: Message) -> Incoming:
        """The one object that stands for a message this rank gets."""
        if message not in self.coming:
            self.coming[message] = Incoming(self, message)
        return self.coming[message]

    def flush(self) -> None:
        """Wait until everything sent is gone."""
        self.status.say("waits for its last sends")
        for under_way in self.sends.values():
            wait_for(under_way)
        self.sends.clear()


class Link:
    """What is known of the messages of one kind from one slice to another; None before the first.

    They must not change from one message to the next.
    """

    def __init__(self) -> None:
        #: Of those sent: (shape, dtype) of each tensor.
        self.looks: Looks | None = None
        #: Of those to come: (shape, dtype) of each tensor.
        self.expected: list[tuple[list[int], torch.dtype]] | None = None


class Outgoing:
    """A message that this rank sends in every step."""

    def __init__(self, mail: Mail, message: Message) -> None:
        self.mail, self.message, self.link = mail, message, mail.link(message)
        self.peer, self.tag = mail.grid.stage_to_global(message.target), message.tag * TENSORS
        courier = mail.couriers.get((message.piece_from, message.piece_to))
        self.carry = (courier or mail.world).send

    def send(self, tensors: list[Tensor]) -> None:
        """Start sending; the tensors stay alive until they are known to have arrived."""
        looks = [(t.shape, t.dtype) for t in tensors]
        under_way = [] if looks == self.link.looks else self.announce(tensors, looks)
        for i, tensor in enumerate(tensors):
            data = tensor.detach().contiguous()
            data = data.cpu() if self.mail.staged else data
            under_way.append((self.carry([data], self.peer, self.tag + i), data))
        self.mail.sends[self.message.tag] = under_way

    def announce(self, tensors: list[Tensor], looks: Looks) -> UnderWay:
        """Tell the receiver the shapes, at the first message of a link.

        Returns what was sent for it; ValueError when they are not those of the first one.
        """
        message = self.message
        if self.link.looks is not None:
            raise ValueError(
                f"stage {message.source} would send {readable(looks)} as the {message}, but the "
                f"first one was {readable(self.link.looks)}: a pipeline's messages keep one shape "
                "(drop the last, smaller batch, or pad)"
            )
        self.link.looks = looks
        if message.kind == "B":
            return []  # the receiver knows: the gradient has the shape of what it sent
        text = json.dumps(shapes_of(tensors)).encode()
        if len(text) > META_BYTES:
            raise ValueError(f"the {message} has too many tensors: {len(tensors)}")
        note = torch.zeros(META_BYTES, dtype=torch.uint8)
        note[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        note = note if self.mail.staged else note.to(self.mail.device)
        return [(self.mail.world.send([note], self.peer, self.tag + TENSORS - 1), note)]


class Incoming:
    """A message that this rank gets in every step."""

    def __init__(self, mail: Mail, message: Message) -> None:
        self.mail, self.message, self.link = mail, message, mail.link(message)
        self.peer, self.tag = mail.grid.stage_to_global(message.source), message.tag * TENSORS
        self.receipts = [sent.tag for sent in mail.receipts.get(message, ())]
        self.device = torch.device("cpu") if mail.staged else mail.device
        self.needs_grad = message.kind == "F"
        self.under_way: UnderWay = []

    def post(self, sent: list[Tensor] | None = None) -> None:
        """Hand buffers to the network for the message, which will be needed soon.

        sent: the activations whose gradients it brings; None for an activation, whose sender tells
        what it looks like, at the first message of a link.
        """
        if self.link.expected is None:
            shapes = self.told() if sent is None else shapes_of(sent)
            self.link.expected = [(shape, getattr(torch, dtype)) for shape, dtype, _ in shapes]
        recv, device = self.mail.world.recv, self.device
        for i, (shape, dtype) in enumerate(self.link.expected):
            buffer = torch.empty(shape, dtype=dtype, device=device)
            self.under_way.append((recv([buffer], self.peer, self.tag + i), buffer))

    def told(self) -> Shapes:
        """Shapes of an activation, from its sender."""
        self.mail.status.say(f"waits for {in_words(self.message)}, the first one")
        note = torch.empty(META_BYTES, dtype=torch.uint8, device=self.device)
        dist.recv(note, self.peer, tag=self.tag + TENSORS - 1)
        return [tuple(item) for item in json.loads(bytes(note.cpu().tolist()).rstrip(b"\0"))]

    def take(self) -> list[Tensor]:
        """Wait for it. An activation requires a gradient, to be sent back."""
        tensors = []
        for work, buffer in self.under_way:
            work.wait()
            tensor = buffer.to(self.mail.device) if self.mail.staged else buffer
            if self.needs_grad and tensor.is_floating_point():
                tensor.requires_grad_()
            tensors.append(tensor)
        self.under_way = []
        for tag in self.receipts:  # at once: their memory is what the next tensors fit into
            wait_for(self.mail.sends.pop(tag))
        return tensors


def wait_for(under_way: UnderWay) -> None:
    """Return when messages are gone; at once when they are known to have arrived."""
    for work, _ in under_way:
        work.wait()


def plain(dtype: torch.dtype) -> str:
    """A dtype's name without torch's."""
    return str(dtype).removeprefix("torch.")


def shapes_of(tensors: list[Tensor]) -> Shapes:
    """Shape, dtype and whether a gradient comes back, for each tensor."""
    return [(list(t.shape), plain(t.dtype), t.is_floating_point()) for t in tensors]


def as_list(value: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    """What a stage hands on, one tensor or several, as a list."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple) and all(isinstance(item, Tensor) for item in value):
        return list(value)
    raise TypeError(f"a stage hands on a tensor or a tuple of tensors, not a {kinds(value)}")


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


def readable(looks: Looks) -> str:
    """Shapes for a sentence: ``(4, 64) float32, (4, 64) int64``."""
    return ", ".join(f"{tuple(shape)} {plain(dtype)}" for shape, dtype in looks)
