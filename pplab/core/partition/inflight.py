"""How many activations a rank holds at once: read off the order of its operations.

F of a micro-batch through a chunk keeps its activations until the end of its B, or of its W where
the backward pass is split. Operations of a rank run one after another, so no times are needed:
stage s of 1F1B holds min(P - s, M), a stage of GPipe M, and any other schedule what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pplab.core.schedule import Schedule

Ints = NDArray[np.int64]


def in_flight(schedule: Schedule) -> tuple[Ints, ...]:
    """For each rank the largest holdings, shape (k, chunks): k ways to be at a peak.

    With one chunk a rank that is a single number. With several, [2, 1] and [1, 2] are both kept:
    which of them needs more memory depends on the sizes of the chunks. Rows that another row
    exceeds everywhere are left out.
    """
    return tuple(_peaks(row, schedule.chunks) for row in schedule.ops)


def _peaks(ops: tuple, chunks: int) -> Ints:
    split = {(op.micro_batch, op.chunk) for op in ops if op.kind == "W"}
    now = [0] * chunks
    seen = set()
    for op in ops:
        if op.kind == "F":
            now[op.chunk] += 1
            seen.add(tuple(now))
        elif op.kind == "W" or (op.kind == "B" and (op.micro_batch, op.chunk) not in split):
            now[op.chunk] -= 1
    rows = np.array(sorted(seen) or [(0,) * chunks], dtype=np.int64)
    beaten = [np.any(np.all(rows >= row, axis=1) & np.any(rows > row, axis=1)) for row in rows]
    return rows[~np.array(beaten)]
