"""Several schedules under each other on one time axis: the columns of such a picture.

Where ``columns`` lays timelines over each other rank by rank, a *stack* keeps each of them whole.
The page draws them as the groups of one picture, in the way it draws replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pplab.core.ops import CODE
from pplab.core.timeline import Timeline
from pplab.view import colours, words
from pplab.view.columns import BLOCK, columns_of, joined, windows


def stack(timelines: Sequence[Timeline], titles: Sequence[str]) -> tuple[dict[str, Any], bytes]:
    """(words, binary block) of simulated timelines of one unit, each with its title above it."""
    rows = [(k, rank) for k, t in enumerate(timelines) for rank in range(t.stages)]
    parts = []
    for k, t in enumerate(timelines):
        alone = replace(t.shifted(), replica=np.full(len(t), k, dtype=np.int32))
        parts.append(columns_of(alone, rows, 0, 1, 0.0))
    table = joined(parts)
    table["twin"] = np.full(len(table["start"]), -1)
    table |= {"held": np.empty(0), "count": np.empty(0, dtype=int)}
    block = b"".join(np.ascontiguousarray(table[name], dtype).tobytes() for name, dtype in BLOCK)
    groups = [
        {
            "title": title,
            "label": words.label(t),
            "outlined": words.is_simulated(t),
            "windows": windows(t.shifted(), 0.0),
        }
        for t, title in zip(timelines, titles, strict=True)
    ]
    kinds = [k for k in "FBWU" if any(np.any(t.kind == CODE[k]) for t in timelines)]
    return {
        "n": len(table["start"]),
        "heldAt": [],
        "cap": None,
        "rows": rows,
        "groups": groups,
        "lines": [{"name": "", "windows": [], "outlined": True, "label": "", "hardware": ""}],
        "ratio": None,
        "kinds": "".join(kinds),
        "split": False,
        "whole": "backward (only the input gradient where W is apart)" if "W" in kinds else "",
        "chunks": max(t.layout.chunks for t in timelines),
        "unit": timelines[0].unit,
        "work": colours.WORK,
        "piled": words.PILED,
    }, block
