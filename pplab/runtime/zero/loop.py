"""The model whole on every rank, micro-batches dealt out: DeepSpeed's plain engine, ZeRO-0 to 3.

The same layers from the same seeds as in ``plain`` and in the pipeline. Micro-batch m of replica r
is number m * replicas + r of the step, so that a plain loop over replicas * micro_batches of them
sees the same data and must have the same losses.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

from pplab.core.ops import WHOLE_STEP
from pplab.runtime.activations import SavedBytes
from pplab.runtime.job import Job
from pplab.runtime.nets.build import Network, base_seed, set_seed
from pplab.runtime.plain import built, to_device
from pplab.runtime.recorder import Recorder
from pplab.runtime.status import Slot
from pplab.runtime.zero.dynamo import not_compiled
from pplab.runtime.zero.owned import in_buckets, owned, whole_parameters
from pplab.runtime.zero.traffic import Traffic


class Stack(nn.Module):
    """All layers in a row and their loss: (inputs, labels) -> scalar."""

    def __init__(self, modules: dict[int, nn.Module], calls: list[Any], loss: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(dict.fromkeys(modules.values()))
        self.calls, self.loss = calls, loss
        for call in calls:
            if isinstance(call, partial):  # uses the weights of a tied layer outside that layer:
                for parameter in call.args[0].parameters():  # ZeRO-3 has to be told
                    deepspeed.zero.register_external_parameter(self, parameter)

    def forward(self, x: Any, labels: Any) -> Any:
        for call in self.calls:
            x = call(x)
        return self.loss(x, labels)


class DataParallelLoop:
    """One rank of it. ``step`` trains a step and returns the loss over all replicas."""

    def __init__(
        self, job: Job, network: Network, recorder: Recorder, status: Slot, place: dict[str, Any]
    ) -> None:
        if place["staged"]:
            raise ValueError(
                "several ranks share a GPU here, through gloo, which cannot gather and scatter "
                "GPU tensors as ZeRO does: run it with device='cpu', or a GPU for each rank"
            )
        self.job, self.network, self.recorder, self.status = job, network, recorder, status
        self.device, self.replica = place["device"], dist.get_rank()
        self.modules, calls = built(network, base_seed(job))
        stack = Stack(self.modules, calls, network.loss)
        trainable = [p for p in stack.parameters() if p.requires_grad]
        with not_compiled():
            self.engine, *_ = deepspeed.initialize(
                model=stack, model_parameters=trainable, config=job.deepspeed_config()
            )
        set_seed(base_seed(job) - 1 - self.replica)  # dropout: not the same in every replica
        self.traffic = Traffic()
        self.saved = SavedBytes(self.engine.module, moving=job.zero_stage == 3)
        self.step_number = 0
        self.micro_losses: list[list[float]] = []
        self.measured: dict[str, int] = {"whole_parameters": whole_parameters(stack)}
        self._reduce = self.engine.allreduce_gradients
        self.engine.allreduce_gradients = self._reduced
        for module in self.module.modules():
            module.register_forward_pre_hook(self._look_at_parameters)

    @property
    def module(self) -> nn.Module:
        """The model, as the engine holds it."""
        return self.engine.module

    @property
    def optimizer(self) -> Any:
        """DeepSpeed's optimizer."""
        return self.engine.optimizer

    # -- one step ---------------------------------------------------------------------------------

    def step(self) -> float:
        """M micro-batches and one optimizer step; returns the mean loss of all replicas."""
        losses = torch.stack([self._micro_batch(m) for m in range(self.job.micro_batches)])
        self.step_number += 1
        self.traffic.pause()
        dist.all_reduce(mean := losses.mean())
        if self.replica == 0:
            self.micro_losses.append(losses.tolist())
        return float(mean) / self.job.replicas

    def _micro_batch(self, m: int) -> torch.Tensor:
        job, now, add = self.job, self.recorder.now, self.recorder.add
        first, last = self.step_number == 0, m == job.micro_batches - 1
        start = now()
        number = (self.step_number * job.micro_batches + m) * job.replicas + self.replica
        x, labels = (to_device(value, self.device) for value in self.network.batch(number))
        begin = now()
        add("L", m, 0, start, begin)
        self._enter("F", m)
        if first:
            with self.saved:
                loss = self.engine(x, labels)
            self.measured["activation_bytes"] = self.saved.saved.alive
            self.measured["activation_peak"] = self.saved.saved.peak
        else:
            loss = self.engine(x, labels)
        add("F", m, 0, begin, now())
        self._enter("B", m)
        self._begin = now()
        self.engine.backward(loss)  # ends in ``_reduced``
        self._look()
        self._enter("U", WHOLE_STEP)
        begin = now()
        self.engine.step()  # counts the micro-batch; at the last one, the optimizer step
        if last:
            add("U", WHOLE_STEP, 0, begin, now())
        return loss.detach()

    def _reduced(self, *args: Any, **kwargs: Any) -> None:
        """DeepSpeed's gradient reduction at the end of a backward pass: G, not B.

        ZeRO-0 and 1 do nothing here before the last micro-batch; then they wait for all ranks.
        """
        m = self.engine.micro_steps % self.job.micro_batches
        middle = self.recorder.now()
        self.recorder.add("B", m, 0, self._begin, middle)
        self._look()
        self._enter("G", m)
        self._reduce(*args, **kwargs)
        if self.job.zero_stage >= 2 or m == self.job.micro_batches - 1:
            self.recorder.add("G", m, 0, middle, self.recorder.now())

    def _enter(self, kind: str, m: int) -> None:
        self.traffic.at(self.step_number, kind, m)
        name = "U, the optimizer step" if kind == "U" else f"{kind}{m}"
        self.status.say(f"runs {name}")

    def whole(self) -> Any:
        """Context in which all parameters are put together, to be read by rank 0 or any other."""
        return deepspeed.zero.GatheredParameters(list(self.module.parameters()))

    # -- memory, in the first step ----------------------------------------------------------------

    def _look(self) -> None:
        """Note the most there is of gradients, buckets, and what of those is used."""
        if self.step_number:
            return
        found = owned(self.module, self.optimizer)
        found["in_buckets"] = in_buckets(self.optimizer)
        for name in ("gradients", "buckets", "in_buckets"):
            self.measured[name] = max(self.measured.get(name, 0), found[name])

    def _look_at_parameters(self, *_: Any) -> None:
        """Before a module runs: ZeRO-3 has put its parameters together, and maybe more."""
        if not self.step_number:
            now = owned(self.module, self.optimizer)["parameters"]
            self.measured["parameters_peak"] = max(self.measured.get("parameters_peak", 0), now)
