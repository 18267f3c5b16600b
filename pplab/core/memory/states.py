"""Model states of one rank: parameters, gradients and optimizer states, under ZeRO and offload.

Bytes per parameter (ZeRO, arXiv 1910.02054): mixed-precision Adam keeps 2 for the parameter, 2 for
its gradient and K = 12 for the optimizer (fp32 master copy 4, momentum 4, variance 4), 16 in all.
ZeRO-1 divides the 12 by the number of replicas N, ZeRO-2 the gradient's 2 as well, ZeRO-3 all of
it. `parameters` is always what *this rank* computes with: its stage and tensor-parallel slice.

One thing DeepSpeed names otherwise: bf16 with ZeRO-0 *and a pipeline* gets the BF16_Optimizer,
which divides its optimizer states by the replicas, so count it as ``zero=1``
(``runtime/engine.py:2316``).
"""

from __future__ import annotations

from dataclasses import dataclass

DEVICES = (None, "cpu", "nvme")


@dataclass(frozen=True)
class Precision:
    """Bytes per parameter of each kind of model state.

    parameter, gradient: what the model computes with
    accumulated: a second, longer gradient that is summed over the micro-batches of a step. Below
        ZeRO-2 DeepSpeed never divides it by the replicas (``runtime/bf16_optimizer.py``: the fp32
        gradients are as long as all parameters), and keeps the short one only for a moment
    master, moments: the optimizer's copy of the parameter, momentum and variance
    at_step:     a copy of the (local part of the) gradient that lives only during the update
    cloned:      ZeRO's own copy of its part of the parameters, made even of fp32 parameters
        (``zero/stage_1_and_2.py``, ``zero/stage3.py``; measured in tests/runs/test_zero.py)
    """

    name: str
    parameter: int
    gradient: int
    master: int
    moments: int
    accumulated: int = 0
    at_step: int = 0
    cloned: int = 0

    @property
    def optimizer(self) -> int:
        """Bytes of all optimizer states, K of the ZeRO paper."""
        return self.master + self.moments


#: What DeepSpeed does with Adam. ``bf16`` sums gradients in bf16 (ZeRO-1 without
#: ``data_types.grad_accum_dtype``), ``bf16-fp32`` in fp32 (BF16_Optimizer): the 18 bytes a
#: parameter of the BLOOM notes. ``fp16`` copies the gradient to fp32 for the update
#: (``zero/stage_1_and_2.py``, and the 20 bytes of ``estimate_zero2_model_states_mem_needs``).
PRECISIONS = {
    "fp32": Precision("fp32", 4, 4, 0, 8, cloned=4),
    "fp16": Precision("fp16", 2, 2, 4, 8, at_step=4),
    "bf16": Precision("bf16", 2, 2, 4, 8, at_step=4),
    "bf16-fp32": Precision("bf16-fp32", 2, 2, 4, 8, accumulated=4),
}


def precision_of(name: str | Precision) -> Precision:
    """A precision by name; raises ValueError that lists the names."""
    if isinstance(name, Precision):
        return name
    if name not in PRECISIONS:
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}, not {name!r}")
    return PRECISIONS[name]


@dataclass(frozen=True)
class States:
    """Bytes of the model states of one rank, on its device and elsewhere.

    gradients is the most that is alive during a step, at_step what comes on top while the
    optimizer steps. host and nvme: what this rank moved there.
    """

    parameters: float
    gradients: float
    optimizer: float
    at_step: float = 0.0
    host: float = 0.0
    nvme: float = 0.0

    @property
    def device(self) -> float:
        """Parameters, gradients and optimizer states on the device."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def resting(self) -> float:
        """What is left between two steps, when the gradients are gone."""
        return self.parameters + self.optimizer


def model_states(
    parameters: float,
    *,
    zero: int = 0,
    replicas: int = 1,
    precision: str | Precision = "fp16",
    offload_optimizer: str | None = None,
    offload_parameters: str | None = None,
    trainable: float | None = None,
) -> States:
    """Model states of a rank that computes with `parameters` parameters.

    trainable: how many of them have gradients and optimizer states (default: all).
    Offload follows DeepSpeed: optimizer states go to "cpu" or "nvme" from ZeRO-1 on, from ZeRO-2 on
    together with the rank's part of the gradients; ZeRO-1 and 2 treat "nvme" as "cpu"
    (``zero/stage_1_and_2.py:220``); parameters can only be moved under ZeRO-3.
    Raises ValueError for combinations DeepSpeed does not have.
    """
    kind = precision_of(precision)
    _check(zero, replicas, offload_optimizer, offload_parameters)
    learns = parameters if trainable is None else trainable
    own = replicas if zero >= 1 else 1  # optimizer states are divided by
    kept = replicas if zero >= 2 else 1  # gradients are divided by
    held = replicas if zero >= 3 else 1  # parameters are divided by
    weights = kind.parameter * parameters / held
    # With a separate accumulation the short gradient is gone once it was added.
    gradients = (kind.accumulated or kind.gradient) * learns / kept
    optimizer = (kind.optimizer + (kind.cloned if zero else 0)) * learns / own
    at_step = kind.at_step * learns / own
    host = nvme = 0.0
    if offload_optimizer:
        moved = optimizer
        optimizer = at_step = 0.0
        if zero >= 2:
            moved, gradients = moved + gradients, 0.0
        if offload_optimizer == "nvme" and zero == 3:
            nvme += moved
        else:
            host += moved
    if offload_parameters:
        if offload_parameters == "nvme":
            nvme += weights
        else:
            host += weights
        weights = 0.0
    return States(weights, gradients, optimizer, at_step, host, nvme)


def _check(zero: int, replicas: int, optimizer: str | None, parameters: str | None) -> None:
    if zero not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO stages go from 0 to 3, not {zero}")
    if replicas < 1:
        raise ValueError(f"there is at least one replica, not {replicas}")
    for name, device in (("offload_optimizer", optimizer), ("offload_parameters", parameters)):
        if device not in DEVICES:
            raise ValueError(f"{name} is None, 'cpu' or 'nvme', not {device!r}")
    if optimizer and zero == 0:
        raise ValueError("DeepSpeed offloads optimizer states only with ZeRO-1, 2 or 3")
    if parameters and zero != 3:
        raise ValueError("DeepSpeed offloads parameters only with ZeRO-3")
