"""What DeepSpeed's pipeline engine holds in the first step: counted, not timed.

Activations of all micro-batches in flight, the outputs kept until their backward pass, and the
gradients when all of them are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepspeed.runtime.pipe.engine import PipelineEngine

from pplab.runtime.activations import Kept, SavedBytes
from pplab.runtime.mail import as_list
from pplab.runtime.zero.owned import owned
from pplab.runtime.zero.traffic import Traffic


class CountingEngine(PipelineEngine):
    """What an engine needs to count. Call ``prepare_counts`` first."""

    #: True until the first step of this run (not of a checkpoint's) is over.
    counts: bool
    #: Bytes found on the way (see ``Run.memory``).
    measured: dict[str, int]
    saved: SavedBytes
    #: What DeepSpeed sends at the end of a step; messages between stages are not among it.
    traffic: Traffic
    #: Outputs whose backward pass is still to come, by buffer.
    held_outputs: dict[int, list[Kept]]

    def prepare_counts(self) -> None:
        """Get ready; only the step that follows is counted."""
        self.measured, self.saved, self.held_outputs = {}, SavedBytes(self.module), {}
        self.counts, self.traffic = True, Traffic()

    def counted_forward(self, forward: Callable[[int], Any], at: int, *, first: bool) -> None:
        """A forward pass into buffers `at`; first: of the first micro-batch."""
        before = self.saved.saved.alive
        with self.saved:
            forward(at)
        if first:
            kept = self.measured.get("activation_bytes", 0) + self.saved.saved.alive - before
            self.measured["activation_bytes"] = kept
        if not self.is_last_stage():
            self.held_outputs[at] = self.saved.hold(as_list(self.pipe_buffers["outputs"][at]))
        self.measured["activation_peak"] = self.saved.saved.peak
        self.measured["held_peak"] = self.saved.held.peak

    def count_gradients(self) -> None:
        """All backward passes are done, nothing is reduced yet; ends the counting."""
        if self.counts:
            self.measured["gradients"] = owned(self.module, self.optimizer)["gradients"]
            self.counts = False
