"""The card a static picture is printed on: headline numbers on top, legend at the foot.

Everything is placed in points from the upper left corner, so that text never scales with the
number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.textpath import TextToPath

from pplab.core.ops import CODE
from pplab.core.timeline import Timeline
from pplab.view import colours, words

FONT = "DejaVu Sans"
PAGE, INK, SOFT, LINE = (colours.LIGHT[name] for name in ("page", "ink", "soft", "line"))
MARGIN, BLOCK, KEYS = 12.0, 50.0, 16.0  # margin, height of a header line, of a legend line
ROW = 15.0  # height of a line of a table
SMALL = 7.5  # size of the smallest text, 11 pixels
GAPS = (22.0, 15.0, 10.0)  # between the blocks of the header, the widest that saves a line


@lru_cache(maxsize=4096)
def wide(string: str, size: float, weight: str = "normal") -> float:
    """Width of a string in points."""
    font = FontProperties(family=FONT, size=size, weight=weight)
    return float(TextToPath().get_text_width_height_descent(string, font, ismath=False)[0])


def wrapped(text: str, room: float, size: float, weight: str = "normal") -> list[str]:
    """A text in lines no wider than `room` points."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and wide(longer, size, weight) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def fitted(text: str, room: float, size: float, weight: str = "normal") -> tuple[str, float]:
    """A name that has to stay in `room` points: smaller down to SMALL, then cut; (text, size)."""
    size = max(SMALL, size * min(1.0, room / max(1.0, wide(text, size, weight))))
    if wide(text, size, weight) <= room + 0.1:
        return text, size
    while len(text) > 1 and wide(f"{text}…", size, weight) > room:
        text = text[:-1].rstrip()
    return f"{text}…", size


class Card:
    """A figure of `width` points with a bordered page; `height` in points."""

    def __init__(self, width: float, height: float, dpi: int) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=dpi, facecolor=PAGE)
        border = Rectangle((0, 0), 1, 1, facecolor="none", edgecolor=LINE, linewidth=2)
        border.set_transform(self.figure.transFigure)
        self.figure.add_artist(border)

    def axes(self, left: float, top: float, across: float, tall: float) -> Axes:
        """Bare axes in a box."""
        w, h = self.width, self.height
        ax = self.figure.add_axes((left / w, 1 - (top + tall) / h, across / w, tall / h))
        ax.set_axis_off()
        return ax

    def say(self, x: float, y: float, string: str, size: float, **style: Any) -> None:
        """Text whose left edge is at `x` and whose middle is at `y`."""
        style = {"color": INK, "va": "center", "family": FONT, **style}
        self.figure.text(x / self.width, 1 - y / self.height, string, fontsize=size, **style)

    def box(self, x: float, y: float, w: float, h: float, **style: Any) -> Rectangle:
        """A rectangle with its upper left corner at (x, y)."""
        sides = (w / self.width, h / self.height)
        patch = Rectangle((x / self.width, 1 - (y + h) / self.height), *sides, **style)
        patch.set_transform(self.figure.transFigure)
        self.figure.add_artist(patch)
        return patch


@dataclass(frozen=True)
class Block:
    """A large number, what it is, and lines of text beside it."""

    value: str
    meaning: str
    size: float
    lines: tuple[tuple[str, float, str, str], ...] = ()  # text, size, colour, weight

    @property
    def number(self) -> float:
        """Width of the number and its meaning."""
        return max(wide(self.value, self.size, "bold"), wide(self.meaning, 7.5)) + 14

    @property
    def width(self) -> float:
        """Width of everything."""
        return self.number + max((wide(s, z, w) for s, z, _, w in self.lines), default=-14.0)

    def draw(self, card: Card, x: float, y: float) -> None:
        """Put it with its upper left corner at (x, y)."""
        card.say(x, y + 15, self.value, self.size, weight="bold")
        card.say(x, y + 36, self.meaning, 7.5, color=SOFT)
        for i, (string, size, colour, weight) in enumerate(self.lines):
            card.say(x + self.number, y + 9 + 13 * i, string, size, color=colour, weight=weight)


def blocks(timelines: Sequence[Timeline], facts: Sequence[tuple[str, str]]) -> list[Block]:
    """The header: the bubble of each timeline (the last one largest), the ratio, more facts."""
    found = []
    for t in timelines:
        lines = [
            (f"step {words.duration(t.step_time, t.unit)}", 10, INK, "bold"),
            (words.label(t), 8.5, INK, "normal"),
        ]
        if words.hardware(t):
            lines.append((words.hardware(t), 7.5, SOFT, "normal"))
        size = 25 if t is timelines[-1] else 15
        number = words.percent(t.bubble)
        found.append(Block(number, "bubble: idle / total", size, tuple(lines)))
    more = list(facts)
    if len(timelines) == 2 and timelines[0].step_time > 0:
        one, other = words.short_names(timelines)
        more.insert(0, (words.ratio(timelines), f"the step, {other} / {one}"))
    return found + [Block(value, meaning, 15) for value, meaning in more]


def place(found: Sequence[Block], across: float) -> list[tuple[float, int]]:
    """(x, line) of each block when a line is `across` points wide."""
    tries = [_placed(found, across, gap) for gap in GAPS]
    return min(tries, key=lambda places: places[-1][1])


