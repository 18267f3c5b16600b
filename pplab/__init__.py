"""pplab: DeepSpeed pipelines, simulated and run for real, seen as one timeline.

Names are imported when first used, so that ``import pplab`` stays quick; neither torch nor
DeepSpeed is ever imported into this process.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: Public name -> module that defines it.
_WHERE = {
    **dict.fromkeys(("F", "B", "W", "U", "Op"), "pplab.core.ops"),
    **dict.fromkeys(("schedule", "Schedule", "ScheduleError"), "pplab.core.schedule"),
    "Costs": "pplab.core.costs",
    "breakdown": "pplab.core.breakdown",
    **dict.fromkeys(("partition", "devices", "Links"), "pplab.core.partition"),
    "LayerProfile": "pplab.core.profile",
    "holds": "pplab.teach.checks",
    "audit": "pplab.teach.audit",
    "quiz": "pplab.teach.quiz",
    "predict": "pplab.teach.predict",
    "open_lab": "pplab.teach.lab",
    "Timeline": "pplab.core.timeline",
    "run": "pplab.runtime.run",
    "Run": "pplab.runtime.record",
    "rebalance": "pplab.runtime.rebalance",
    "profile": "pplab.runtime.profiling.ask",
    "RunError": "pplab.runtime.failure",
    "Faults": "pplab.runtime.faults",
    "check": "pplab.advise.check",
    "diagnose": "pplab.advise.diagnose",
    **dict.fromkeys(("tune", "Tuning"), "pplab.advise.tune"),
    **dict.fromkeys(("sweep", "Sweep", "Sweeps"), "pplab.runtime.sweep"),
    "hardware": "pplab.runtime.hardware",
    "offload": "pplab.runtime.zero.offload",
    **dict.fromkeys(("warm", "cool"), "pplab.runtime.client"),
    **dict.fromkeys(
        (
            "compare",
            "compare_memory",
            "compare_partitions",
            "compare_schedules",
            "curves",
            "LiveCurves",
            "explore",
            "how_far",
            "play",
            "which_schedule",
        ),
        "pplab.view",
    ),
}
_MODULES = {
    "batch": "pplab.core.batch",
    "memory": "pplab.core.memory",
    "models": "pplab.runtime.models",
    "schedules": "pplab.core.schedules",
    "traces": "pplab.traces",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'pplab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_MODULES])
