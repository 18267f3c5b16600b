"""What fits: ZeRO stages x pipeline x tensor parallelism for one model on so many devices.

A table to decide with. DeepSpeed runs ZeRO-0 and 1 with a pipeline, ZeRO-2 and 3 only without one,
so combining ZeRO-3 with a pipeline means another framework (Megatron-LM or torchtitan with FSDP).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pplab.core.batch import ideal_bubble
from pplab.core.memory.pipeline import PipelineMemory, size, transformer_memory
from pplab.core.memory.transformer import Transformer


@dataclass(frozen=True)
class Option:
    """One way to spread a model; `memory` is its worst rank's table.

    gas:    micro-batches of a step (samples / (micro-batch size x replicas), rounded down)
    bubble: ideal idle share of its pipeline (0 without one)
    """

    zero: int
    stages: int
    tensor: int
    replicas: int
    gas: int
    memory: PipelineMemory
    offload: str | None = None

    @property
    def peak(self) -> float:
        """Bytes of the rank that needs most."""
        return self.memory.peak

    @property
    def bubble(self) -> float:
        """Ideal idle share."""
        return ideal_bubble(self.stages, self.gas)

    @property
    def name(self) -> str:
        """ "ZeRO-1, pp 8, tp 2, dp 4"."""
        text = f"ZeRO-{self.zero}, pp {self.stages}, tp {self.tensor}, dp {self.replicas}"
        return text + (f", optimizer on {self.offload}" if self.offload else "")

    def __str__(self) -> str:
        idle = f", {self.bubble:.0%} bubble" if self.stages > 1 else ""
        return f"{self.name}: {size(self.peak)}{idle}"


def options(
    model: Transformer,
    ranks: int,
    device_bytes: float,
    *,
    samples: int,
    micro_batch: int = 1,
    zeros: Iterable[int] = (0, 1, 2, 3),
    offloads: Iterable[str | None] = (None,),
    per_node: int = 8,
    recompute: str = "full",
    precision: str = "bf16-fp32",
) -> list[Option]:
    """Every combination that fits, what communicates least first.

    `samples` is the global batch. Tensor parallelism stays inside a node of `per_node` devices.
    Sorted by offload, ZeRO-2 and 3 last (they communicate at every micro-batch), then by
    tensor-parallel size, stages and ZeRO stage. Combinations DeepSpeed refuses are left out.
    """
    found = []
    choices = list(offloads)
    for zero, stages, tensor in _layouts(model, ranks, tuple(zeros), per_node):
        replicas = ranks // (stages * tensor)
        gas = samples // (micro_batch * replicas)
        if gas < 1:
            continue
        for offload in choices:
            if offload and zero == 0:
                continue
            memory = transformer_memory(
                model,
                stages,
                min(gas, stages),  # beyond P micro-batches 1F1B holds no more
                micro_batch,
                tensor=tensor,
                recompute=recompute,
                zero=zero,
                replicas=replicas,
                precision=precision,
                offload_optimizer=offload,
            )
            if memory.fits(device_bytes):
                found.append(Option(zero, stages, tensor, replicas, gas, memory, offload))
    order = {None: 0, "cpu": 1, "nvme": 2}
    return sorted(found, key=lambda o: (order[o.offload], o.zero >= 2, o.tensor, o.stages, o.zero))


def _layouts(
    model: Transformer, ranks: int, zeros: tuple[int, ...], per_node: int
) -> Iterator[tuple[int, int, int]]:
    tensors = [t for t in range(1, per_node + 1) if per_node % t == 0 and model.heads % t == 0]
    for tensor in tensors:
        if ranks % tensor:
            continue
        for stages in range(1, min(model.layers, ranks // tensor) + 1):
            if ranks % (stages * tensor):
                continue
            for zero in zeros:
                if stages == 1 or zero < 2:
                    yield zero, stages, tensor
