"""DeepSpeed's pipeline engine, following any schedule.

``ScheduledEngine`` is DeepSpeed's own ``PipelineEngine`` with one method changed: instead of
DeepSpeed's fixed 1F1B instructions it executes the program that ``core.messages`` derives from a
``Schedule`` (runs, sends and receives in order). Forward and backward passes, gradient reduction
and the optimizer step remain DeepSpeed's.

What DeepSpeed's engine assumes of its own order, and is done here instead (facts.md, part b):
- it keeps only the last loss: losses are kept per micro-batch;
- received activations and gradients share one buffer, and sends block: see ``mail``;
- buffers are overwritten in a circle: they are freed after the backward pass;
- a rank is one stage: with several chunks a rank, it is told which slice it works on now;
- a backward pass is one operation: ``halves`` puts W off;
- the optimizer steps once, at the end: ``streaming`` has the updates in between.

DeepSpeed's ``pipe_buffers`` hold inputs, outputs and labels by number; here that of a micro-batch
in a chunk is chunk * micro-batches + micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import Tensor

from pplab.core.messages import Instruction, Message, Recv, Run, Send, programs, receipts
from pplab.core.ops import WHOLE_STEP, Op
from pplab.core.schedule import Schedule
from pplab.runtime.counting import CountingEngine
from pplab.runtime.halves import HalvesEngine
from pplab.runtime.mail import Mail, as_given, as_list, gradients_of, handed_on, shapes_of
from pplab.runtime.ranges import Unnamed
from pplab.runtime.recorder import Recorder
from pplab.runtime.status import Slot


class ScheduledEngine(HalvesEngine, CountingEngine):
    """A DeepSpeed pipeline engine that executes programs and records a span per operation."""

    @classmethod
    def adopt(
        cls,
        engine: PipelineEngine,
        plan: Schedule,
        batch: Callable[[int, int], Any],
        recorder: Recorder,
        status: Slot,
        *,
        staged: bool = False,
        named: Unnamed | None = None,
    ) -> ScheduledEngine:
        """Make `engine`, whose module is a ``SlicedPipe`` of the plan's layout, follow `plan`.

        batch(step, micro_batch) -> (inputs, labels). staged: messages go through CPU memory (gloo
        on GPU tensors). named: names every operation for profilers (see ``ranges``).
        """
        engine.__class__ = cls
        assert isinstance(engine, cls)
        rows, rank = programs(plan), engine.stage_id
        engine.plan, engine.program = plan, rows[rank]
        engine.batch, engine.recorder, engine.status = batch, recorder, status
        engine.named = named or Unnamed()
        engine.mail = Mail(
            engine.grid, engine.device, recorder, status, staged, engine.named, receipts(rows)[rank]
        )
        engine.prepare()
        return engine

    def prepare(self) -> None:
        """What the engine keeps from one operation to another."""
        layout, rank = self.plan.layout, self.stage_id
        self.pieces = [layout.slice_of(rank, chunk) for chunk in range(layout.chunks)]
        self.piece = None if layout.chunks > 1 else rank
        self.split = {op[1:] for op in self.plan.ops[rank] if op.kind == "W"}
        self.kept_losses, self.step_losses, self.micro_losses = {}, {}, []
        self.prepare_counts()
        noting = self.split and 0 in self.pieces
        self.prepare_halves(self.module.forward_funcs if noting else [])

    plan: Schedule
    program: tuple[Instruction, ...]
    batch: Callable[[int, int], Any]
    recorder: Recorder
    status: Slot
    mail: Mail
    #: Called before every operation of a run with planted faults.
    pace: Callable[[Op], None] | None = None
    #: Names an operation in a profiler's trace; does nothing when none is running.
    named: Unnamed
    #: Slices of the model on this rank, by chunk; and the one it works on now (None: between).
    pieces: list[int]
    piece: int | None
    #: (micro-batch, chunk) of every backward pass whose W is an operation of its own.
    split: set[tuple[int, int]]
    kept_losses: dict[int, Tensor]
    #: Loss of each micro-batch: of this step, and of all steps, on the rank that computes it.
    step_losses: dict[int, Tensor]
    micro_losses: list[list[float]]

    # -- one step ---------------------------------------------------------------------------------

    def _exec_schedule(self, pipe_schedule: Any) -> None:
        """Called by ``train_batch`` with DeepSpeed's schedule, which is put aside."""
        self._reserve_pipe_buffers(self.micro_batches * self.plan.chunks)
        self.fwd_outputs: list[Any] = []
        self.step_losses.clear()
        for instruction in self.program:
            match instruction:
                case Run(op, awaited):
                    self.run(op, awaited)
                case Recv(message):
                    self.post(message)
                case Send(message):
                    chunk = self.pieces.index(message.piece_from)
                    with self.named("S", message.micro_batch, chunk):
                        self.dispatch(message)
        if self.plan.chunks > 1:
            self.piece = None
        self.finish_step()
        if self.is_last_stage():
            losses = [float(self.step_losses[m]) for m in range(self.micro_batches)]
            self.micro_losses.append(losses)

    def run(self, op: Op, awaited: Message | None) -> None:
        """One operation, once its message has arrived; its span is recorded."""
        if self.plan.chunks > 1 and op.kind != "U":
            self.piece = self.pieces[op.chunk]
            self.module.activate(op.chunk)
        if op.kind == "F":
            self.load(op)
            self.take_inputs(op, awaited)
        elif op.kind == "B":
            self.take_gradients(op, awaited)
        elif op.kind == "U" and self.updates_at_the_end:
            return
        self.status.say(f"runs {op}")
        if self.pace is not None:
            self.pace(op)
        start = self.recorder.now()
        with self.named(*op):
            self.compute(op)
        self.recorder.add(op.kind, op.micro_batch, op.chunk, start, self.recorder.now())

    #: A plan may end with U or leave it out: the engine does it when every rank is done.
    updates_at_the_end = True

    def compute(self, op: Op) -> None:
        """The work of an operation, everything it needs being in its buffers."""
        if op.kind == "F":
            self.forward_pass(op)
        elif op.kind == "B":
            self.backward_pass(op)
        else:
            self.weight_half(self.weight_work.pop(op[1:]))

    def finish_step(self) -> None:
        """Gradient reduction, once every rank is there, and the optimizer step."""
        self.mail.flush()
        self.count_gradients()
        self.status.say("waits for the other ranks, to end the step")
        start = self.recorder.now()
        with self.named("G"):
            if self.zero_optimization() or self.is_data_parallel or self.gradient_clipping():
                dist.barrier()  # else the wait in U's own collectives would count as its own
            self.traffic.at(self.recorder.step, "G", WHOLE_STEP)
            self._exec_reduce_tied_grads()
            if self.is_data_parallel or self.zero_optimization() or self.using_bf16_optimizer:
                self._exec_reduce_grads()  # else DeepSpeed flattens all gradients for one copy
        end = self.recorder.now()
        self.recorder.add("G", WHOLE_STEP, 0, start, end)
        self.status.say("runs U, the optimizer step")
        self.traffic.at(self.recorder.step, "U", WHOLE_STEP)
        with self.named("U"):
            self._exec_optimizer_step()
        self.recorder.add("U", WHOLE_STEP, 0, end, self.recorder.now())
        self.traffic.pause()

    # -- where the rank is ------------------------------------------------------------------------

    def is_first_stage(self) -> bool:
        """True while the rank works on the first slice; between operations, if it holds it."""
        return self.piece == 0 if self.piece is not None else 0 in self.pieces

    def is_last_stage(self) -> bool:
        """True while the rank works on the slice that ends in the loss; else if it holds it."""
        last = self.plan.layout.slices - 1
        return self.piece == last if self.piece is not None else last in self.pieces

    def _loss_stage_global_rank(self) -> int:
        layout = self.plan.layout
        return self.grid.stage_to_global(layout.place_of(layout.slices - 1)[0])

    def at(self, op: Op) -> int:
        """The number of the buffers of an operation."""
        return op.chunk * self.micro_batches + op.micro_batch

    def buffer(self, m: int, piece: int) -> int:
        """The number of the buffers of a micro-batch in one of this rank's slices."""
        return self.pieces.index(piece) * self.micro_batches + m

    # -- what an operation needs ------------------------------------------------------------------

    def load(self, op: Op) -> None:
        """Fetch the micro-batch where it is needed: inputs of the first slice, labels of the last.

        The first slice's inputs require a gradient when its backward pass is split: B is then as
        much work as on any other rank.
        """
        if not (self.is_first_stage() or self.is_last_stage()):
            return
        start = self.recorder.now()
        at = self.at(op)
        with self.named("L", op.micro_batch, op.chunk):
            self.data_iterator = iter((self.batch(self.global_steps, op.micro_batch),))
            self._exec_load_micro_batch(at)
        if self.split and op[1:] in self.split and self.is_first_stage():
            for tensor in as_list(self.pipe_buffers["inputs"][at]):
                tensor.requires_grad_(tensor.is_floating_point())
        self.recorder.add("L", op.micro_batch, op.chunk, start, self.recorder.now())

    def take_inputs(self, op: Op, awaited: Message | None) -> None:
        """Put the inputs of F where DeepSpeed looks for them: from a message, or another chunk."""
        at, piece = self.at(op), self.pieces[op.chunk]
        if awaited is not None:
            self.pipe_buffers["inputs"][at] = as_given(self.mail.collect(awaited, op))
        elif piece > 0:
            made = self.pipe_buffers["outputs"][self.buffer(op.micro_batch, piece - 1)]
            self.pipe_buffers["inputs"][at] = handed_on(made)

    def take_gradients(self, op: Op, awaited: Message | None) -> None:
        """Put the gradients of what B starts from where DeepSpeed looks for them."""
        at, piece = self.at(op), self.pieces[op.chunk]
        if awaited is not None:
            grads = self.mail.collect(awaited, op)
        elif piece < self.plan.layout.slices - 1:
            after = self.buffer(op.micro_batch, piece + 1)
            received = as_list(self.pipe_buffers["inputs"][after])
            grads = gradients_of(received, self.stage_id, f"gradient {op.micro_batch}")
            self.pipe_buffers["inputs"][after] = None
        else:
            return
        is_tuple = isinstance(self.pipe_buffers["outputs"][at], tuple)
        self.grad_layer = grads if is_tuple else grads[0]

    def post(self, message: Message) -> None:
        """Get ready for a message that will be needed soon."""
        if message.kind == "F" or self.mail.expects(message):
            self.mail.post(message)
            return
        at = self.buffer(message.micro_batch, message.piece_to)
        outputs = as_list(self.pipe_buffers["outputs"][at])
        self.mail.post(message, shapes_of([t for t in outputs if t.is_floating_point()]))

    def dispatch(self, message: Message) -> None:
        """Send what an operation made."""
        at = self.buffer(message.micro_batch, message.piece_from)
        if message.kind == "F":
            tensors = as_list(self.pipe_buffers["outputs"][at])
        else:
            inputs = as_list(self.pipe_buffers["inputs"][at])
            tensors = gradients_of(inputs, message.source, message)
            self.pipe_buffers["inputs"][at] = None
        self.mail.dispatch(message, tensors)

    # -- operations -------------------------------------------------------------------------------

    def forward_pass(self, op: Op) -> None:
        """F: DeepSpeed's forward pass; the loss is kept until this micro-batch's backward pass."""
        at = self.at(op)
        splits = op[1:] in self.split and self.is_first_stage()
        forward = self.split_forward if splits else self._exec_forward_pass
        if self.counts:
            self.counted_forward(forward, at, first=op.micro_batch == 0)
        else:
            forward(at)
        if self.is_last_stage():
            self.kept_losses[at] = self.loss
            self.step_losses[op.micro_batch] = self.loss.detach()

    def backward_pass(self, op: Op) -> None:
        """B: DeepSpeed's backward pass of this micro-batch's own loss, or its first half; then
        the buffers are freed."""
        at = self.at(op)
        if self.is_last_stage():
            self.loss = self.kept_losses.pop(at)
        if op[1:] in self.split:
            self.weight_work[op[1:]] = self.input_half(at)
        else:
            self._exec_backward_pass(at)
        self.pipe_buffers["outputs"][at] = self.pipe_buffers["labels"][at] = None
        self.held_outputs.pop(at, None)
        if self.is_last_stage():
            self.loss = self.loss.detach()
        if self.is_first_stage():
            self.pipe_buffers["inputs"][at] = None
