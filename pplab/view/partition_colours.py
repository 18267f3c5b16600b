"""The colours of stages: neighbours always differ, for every kind of colour vision.

Six that repeat; none is a colour of F, B, W or U. They were searched for: any two neighbours, the
last and the first too, lie at least 25 apart (CIE 1976) under normal vision, protanopia,
deuteranopia and tritanopia, and each has a contrast of 3 or more on a light and on a dark page.
They repeat, so a picture also names the stages, and hatches those that are too narrow for a name.
"""

from __future__ import annotations

from pplab.view.colours import mix

STAGES = ("#4a8ad4", "#a08420", "#e0679a", "#6c4ad0", "#ad3494", "#666a3c")


def stage_colour(rank: int, chunk: int = 0, chunks: int = 1) -> str:
    """Colour of a rank's layers; later chunks are lighter, as in every picture."""
    return mix(STAGES[rank % len(STAGES)], "#ffffff", 0.55 * chunk / max(1, chunks - 1))
