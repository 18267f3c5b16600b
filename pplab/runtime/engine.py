"""DeepSpeed's pipeline engine, following any schedule.

``ScheduledEngine`` is DeepSpeed's own ``PipelineEngine`` with one method changed: instead of
DeepSpeed's fixed 1F1B instructions it executes the program that ``core.messages`` derives from a
``Schedule`` (runs, sends and receives in order; see ``orders``). Module, gradient reduction and
optimizer step remain DeepSpeed's; so do its forward and backward passes, except where all they
would add is time (``passes``).

What DeepSpeed's engine assumes of its own order, and is done here instead (facts.md, part b):
- it keeps only the last loss: ``passes`` keeps one a micro-batch;
- received activations and gradients share one buffer, and sends block: see ``mail``;
- buffers are overwritten in a circle: they are freed after the backward pass;
- a rank is one stage: with several chunks a rank, it is told which slice it works on now;
- a backward pass is one operation: ``halves`` puts W off;
- the optimizer steps once, at the end: ``streaming`` has the updates in between.

DeepSpeed's ``pipe_buffers`` hold inputs, outputs and labels by number; here that of a micro-batch
in a chunk is chunk * micro-batches + micro-batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import Tensor

from pplab.core.messages import Instruction, programs, receipts
from pplab.core.ops import WHOLE_STEP, Op
from pplab.core.schedule import Schedule
from pplab.runtime.counting import CountingEngine
from pplab.runtime.halves import HalvesEngine
from pplab.runtime.mail import Mail, as_given, as_list, gradients_of, handed_on
from pplab.runtime.orders import Order, orders
from pplab.runtime.passes import PassesEngine
from pplab.runtime.ranges import Unnamed
from pplab.runtime.recorder import Recorder
from pplab.runtime.status import Slot


class ScheduledEngine(HalvesEngine, CountingEngine, PassesEngine):
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
        direct: bool = False,
        staged: bool = False,
        named: Unnamed | None = None,
    ) -> ScheduledEngine:
        """Make `engine`, whose module is a ``SlicedPipe`` of the plan's layout, follow `plan`.

        batch(step, micro_batch) -> (inputs, labels). direct: see ``passes``. staged: messages go
        through CPU memory (gloo on GPU tensors). named: names operations for profilers.
        """
        engine.__class__ = cls
        assert isinstance(engine, cls)
        rows, rank = programs(plan), engine.stage_id
        engine.plan, engine.program = plan, rows[rank]
        engine.batch, engine.recorder, engine.status = batch, recorder, status
        engine.named = named or Unnamed()
        engine.mail = Mail(engine.grid, engine.device, status, staged, receipts(rows)[rank])
        engine.prepare_passes(direct)
        engine.prepare()
        return engine

    def prepare(self) -> None:
        """What the engine keeps from one operation to another."""
        layout, rank = self.plan.layout, self.stage_id
        self.pieces = [layout.slice_of(rank, chunk) for chunk in range(layout.chunks)]
        self.piece = None if layout.chunks > 1 else rank
        self.split = {op[1:] for op in self.plan.ops[rank] if op.kind == "W"}
        self.micro_losses, self.orders = [], []
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
    #: Loss of each micro-batch in all steps so far, on the rank that computes it.
    micro_losses: list[list[float]]
    #: The program, made ready at the first step.
    orders: list[Order]

    # -- one step ---------------------------------------------------------------------------------

    def _exec_schedule(self, pipe_schedule: Any) -> None:
        """Called by ``train_batch`` with DeepSpeed's schedule, which is put aside."""
        self._reserve_pipe_buffers(self.micro_batches * self.plan.chunks)
        self.fwd_outputs: Any = deque(maxlen=0)  # DeepSpeed adds each loss to it, for nobody
        self.orders = self.orders or orders(self)
        for order in self.orders:
            order()
        if self.plan.chunks > 1:
            self.piece = None
        self.finish_step()
        if self.is_last_stage():
            self.micro_losses.append(self.step_losses.tolist())

    #: A plan may end with U or leave it out: the engine does it when every rank is done.
    updates_at_the_end = True

    def compute(self, op: Op, at: int, arrived: list[Tensor] | None) -> None:
        """The work of an operation in buffers `at`; arrived: the message it waited for."""
        if op.kind == "F":
            self.forward_pass(op, at, arrived)
        elif op.kind == "B":
            self.backward_pass(op, at, arrived)
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

    def turn_to(self, chunk: int) -> None:
        """Work on another slice from now on."""
        self.piece = self.pieces[chunk]
        self.module.activate(chunk)

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

    # -- operations -------------------------------------------------------------------------------

    def load(self, op: Op, at: int) -> None:
        """Fetch the micro-batch where it is needed: inputs of the first slice, labels of the last.

        The first slice's inputs require a gradient when its backward pass is split: B is then as
        much work as on any other rank.
        """
        self.load_at(at, self.batch(self.global_steps, op.micro_batch))
        if op[1:] in self.split and self.is_first_stage():
            for tensor in as_list(self.pipe_buffers["inputs"][at]):
                tensor.requires_grad_(tensor.is_floating_point())

    def forward_pass(self, op: Op, at: int, arrived: list[Tensor] | None) -> None:
        """F: of what arrived, or of what another slice on this rank put out, or of a batch."""
        if arrived is not None:
            self.pipe_buffers["inputs"][at] = as_given(arrived)
        elif (piece := self.pieces[op.chunk]) > 0:
            made = self.pipe_buffers["outputs"][self.buffer(op.micro_batch, piece - 1)]
            self.pipe_buffers["inputs"][at] = handed_on(made)
        splits = op[1:] in self.split and self.is_first_stage()
        forward = self.split_forward if splits else self.forward_at
        if self.counts:
            self.counted_forward(forward, at, first=op.micro_batch == 0)
        else:
            forward(at)

    def backward_pass(self, op: Op, at: int, arrived: list[Tensor] | None) -> None:
        """B, or its first half: from the gradients that arrived, or those of another slice on this
        rank, or from the loss of this micro-batch; then the buffers are freed."""
        if arrived is None and (piece := self.pieces[op.chunk]) < self.plan.layout.slices - 1:
            after = self.buffer(op.micro_batch, piece + 1)
            received = as_list(self.pipe_buffers["inputs"][after])
            arrived = gradients_of(received, self.stage_id, f"gradient {op.micro_batch}")
            self.pipe_buffers["inputs"][after] = None
        if op[1:] in self.split:
            self.weight_work[op[1:]] = self.input_half(at, arrived)
        else:
            self.backward_at(at, arrived)
        self.keep_loss(at, op.micro_batch)
        self.pipe_buffers["outputs"][at] = self.pipe_buffers["labels"][at] = None
        self.held_outputs.pop(at, None)
        if self.is_first_stage():
            self.pipe_buffers["inputs"][at] = None
