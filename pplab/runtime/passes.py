"""Forward and backward passes of a pipeline rank, straight through the module and autograd.

DeepSpeed wraps both in hooks, timers, contexts and locks: for loss scaling, ZeRO, autocast, deep
compilation, profilers. In fp32 without ZeRO, with no DeepSpeed setting of the learner's, none of
them has anything to do, but a rank that has just slept or waited runs their code from memory, not
from its caches: 0.4 ms a pass on a small virtual machine, with every micro-batch. So there the
engine is ``direct``: it calls the same module, divides the loss by the number of micro-batches as
DeepSpeed does, and tells the mean loss on the rank that computes it. (DeepSpeed broadcasts it to
all ranks at the end of a step, while they wait.) Losses and gradients are the same, bit for bit.

Not direct, everything here is DeepSpeed's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import Tensor

from pplab.runtime.job import Job


def can_be_direct(job: Job) -> bool:
    """True when DeepSpeed's wrappers around a pass have nothing to do."""
    return not job.zero and job.dtype == "fp32" and not job.config


class PassesEngine(PipelineEngine):
    """What an engine needs for passes of its own. Call ``prepare_passes`` first.

    Losses by micro-batch are kept in any case: DeepSpeed's engine keeps only the last one.
    """

    #: True when passes are called without DeepSpeed's wrappers.
    direct: bool
    #: The gradient of the mean loss with respect to one loss, made when the first one is there.
    share: Tensor | None
    #: The layers of this rank, one after the other; the loss of their outputs; their parameters.
    layers: Callable[[Any], Any]
    loss_of: Callable[[Any, Any], Tensor]
    trained: list[torch.nn.Parameter]
    #: Where DeepSpeed's passes put a loss, and look for it.
    loss: Any
    #: Losses whose backward pass is still to come, by buffer.
    kept_losses: dict[int, Tensor]
    #: Loss of each micro-batch of this step, (M,), in one tensor: M small ones that live to the end
    #: of a step would cut up the memory that activations leave. And whose came last.
    step_losses: Tensor
    latest: int | None

    def prepare_passes(self, direct: bool) -> None:
        """Get ready."""
        self.direct, self.share = direct, None
        self.kept_losses, self.latest = {}, None
        self.trained = list(self.module.parameters())
        recomputes = self.module.activation_checkpoint_interval
        self.layers = self.module.forward if recomputes else self.module.in_a_row
        self.loss_of = self.module.loss_fn
        self.module.train()

    def train_batch(self, data_iter: Any = None) -> Tensor | None:
        """One step; returns the mean loss, in a direct engine on ranks that compute it only."""
        if not self.direct:
            return super().train_batch(data_iter)
        self._exec_schedule(None)
        return self.mean_loss() if self.is_last_stage() else None

    def load_at(self, at: int, batch: Any) -> None:
        """Put what this rank needs of a batch (inputs, labels) into buffers `at`: the inputs if it
        works on the first slice, the labels if on the last; a tensor or a tuple each."""
        if not self.direct:
            self.data_iterator = iter((batch,))
            self._exec_load_micro_batch(at)
            return
        if self.is_first_stage():
            self.pipe_buffers["inputs"][at] = self.moved(batch[0])
        if self.is_last_stage():
            self.pipe_buffers["labels"][at] = self.moved(batch[1])

    def moved(self, value: Any) -> Any:
        """A tensor, or a tuple of them, on this rank's device and cut off from any graph; labels
        that are something else stay as they are, as DeepSpeed leaves them."""
        if isinstance(value, Tensor):
            return value.to(self.device).detach()
        return tuple(map(self.moved, value)) if isinstance(value, tuple | list) else value

    def forward_at(self, at: int) -> None:
        """The forward pass of what is in buffers `at`; on the last stage, its loss too."""
        if self.direct:
            given = self.pipe_buffers["inputs"][at]
            # copied, as DeepSpeed does: layers may change their input, and a leaf must not change
            inputs = given.clone() if isinstance(given, Tensor) else tuple(t.clone() for t in given)
            outputs = self.pipe_buffers["outputs"][at] = self.layers(inputs)
            if self.is_last_stage():
                self.kept_losses[at] = self.loss_of(outputs, self.pipe_buffers["labels"][at])
            return
        self._exec_forward_pass(at)
        if self.is_last_stage():
            self.kept_losses[at], self.loss = self.loss, None

    def backward_at(self, at: int, grads: list[Tensor] | None) -> None:
        """The backward pass of what is in buffers `at`: from its loss on the last stage, else from
        the gradients of its floating-point outputs."""
        outputs = self.pipe_buffers["outputs"][at]
        if self.direct and grads is None:
            loss = self.kept_losses[at]
            loss.backward(self.share_of(loss))
        elif self.direct:
            made = [outputs] if isinstance(outputs, Tensor) else outputs
            torch.autograd.backward([t for t in made if t.is_floating_point()], grads)
        elif grads is None:
            self.loss = self.kept_losses[at]
            self._exec_backward_pass(at)
            self.loss = None
        else:
            self.grad_layer = grads if isinstance(outputs, tuple) else grads[0]
            self._exec_backward_pass(at)

    def keep_loss(self, at: int, m: int) -> None:
        """After the backward pass of micro-batch m, in buffers `at`: keep the number only."""
        loss = self.kept_losses.pop(at, None)
        if loss is None:
            return
        if self.latest is None:
            self.step_losses = loss.new_empty(self.micro_batches)
        self.step_losses[m] = loss.detach()
        self.latest = m

    def share_of(self, loss: Tensor) -> Tensor:
        """What a loss adds to the mean over micro-batches, as a gradient to start from."""
        if self.share is None:
            self.share = torch.ones_like(loss) / self.gradient_accumulation_steps()
        return self.share

    def zero_grad(self) -> None:
        """DeepSpeed's, which looks for the parameters through all modules every time."""
        for parameter in self.trained:
            parameter.grad = None

    def mean_loss(self) -> Tensor:
        """The mean loss of the step: over micro-batches, added up as DeepSpeed does, and replicas.

        A collective between the replicas of the last stage.
        """
        total = self.step_losses.new_zeros(())
        for loss in self.step_losses:
            total += loss
        mean = total / self.micro_batches
        if self.is_data_parallel:
            dist.all_reduce(mean, group=self.mpu.get_data_parallel_group())
            mean /= self.dp_world_size
        return mean