def _placed(found: Sequence[Block], across: float, gap: float) -> list[tuple[float, int]]:
    places: list[tuple[float, int]] = []
    x, line = MARGIN, 0
    for block in found:
        if places and x + block.width > across - MARGIN:
            x, line = MARGIN, line + 1
        places.append((x, line))
        x += block.width + gap
    return places


def legend(
    timelines: Sequence[Timeline], *, apart: bool = False
) -> list[tuple[str, dict[str, Any], str]]:
    """Entries of the legend: (swatch, its style, words), in the order of the widget's.

    `apart` says that the timelines stand under each other instead of being laid over each other.
    """
    kinds = {k for k, code in CODE.items() if any(np.any(t.kind == code) for t in timelines)}
    backward = "backward (input gradient)" if "W" in kinds else "backward (whole)"
    text = {"F": "forward", "B": backward, "W": "weight gradient", "U": "optimizer step"}
    keys: list[tuple[str, dict[str, Any], str]] = [
        (k, {"facecolor": colours.WORK[k]}, text[k]) for k in "FBWU" if k in kinds
    ]
    if any(t.layout.chunks > 1 for t in timelines):
        light = {"facecolor": colours.shade("F", 1, 2)}
        keys.append(("", light, "lighter: later chunk"))
    idle = {"facecolor": "none", "hatch": "/////", "edgecolor": colours.LIGHT["hatch"]}
    keys.append(("", idle, "idle"))
    keys.append(("_", {"facecolor": colours.WORK["F"]}, "waiting for F or B"))
    thin = {"S": "sending", "G": "reduction", "L": "loading"}
    others = [word for k, word in thin.items() if k in kinds]
    if others:
        keys.append(("-", {"facecolor": colours.GREY}, ", ".join(others)))
    styles = {words.is_simulated(t) for t in timelines}
    if True in styles:
        edge = {"facecolor": "none", "edgecolor": INK, "linewidth": 1}
        keys.append(("", edge, "outlined: simulated"))
    if False in styles:
        keys.append(("", {"facecolor": INK}, "filled: measured"))
    if len(timelines) > 1 and not apart:
        keys.append(("", {"facecolor": INK, "alpha": 0.3}, "shaded: where they differ"))
    return keys


def draw_table(
    card: Card, top: float, rows: Sequence[Sequence[str]], loud: int | None = None
) -> None:
    """Text in columns as wide as their content, the first row as a heading: quiet, but for one."""
    columns = list(zip(*rows, strict=True))
    widths = [max(wide(text, 8, "bold") for text in column) + 18 for column in columns]
    for line, row in enumerate(rows):
        y, x = top + ROW * (line + 0.5), MARGIN
        if line:
            card.box(MARGIN, top + ROW * line, sum(widths) - 18, 0.8, facecolor=LINE, linewidth=0)
        for column, (string, width) in enumerate(zip(row, widths, strict=True)):
            weight = "bold" if line == 0 else "normal"
            colour = SOFT if line == 0 and column != loud else INK
            card.say(x, y, string, 8, color=colour, weight=weight)
            x += width


def place_keys(
    keys: Sequence[tuple[str, dict[str, Any], str]], across: float
) -> list[tuple[float, int]]:
    """(x, line) of each entry of a legend."""
    places: list[tuple[float, int]] = []
    x, line = MARGIN, 0
    for _, _, meaning in keys:
        need = 22 + wide(meaning, 8)
        if x + need > across - MARGIN:
            x, line = MARGIN, line + 1
        places.append((x, line))
        x += need + 14
    return places


def draw_legend(card: Card, keys: Sequence[tuple[str, dict[str, Any], str]], top: float) -> None:
    """The legend with its upper edge at `top`."""
    for (mark, style, meaning), (x, line) in zip(keys, place_keys(keys, card.width), strict=True):
        y = top + KEYS * line
        card.say(x + 22, y + 5.5, meaning, 8)
        if mark in ("→", "|", "- -"):  # links: an arrow, a line down, a dashed line
            _link(card, mark, (x, y), **style)
            continue
        foot = {"_": (y + 8, 2), "-": (y + 4, 3.5)}.get(mark, (y, 10))
        patch = card.box(x, foot[0], 17, foot[1], **{"linewidth": 0, **style})
        patch.set_hatch_linewidth(0.6)
        if mark == "_":  # half for F, half for B
            card.box(x + 8.5, *(foot[0], 8.5, foot[1]), linewidth=0, facecolor=colours.WORK["B"])
        if mark.isalpha():
            card.say(x + 8.5, y + 5.5, mark, 7, color="white", weight="bold", ha="center")


def _link(card: Card, mark: str, at: tuple[float, float], color: str) -> None:
    """One of the lines that lead from rank to rank, as a swatch."""
    ends = ((8, 0.5), (8, 10.5)) if mark == "|" else ((0, 5.5), (17, 5.5))
    points = [((at[0] + x) / card.width, 1 - (at[1] + y) / card.height) for x, y in ends]
    line = FancyArrowPatch(
        *points, arrowstyle="-|>" if mark == "→" else "-", mutation_scale=8, shrinkA=0, shrinkB=0,
        color=color, linewidth=1.4, linestyle=(0, (3, 2)) if mark == "- -" else "-",
    )  # fmt: skip
    line.set_transform(card.figure.transFigure)
    card.figure.add_artist(line)
