"""Numbers and names as every picture prints them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pplab.core.profile import Profile
from pplab.core.timeline import Timeline
from pplab.core.words import duration as duration
from pplab.core.words import number as number
from pplab.core.words import scale as scale

#: Printed where single operations are too small to draw.
PILED = "More operations than pixels: heights show shares of time."


def percent(share: float) -> str:
    """0.27272 as ``27.3 %``."""
    return f"{share * 100:.1f} %"


def ratio(timelines: Sequence[Timeline]) -> str:
    """Step time of the second timeline over that of the first: ``1.08×``."""
    return f"{timelines[1].step_time / timelines[0].step_time:.2f}×"


def ticks(longest: float, about: float) -> list[float]:
    """Round numbers from 0 to `longest`, `about` so many of them or fewer."""
    rough = longest / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(s * size for s in (1, 2, 5, 10) if s * size >= rough * (1 - 1e-9))
    return [round(i * step, 12) for i in range(int(longest / step + 1e-9) + 1)]


def hardware(timeline: Timeline | Profile) -> str:
    """What a timeline (or a profile) ran on, in a few words; "" for a simulation.

    Reads what ``pplab.hardware()`` writes (cores, cpu, gpus), or a `summary` when there is one.
    """
    about = timeline.hardware
    if "summary" in about:
        return str(about["summary"])
    cards = [str(card) for card in about.get("gpus") or ()]
    parts = []
    if "cores" in about:
        parts.append(f"{about['cores']} CPU core" + ("s" if about["cores"] != 1 else ""))
    if cards:
        parts.append(f"{len(cards)} x {cards[0]}")
    elif about.get("cpu"):
        parts.append(str(about["cpu"]))
    return ", ".join(parts)[:60]


def label(timeline: Timeline) -> str:
    """The source, always, and the schedule: ``simulated, 1F1B``."""
    return ", ".join(filter(None, (timeline.source, timeline.schedule)))


def short_names(timelines: Sequence[Timeline]) -> list[str]:
    """The shortest words that tell the timelines of one picture apart."""
    for names in (
        [t.source.split(":")[0] for t in timelines],
        [t.schedule for t in timelines],
        [t.source.split(":")[-1].strip() for t in timelines],
        [f"M={t.micro_batches}" for t in timelines],
    ):
        if len(set(names)) == len(names) and all(names):
            return names
    return [("first", "second", "third", "fourth")[i] if i < 4 else f"no. {i + 1}"
            for i in range(len(timelines))]  # fmt: skip


def is_simulated(timeline: Timeline) -> bool:
    """True when a timeline was computed: drawn outlined, never filled."""
    return timeline.source.startswith("simulated")
