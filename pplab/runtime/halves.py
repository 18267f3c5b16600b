"""B and W as operations of their own, on DeepSpeed's pipeline engine (see ``split_backward``).

DeepSpeed's hooks know nothing of half a backward pass. Three things are seen to here: its hooks on
outputs and parameters are told to expect a backward pass; the gradient of the loss is divided by
the number of micro-batches once, not again when W passes the same place; and under bf16 the fp32
sums of DeepSpeed's optimizer are filled after W, where they would else stay empty without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from pplab.runtime.mail import as_list
from pplab.runtime.passes import PassesEngine
from pplab.runtime.split_backward import WeightWork, backward_inputs


class HalvesEngine(PassesEngine):
    """What an engine needs to run B now and W later. Call ``prepare_halves`` first."""

    #: What B left for W, by (micro-batch, chunk).
    weight_work: dict[tuple[int, int], WeightWork]
    #: What the first layers put out, by buffer, and the list that is being filled now.
    first_outputs: dict[int, list[GradientEdge]]
    noted: list[GradientEdge] | None
    #: True while B or W of a split backward pass runs.
    halved: bool

    def prepare_halves(self, first: list[Any]) -> None:
        """Get ready; `first`: layers of the model's first slice, if this rank splits its B's.

        When integers come in, no input needs a gradient and B goes as far as the first layer's
        outputs, which that layer has to tell.
        """
        self.weight_work, self.first_outputs = {}, {}
        self.noted, self.halved = None, False

        def note(layer: Any, args: Any, output: Any) -> None:
            if self.noted is not None and not self.noted:
                tensors = [output] if isinstance(output, Tensor) else output
                given = [t for t in tensors if isinstance(t, Tensor) and t.requires_grad]
                self.noted += map(get_gradient_edge, given)

        for layer in first:
            if isinstance(layer, torch.nn.Module):
                layer.register_forward_hook(note)

    def split_forward(self, at: int) -> None:
        """The forward pass of a micro-batch in the first slice whose B will be split."""
        self.noted = self.first_outputs[at] = []
        self.forward_at(at)
        self.noted = None

    def input_half(self, at: int, grads: list[Tensor] | None) -> WeightWork:
        """B: input gradients of the micro-batch in buffers `at`, from the gradients of its outputs
        or, on the last stage, from its loss; returns what is left for W."""
        if grads is None:
            outputs = [self.kept_losses[at]]
            grads = [self.share_of(outputs[0])]
        else:
            made = as_list(self.pipe_buffers["outputs"][at])
            outputs = [t for t in made if t.is_floating_point()]
        inputs = as_list(self.pipe_buffers["inputs"][at])
        with self.half():
            return backward_inputs(outputs, grads, inputs, self.first_outputs.pop(at, ()))

    def weight_half(self, work: WeightWork) -> None:
        """W: the weight gradients that B left, added to those of the other micro-batches."""
        if self.using_bf16_optimizer:
            self.optimizer.clear_lp_grads()
        with self.half():
            work.run()
        if self.using_bf16_optimizer:
            self.optimizer.update_hp_grads(clear_lp_grads=False)

    @contextmanager
    def half(self) -> Iterator[None]:
        """Around B and W: DeepSpeed's hooks are to expect them and to leave gradients alone."""
        self._running_engine_backward = self.halved = True
        try:
            yield
        finally:
            self._running_engine_backward = self.halved = False

    def _backward_prologue_per_tensor(self, grad: Tensor) -> Tensor:
        return grad if self.halved else super()._backward_prologue_per_tensor(grad)
