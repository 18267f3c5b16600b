"""Every collective operation of DeepSpeed, counted where it leaves the rank.

DeepSpeed sends everything through one object, the backend behind ``deepspeed.comm``. Its methods
are wrapped: each call is noted with the operation it happened in and the size of the whole tensor
(all ranks' parts together for all-gather and reduce-scatter). What pplab's own engine sends from
stage to stage does not pass there (see ``mail``) and is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import deepspeed.comm.comm as comm
import torch
from torch import Tensor

#: Methods of the backend, as they are counted. Coalesced calls are one message.
NAMES = {
    "all_reduce": "all-reduce",
    "all_reduce_coalesced": "all-reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "all_gather": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "all_gather_coalesced": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "all_to_all": "all-to-all",
    "send": "send",
    "recv": "receive",
    "isend": "send",
    "irecv": "receive",
}


class Traffic:
    """Counts of one rank. ``at`` says where it is now; ``rows`` gives what was counted.

    Nothing is counted before the first ``at``: building an engine broadcasts all parameters.
    """

    def __init__(self) -> None:
        self._now: tuple[int, str, int] | None = None
        #: (step, operation, micro-batch, message) -> [calls, bytes, ns until the call came back]
        self._found: dict[tuple[int, str, int, str], list[int]] = {}
        backend = comm.cdb
        for name, word in NAMES.items():
            if hasattr(backend, name):
                setattr(backend, name, self._counted(getattr(backend, name), word))

    def at(self, step: int, kind: str, micro_batch: int) -> None:
        """From now on messages belong to this operation ("F", "B", "U", ... of a micro-batch)."""
        self._now = (step, kind, micro_batch)

    def pause(self) -> None:
        """What follows is not DeepSpeed's: count nothing until the next ``at``."""
        self._now = None

    def rows(self) -> list[dict[str, Any]]:
        """One row for each operation and kind of message, in the order of their first call."""
        names = ("step", "during", "micro_batch", "message", "calls", "bytes", "ns")
        return [
            dict(zip(names, (*key, *counts), strict=True)) for key, counts in self._found.items()
        ]

    def _counted(self, method: Callable[..., Any], word: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self._now is None:
                return method(*args, **kwargs)
            start = time.perf_counter_ns()
            try:
                return method(*args, **kwargs)
            finally:
                counts = self._found.setdefault((*self._now, word), [0, 0, 0])
                counts[0] += 1
                counts[1] += largest((*args, *kwargs.values()))
                counts[2] += time.perf_counter_ns() - start

        return counted


def largest(arguments: Any) -> int:
    """Bytes of the largest argument: a tensor, or a list of tensors taken together."""

    def bytes_of(value: Any) -> int:
        if isinstance(value, Tensor):
            return value.numel() * value.element_size()
        return sum(map(bytes_of, value)) if isinstance(value, list | tuple) else 0

    with torch.no_grad():
        return max(map(bytes_of, arguments), default=0)
