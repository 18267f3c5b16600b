"""A diagnosis: where the time of a step goes, which cause comes first, and what it costs.

One file an idea: ``network`` (who waits for whom, replayed), ``recorded`` and ``imported`` (a
network from a timeline, from a trace of the straggler study), ``factors`` (stage, worker or
micro-batch?), ``parts`` (where the time goes), ``causes`` (what could be removed: ``computing`` and
``between``), ``layers`` (which layers to move), ``report`` (the answer), ``diagnosis`` (the
question), ``cli``.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Imported when first used: the command line asks for its options long before it diagnoses.
_WHERE = {
    "Cause": "pplab.advise.diagnose.cause",
    "Diagnosis": "pplab.advise.diagnose.report",
    "Part": "pplab.advise.diagnose.parts",
    "diagnose": "pplab.advise.diagnose.diagnosis",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'pplab.advise.diagnose' has no attribute {name!r}")
