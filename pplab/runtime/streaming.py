"""Asynchronous schedules on the engine: weights that change while micro-batches are in flight.

PipeDream and PipeDream-2BW treat the micro-batches of a step as a stream and update on the way;
``weight_versions`` does the work, for which see there, also for what of DeepSpeed is still used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from pplab.core.ops import WHOLE_STEP, Op
from pplab.runtime.engine import ScheduledEngine
from pplab.runtime.weight_versions import WeightVersions

EVERY = 0.2  # seconds between two messages about the loss


class StreamingEngine(ScheduledEngine):
    """A ScheduledEngine whose plan updates the weights midway. ZeRO-0, fp32, no clipping."""

    updates_at_the_end = False
    #: True while DeepSpeed is not to divide losses by the number of micro-batches: U does it.
    whole_losses = False
    versions: WeightVersions
    #: Tells the notebook about the loss, on the rank that knows it, every EVERY seconds.
    tell: Callable[[dict[str, Any]], None] | None = None
    told = 0.0

    def prepare(self) -> None:
        super().prepare()
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.versions = WeightVersions(self.plan.ops[self.stage_id], trained, self.optimizer)

    def compute(self, op: Op, at: int, arrived: list[Tensor] | None) -> None:
        if op.kind == "U":
            self.versions.update(op, self._exec_reduce_grads if self.is_data_parallel else None)
            if self.lr_scheduler is not None:
                self.lr_scheduler.step()
            self.tell_loss()
            return
        self.versions.before(op)
        self.whole_losses = True
        super().compute(op, at, arrived)
        self.whole_losses = False
        self.versions.after(op)

    def tell_loss(self) -> None:
        """The loss of the last micro-batch, for the eye; a message of some 30 us."""
        now = time.monotonic()
        if self.tell is None or self.latest is None or now < self.told + EVERY:
            return
        self.told = now
        m = self.latest
        loss = float(self.step_losses[m])
        self.tell({"event": "stream", "step": self.global_steps, "micro_batch": m, "loss": loss})

    def gradient_accumulation_steps(self) -> int:
        return 1 if self.whole_losses else super().gradient_accumulation_steps()

    def finish_step(self) -> None:
        """The end of a stream: every update is done, DeepSpeed's counters go on."""
        self.mail.flush()
        self.status.say("waits for the other ranks, to end the step")
        start = self.recorder.now()
        self.versions.use(self.versions.newest)
        self.counts = False
        self.measured["weight_versions"] = self.versions.peak_bytes
        self.measured["weight_versions_held"] = self.versions.peak_count
        self.global_steps += 1
        self.global_samples += self.train_batch_size()
        self.recorder.add("G", WHOLE_STEP, 0, start, self.recorder.now())
