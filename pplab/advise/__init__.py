"""Advice: a config checker, and (see its siblings) what a timeline says about a slow run."""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {"check": "pplab.advise.check", "diagnose": "pplab.advise.diagnose"}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return importlib.import_module(_WHERE[name])
    raise AttributeError(f"module 'pplab.advise' has no attribute {name!r}")
