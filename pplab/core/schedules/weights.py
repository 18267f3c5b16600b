"""Which weights a micro-batch sees: versions and staleness of a schedule with several updates.

A forward pass uses the newest weights of its rank, and its backward pass the same ones (weight
stashing). ``U(m)`` applies the gradients of the micro-batches up to m that were not applied
before; a ``U`` without number, or none at all, stands for one update at the end of the step.
"""

from __future__ import annotations

from pplab.core.ops import WHOLE_STEP, Op
from pplab.core.schedule import Schedule


def updates_midway(schedule: Schedule) -> bool:
    """True when some rank updates its weights before the end of its step."""
    return any(op.kind == "U" and op is not row[-1] for row in schedule.ops for op in row)


def versions_used(schedule: Schedule) -> tuple[dict[Op, int], ...]:
    """Per rank, how many updates each F of a step finds in its weights."""
    rows = []
    for row in schedule.ops:
        updates, used = 0, {}
        for op in row:
            if op.kind == "U":
                updates += 1
            elif op.kind == "F":
                used[op] = updates
        rows.append(used)
    return tuple(rows)


def versions_held(schedule: Schedule) -> tuple[int, ...]:
    """Per rank, the most versions of its weights needed at once.

    Needed are the newest one and those of every micro-batch whose backward pass (B, or W where it
    is split) is still to come.
    """
    held = []
    for row, used in zip(schedule.ops, versions_used(schedule), strict=True):
        split = {op[1:] for op in row if op.kind == "W"}
        newest, open_, most = 0, {}, 1
        for op in row:
            if op.kind == "F":
                open_[op[1:]] = used[op]
            elif op.kind == "W" or (op.kind == "B" and op[1:] not in split):
                del open_[op[1:]]
            elif op.kind == "U":
                newest += 1
            most = max(most, len({newest, *open_.values()}))
        held.append(most)
    return tuple(held)


def staleness(schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    """Per rank and micro-batch, how many updates old its gradient is when it is applied.

    0 everywhere for a schedule that flushes; with several chunks, the oldest one counts.
    """
    rows = []
    for row, used in zip(schedule.ops, versions_used(schedule), strict=True):
        updates = [op.micro_batch for op in row if op.kind == "U"]
        ages = [0] * schedule.micro_batches
        for op, version in used.items():
            m = op.micro_batch
            applied = next((i for i, u in enumerate(updates) if u == WHOLE_STEP or u >= m), version)
            ages[m] = max(ages[m], applied - version)
        rows.append(tuple(ages))
    return tuple(rows)
