"""DeepSpeed's pipeline engine, following any schedule.

``ScheduledEngine`` is DeepSpeed's own ``PipelineEngine`` with one method changed: instead of
DeepSpeed's fixed 1F1B instructions it executes the program that ``core.messages`` derives from a
``Schedule`` (runs, sends and receives in order). Forward and backward passes, gradient reduction
and the optimizer step remain DeepSpeed's.

What DeepSpeed's engine assumes of its own order, and is done here instead (facts.md, part b):
- it keeps only the last loss: losses are kept per micro-batch;
- received activations and gradients share one buffer: every message gets a fresh one;
- its sends block until the receiver is there: sends and receives are asynchronous here;
- buffers are overwritten in a circle: they are freed after the backward pass.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import Tensor

from pplab.core.messages import Instruction, Message, Recv, Run, Send
from pplab.core.ops import WHOLE_STEP, Op
from pplab.runtime.recorder import Recorder
from pplab.runtime.status import Slot

META_BYTES = 2048  # a message's shapes and dtypes as JSON, sent once per link
TENSORS = 64  # tensors one message may have: tags are message tag * TENSORS + number


class ScheduledEngine(PipelineEngine):
    """A DeepSpeed pipeline engine that executes programs and records a span per operation."""

    @classmethod
    def adopt(
        cls,
        engine: PipelineEngine,
        program: tuple[Instruction, ...],
        batch: Callable[[int, int], Any],
        recorder: Recorder,
        status: Slot,
        *,
        staged: bool = False,
        profiled: bool = False,
    ) -> ScheduledEngine:
        """Make `engine` follow `program`.

        batch(step, micro_batch) -> (inputs, labels). staged: messages go through CPU memory (gloo
        on GPU tensors). profiled: name every operation for a profiler that is running.
        """
        engine.__class__ = cls
        assert isinstance(engine, cls)
        engine.program, engine.batch = program, batch
        engine.recorder, engine.status, engine.staged = recorder, status, staged
        engine.named = torch.profiler.record_function if profiled else contextlib.nullcontext
        engine.world = dist.distributed_c10d._get_default_group()
        engine.links = {}
        engine.sends = []
        engine.arriving = {}
        engine.kept_losses = {}
        engine.measured = {}
        return engine

    program: tuple[Instruction, ...]
    batch: Callable[[int, int], Any]
    recorder: Recorder
    status: Slot
    staged: bool
    #: Names an operation in a profiler's trace; does nothing when none is running.
    named: Callable[[str], Any]
    #: The process group itself: ``dist.isend`` and ``irecv`` spend 0.1 ms on checks per message.
    world: Any
    #: Shapes of what travels between two slices: (kind, from, to) -> [(shape, dtype, grad?)].
    links: dict[tuple[str, int, int], list[tuple[list[int], str, bool]]]
    sends: list[tuple[Any, Tensor]]
    arriving: dict[Message, list[tuple[Any, Tensor]]]
    kept_losses: dict[int, Tensor]
    measured: dict[str, int]

    # -- one step ---------------------------------------------------------------------------------

    def _exec_schedule(self, pipe_schedule: Any) -> None:
        """Called by ``train_batch`` with DeepSpeed's schedule, which is put aside."""
        self._reserve_pipe_buffers(self.micro_batches)
        self.fwd_outputs: list[Any] = []
        for instruction in self.program:
            match instruction:
                case Run(op, awaited):
                    self.run(op, awaited)
                case Recv(message):
                    self.post(message)
                case Send(message):
                    self.dispatch(message)
        self.finish_step()

    def run(self, op: Op, awaited: Message | None) -> None:
        """One operation, once its message has arrived."""
        m = op.micro_batch
        if op.kind == "F":
            self.load(m)
            if awaited is not None:
                received = self.collect(awaited, op)
                self.pipe_buffers["inputs"][m] = as_given(received)
            self.timed(op, self.forward_pass)
        elif op.kind == "B":
            if awaited is not None:
                grads = self.collect(awaited, op)
                is_tuple = isinstance(self.pipe_buffers["outputs"][m], tuple)
                self.grad_layer = grads if is_tuple else grads[0]
            self.timed(op, self.backward_pass)
        elif op.kind != "U":
            raise NotImplementedError(f"this engine cannot run {op} yet")

    def timed(self, op: Op, work: Callable[[int], None]) -> None:
        """Do the work of an operation and record its span."""
        self.status.say(f"runs {op}")
        start = self.recorder.now()
        with self.named(str(op)):
            work(op.micro_batch)
        self.recorder.add(op.kind, op.micro_batch, op.chunk, start, self.recorder.now())

    def load(self, m: int) -> None:
        """Fetch the micro-batch where it is needed: inputs on stage 0, labels on the last."""
        if not (self.is_first_stage() or self.is_last_stage()):
            return
        start = self.recorder.now()
        self.data_iterator = iter((self.batch(self.global_steps, m),))
        self._exec_load_micro_batch(m)
        self.recorder.add("L", m, 0, start, self.recorder.now())

    def forward_pass(self, m: int) -> None:
        """DeepSpeed's forward pass; the loss is kept until this micro-batch's backward pass."""
        if m == 0 and self.global_steps == 0:
            with count_saved(self.module) as count:
                self._exec_forward_pass(m)
            self.measured["activation_bytes"] = count.bytes
        else:
            self._exec_forward_pass(m)
        if self.is_last_stage():
            self.kept_losses[m] = self.loss

    def backward_pass(self, m: int) -> None:
        """DeepSpeed's backward pass, of this micro-batch's own loss; then its buffers are freed."""
        if self.is_last_stage():
            self.loss = self.kept_losses.pop(m)
        self._exec_backward_pass(m)
        self.pipe_buffers["outputs"][m] = self.pipe_buffers["labels"][m] = None
        if self.is_last_stage():
            self.loss = self.loss.detach()
        if self.is_first_stage():
            self.pipe_buffers["inputs"][m] = None

    def finish_step(self) -> None:
        """Gradient reduction, once every rank is there, and the optimizer step."""
        self.status.say("waits for its last sends")
        for work, _ in self.sends:
            work.wait()
        self.sends.clear()
        self.status.say("waits for the other ranks, to end the step")
        start = self.recorder.now()
        if self.zero_optimization() or self.is_data_parallel or self.gradient_clipping():
            dist.barrier()  # else the wait in U's own collectives would count as the optimizer's
        self._exec_reduce_tied_grads()
        self._exec_reduce_grads()
        end = self.recorder.now()
        self.recorder.add("G", WHOLE_STEP, 0, start, end)
        self.status.say("runs U, the optimizer step")
        with self.named("U"):
            self._exec_optimizer_step()
        self.recorder.add("U", WHOLE_STEP, 0, end, self.recorder.now())

    # -- messages ---------------------------------------------------------------------------------

    def dispatch(self, message: Message) -> None:
        """Start sending what an operation made; the tensors stay alive until they are gone."""
        m = message.micro_batch
        if message.kind == "F":
            tensors = as_list(self.pipe_buffers["outputs"][m])
        else:
            inputs = as_list(self.pipe_buffers["inputs"][m])
            tensors = [gradient_of(t, i, message) for i, t in enumerate(inputs) if is_float(t)]
            self.pipe_buffers["inputs"][m] = None
        self.announce(message, tensors)
        self.sends = [(work, t) for work, t in self.sends if not work.is_completed()]
        peer = self.grid.stage_to_global(message.target)
        for i, tensor in enumerate(tensors):
            data = tensor.detach().contiguous()
            data = data.cpu() if self.staged else data
            self.sends.append((self.world.send([data], peer, message.tag * TENSORS + i), data))

    def announce(self, message: Message, tensors: list[Tensor]) -> None:
        """Tell the receiver the shapes at the first message of a link; they must not change."""
        shapes = [
            (list(t.shape), str(t.dtype).removeprefix("torch."), is_float(t)) for t in tensors
        ]
        link = (message.kind, message.piece_from, message.piece_to)
        known = self.links.setdefault(link, shapes)
        if known is not shapes:
            if known != shapes:
                raise ValueError(
                    f"stage {self.stage_id} would send {readable(shapes)} as the {message}, but "
                    f"the first one was {readable(known)}: a pipeline's messages keep one shape "
                    "(drop the last, smaller batch, or pad)"
                )
            return
        if message.kind == "B":
            return  # the receiver knows: the gradient has the shape of what it sent
        text = json.dumps(shapes).encode()
        if len(text) > META_BYTES:
            raise ValueError(f"the {message} has too many tensors: {len(tensors)}")
        note = torch.zeros(META_BYTES, dtype=torch.uint8)
        note[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        note = note if self.staged else note.to(self.device)
        peer = self.grid.stage_to_global(message.target)
        tag = message.tag * TENSORS + TENSORS - 1
        self.sends.append((self.world.send([note], peer, tag), note))

    def post(self, message: Message) -> None:
        """Hand a buffer to the network for a message that will be needed soon."""
        peer = self.grid.stage_to_global(message.source)
        if message.kind == "F":
            shapes = self.expected(message, peer)
        else:
            outputs = as_list(self.pipe_buffers["outputs"][message.micro_batch])
            shapes = [
                (list(t.shape), str(t.dtype).removeprefix("torch."), True)
                for t in outputs
                if is_float(t)
            ]
        device = "cpu" if self.staged else self.device
        self.arriving[message] = []
        for i, (shape, dtype, _) in enumerate(shapes):
            buffer = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            work = self.world.recv([buffer], peer, message.tag * TENSORS + i)
            self.arriving[message].append((work, buffer))

    def expected(self, message: Message, peer: int) -> list[tuple[list[int], str, bool]]:
        """Shapes of an activation: asked for once, at the first message of a link."""
        link = (message.kind, message.piece_from, message.piece_to)
        if link not in self.links:
            self.status.say(f"waits for {message_words(message)}, the first one")
            note = torch.empty(META_BYTES, dtype=torch.uint8)
            note = note if self.staged else note.to(self.device)
            dist.recv(note, peer, tag=message.tag * TENSORS + TENSORS - 1)
            text = bytes(note.cpu().tolist()).rstrip(b"\0")
            self.links[link] = [tuple(item) for item in json.loads(text)]
        return self.links[link]

    def collect(self, message: Message, op: Op) -> list[Tensor]:
        """Wait for a message, and record the wait."""
        self.status.say(f"waits for {message_words(message)}, to run {op}")
        start = self.recorder.now()
        tensors = []
        for work, buffer in self.arriving.pop(message):
            work.wait()
            tensors.append(buffer.to(self.device) if self.staged else buffer)
        self.recorder.add("R", op.micro_batch, op.chunk, start, self.recorder.now())
        if message.kind == "F":
            for tensor in tensors:
                tensor.requires_grad_(is_float(tensor))
        return tensors


class count_saved:
    """Context: bytes that autograd keeps for the backward pass, parameters and views counted once
    (saved-tensor hooks)."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._seen = {p.untyped_storage().data_ptr() for p in module.parameters()}
        self.bytes = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its own graph node alive

    def __enter__(self) -> count_saved:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)


def is_float(tensor: Tensor) -> bool:
    """Floating-point tensors are the ones that carry a gradient between stages."""
    return tensor.is_floating_point()


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


def gradient_of(tensor: Tensor, number: int, message: Message) -> Tensor:
    """The gradient to send back for a received tensor."""
    if tensor.grad is None:
        raise ValueError(
            f"tensor {number} of what stage {message.source} received has no gradient for the "
            f"{message}: every floating-point tensor that is passed on must reach the loss"
        )
    return tensor.grad


def message_words(message: Message) -> str:
    """A message by the operation that makes it: ``F3 of rank 1``."""
    return f"{message.kind}{message.micro_batch} of rank {message.source}"


def readable(shapes: list[tuple[list[int], str, bool]]) -> str:
    """Shapes for a sentence: ``(4, 64) float32, (4, 64) int64``."""
    return ", ".join(f"{tuple(shape)} {dtype}" for shape, dtype, _ in shapes)
