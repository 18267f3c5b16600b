"""ZeRO-3 without TorchDynamo.

DeepSpeed marks the hooks and the parameter coordinator of ZeRO-3 as not to be compiled. The marks
import TorchDynamo at their first use: 0.7 s and 50 MB in every rank, for nothing when nothing is
compiled (see ``preload``). A rank whose model does compile something has it already and keeps them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator


@contextmanager
def not_compiled() -> Iterator[None]:
    """Within it engines are built without the marks."""
    compiler: Any = torch.compiler
    real = compiler.disable
    if "torch._dynamo" not in sys.modules:
        compiler.disable = unmarked
        for name, method in list(vars(PartitionedParameterCoordinator).items()):
            written = getattr(method, "__wrapped__", None)
            code = getattr(method, "__code__", None)
            if written is not None and code and code.co_filename.endswith("_compile.py"):
                setattr(PartitionedParameterCoordinator, name, written)
    try:
        yield
    finally:
        compiler.disable = real


def unmarked(fn: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Like ``torch.compiler.disable``, as a decorator with or without arguments; does nothing."""
    return fn or (lambda function: function)
