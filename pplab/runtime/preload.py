"""Everything a rank imports, imported once in the server so that its forks share the pages.

Two imports are kept out, which nothing here needs and which would cost each learner 200 MB and 5 s:

- DeepSpeed decorates a function of its Muon optimizer with ``torch.compile`` as soon as any
  optimizer is configured, which pulls in the whole of TorchInductor. While that module is imported,
  ``torch.compile`` does nothing.
- torch's optimizers import TorchDynamo at their first use, to tell a compiler that might be running
  to break its graph. Nothing is compiled here: their methods are called as they were written.

A learner's own layer may still use ``torch.compile``; it then imports both for itself.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

#: What a rank imports on its way to the first operation.
MODULES = (
    "torch", "numpy.random", "deepspeed", "deepspeed.pipe", "cloudpickle", "psutil",
    "pplab.runtime.train",
    "torch.fx.experimental.symbolic_shapes",  # a backward pass with a given gradient wants it
    # what deepspeed.initialize would import in every rank for itself
    "deepspeed.module_inject.auto_ep_layer", "deepspeed.module_inject.auto_ep_config",
    "deepspeed.moe.ep_repack", "torch.profiler._cupti_monitor",
)  # fmt: skip


def preload() -> None:
    """Import what the ranks need."""
    for name in MODULES:
        with contextlib.suppress(ImportError):  # a private module of another version
            importlib.import_module(name)
    _muon_uncompiled()
    _optimizers_without_dynamo()
    from pplab.runtime.nets.batches import text_bytes

    text_bytes()


def _muon_uncompiled() -> None:
    import torch

    def compile_nothing(model: Any = None, **_: Any) -> Any:
        return model if model is not None else lambda function: function

    real, torch.compile = torch.compile, compile_nothing
    try:
        importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")
    except ImportError:
        pass  # another DeepSpeed: nothing to save
    finally:
        torch.compile = real


def _optimizers_without_dynamo() -> None:
    import torch

    base: Any = torch.optim.Optimizer
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        written = getattr(getattr(base, name), "__wrapped__", None)
        if written is not None:
            setattr(base, name, written)
    kinds: tuple[Any, ...] = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
    for kind in kinds:
        written = getattr(kind.__dict__.get("step"), "__wrapped__", None)
        if written is not None:
            kind.step = torch.no_grad()(written)
