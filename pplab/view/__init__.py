"""Pictures of timelines: live widgets, static pictures, and the same in words.

Nothing heavy is imported before it is used: matplotlib and anywidget load with the first picture.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Case": "which",
    "Comparison": "comparison",
    "Moment": "moments",
    "PartitionComparison": "partition",
    "Player": "player",
    "TimelineView": "timeline",
    "bundle": "show",
    "compare": "show",
    "compare_memory": "memory",
    "compare_partitions": "partition",
    "LiveCurves": "curves",
    "curves": "curves",
    "compare_schedules": "versus",
    "explore": "explorer",
    "how_far": "stuck",
    "moment": "moments",
    "partition_bundle": "partition",
    "picture": "static",
    "play": "player",
    "png": "static",
    "schedule_bundle": "plan",
    "text": "static",
    "timeline_bundle": "show",
    "which_schedule": "which",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"pplab.view.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'pplab.view' has no attribute {name!r}")
