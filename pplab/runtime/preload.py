"""Everything a rank imports, imported once in the server so that its forks share the pages.

One import is worth a trick. DeepSpeed decorates a function of its Muon optimizer with
``torch.compile`` as soon as any optimizer is configured, which pulls in the whole of TorchInductor
(4 s, 150 MB) for nothing: while that module is imported, ``torch.compile`` does nothing.
``torch._dynamo`` itself comes with any optimizer (1.5 s).
"""

from __future__ import annotations

import importlib
from typing import Any

#: What a rank imports on its way to the first operation.
MODULES = (
    "torch", "torch._dynamo", "deepspeed", "deepspeed.pipe", "cloudpickle", "psutil",
    "pplab.runtime.train",
)  # fmt: skip


def preload() -> None:
    """Import what the ranks need."""
    for name in MODULES:
        importlib.import_module(name)
    _muon_uncompiled()
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
