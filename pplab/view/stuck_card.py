"""The static picture of a schedule that cannot run to its end; what stuck.js draws, for paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import FancyArrowPatch

from pplab.view import card as cards
from pplab.view import colours, static, words
from pplab.view.columns import rows_of
from pplab.view.lanes import Grid, draw_lanes
from pplab.view.reach import Arrow, Ghost, Reach

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "Next in line, never starts"
CAP = colours.LIGHT["cap"]
BAR, LINE = 17.0, 13.0  # heights in points: lane, sentence


@dataclass(frozen=True)
class StuckGrid(Grid):
    """Lanes far enough apart for arrows between them, where there are some."""

    arrows: bool = False

    @property
    def bar(self) -> float:
        """Height of a lane."""
        return BAR

    @property
    def pitch(self) -> float:
        """Distance from one rank to the next."""
        return 46.0 if self.arrows else 26.0


class _Panel:
    """Places of the ghosts right of the lanes, in points from the left edge of the panel."""

    def __init__(self, found: Reach, pitch: float) -> None:
        self.found, self.pitch = found, pitch
        self.columns = found.columns()
        widths: dict[int, float] = {}
        for ghost, column, _ in self.columns:
            widths[column] = max(widths.get(column, 0.0), self.wide(ghost))
        self.lefts = [10.0]
        for column in range(len(widths)):
            self.lefts.append(self.lefts[-1] + widths[column] + 46)
        self.says = found.briefs()
        self.width = 0.0
        if not found.ghosts:
            return
        self.width = max(
            self.lefts[-1] - 36 if widths else 0.0,
            cards.wide(HEADING, 8.5, "bold") + 18,
            *(self.beside(rank) + cards.wide(text, 8) + 8 for rank, text in enumerate(self.says)),
        )

    def wide(self, ghost: Ghost) -> float:
        return max(26.0, cards.wide(ghost.label, 8.5) + 11)

    def beside(self, rank: int) -> float:
        """Where the words of a rank begin: right of its first ghost."""
        own = next((ghost for ghost, _, _ in self.columns if ghost.rank == rank), None)
        return 10.0 + (self.wide(own) + 7 if own else 0.0)

    def box(self, ghost: Ghost) -> tuple[float, float, float, float]:
        """(x, y, width, height) from the upper left corner of panel and lanes."""
        column = next(c for g, c, _ in self.columns if g == ghost)
        return self.lefts[column], self.pitch * ghost.rank, self.wide(ghost), BAR


def png(found: Reach) -> bytes:
    """The picture as a PNG."""
    return static.png_of(picture(found))


def picture(found: Reach, *, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide: lanes, panel, and the sentences."""
    across, t = width * 72, found.timeline
    grid = StuckGrid(rows_of([t]), 1, bool(found.arrows))
    panel = _Panel(found, grid.pitch)
    lines = [part for number, text in found.sentences for part in _wrapped(number, text, across)]
    head, keys = cards.BLOCK + 12, cards.legend([t])
    top = cards.MARGIN + head
    under = top + grid.height + static.AXIS + 8
    foot = under + LINE * len(lines) + 8
    key_lines = 1 + cards.place_keys(keys, across)[-1][1]
    card = cards.Card(across, foot + cards.KEYS * key_lines + cards.MARGIN / 2, static.DPI)

    about = ((words.label(t), 8.5, cards.INK, "normal"),)
    block = cards.Block(found.headline, found.caption, 25, about)
    if not found.stuck:
        (block,) = cards.blocks([t], ())
    block.draw(card, cards.MARGIN, cards.MARGIN - 4)
    left = cards.MARGIN + 44
    inside = across - left - panel.width - 2 * cards.MARGIN
    ax = card.axes(left, top, inside, grid.height)
    draw_lanes(ax, [t], grid, inside / 72 * static.DPI)
    for rank in range(len(found.notes)):
        card.say(cards.MARGIN, top + grid.pitch * rank + BAR / 2, f"rank {rank}", 8.5)
    static.time_axis(card, ax, [t], (left, top + grid.height, inside))
    edge = left + inside + 4
    if found.ghosts:
        _waits(card, panel, ax, (left, top, inside), edge)
        _draw_panel(card, panel, edge, top, grid.height)
    for line, (number, text, indent) in enumerate(lines):
        y = under + LINE * (line + 0.5)
        if number:
            _badge(card, cards.MARGIN + 5, y, number)
        card.say(cards.MARGIN + indent, y, text, 8.5)
    cards.draw_legend(card, keys, foot)
    return card.figure


def _wrapped(number: int | None, text: str, across: float) -> list[tuple[int | None, str, float]]:
    """A sentence in lines that fit the card: (number or None, words, indent)."""
    indent, room = 16.0, across - 2 * cards.MARGIN - 16
    found: list[tuple[int | None, str, float]] = []
    line = ""
    for word in text.split(" "):
        if line and cards.wide(f"{line} {word}", 8.5) > room:
            found.append((number if not found else None, line, indent))
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*found, (number if not found else None, line, indent)]


def _waits(
    card: cards.Card, panel: _Panel, ax: Any, box: tuple[float, float, float], edge: float
) -> None:
    """Every waiting rank waits from its last operation on: a line at the foot of its lane."""
    left, top, inside = box
    t = panel.found.timeline
    for rank, kind in enumerate(panel.found.awaited):
        if kind:
            last = float(np.max(t.end[t.rank == rank], initial=0.0))
            x = left + last / ax.get_xlim()[1] * inside
            y = top + panel.pitch * rank + BAR - 2
            card.box(x, y, edge - x, 2.2, facecolor=colours.WORK[kind], linewidth=0)


def _draw_panel(card: cards.Card, panel: _Panel, edge: float, top: float, tall: float) -> None:
    shade = colours.mix(cards.PAGE, cards.INK, 0.06)
    card.box(edge, top - 6, panel.width, tall + 12, facecolor=shade, linewidth=0)
    card.box(edge, top - 6, 1.8, tall + 12, facecolor=CAP, linewidth=0)
    style: dict[str, Any] = {"color": CAP, "weight": "bold"}
    card.say(edge + 8, top - 14, HEADING, 8.5, **style)
    for ghost, column, left_out in panel.columns:
        x, y, w, h = panel.box(ghost)
        x, y = x + edge, y + top
        if column:
            text = f"+{left_out}, then" if left_out else "then"
            card.say(x - 23, y + h / 2, text, 7.5, color=cards.SOFT, ha="center")
        colour = CAP if ghost.wrong else colours.WORK.get(ghost.op.kind, colours.GREY)
        look = {"linestyle": "-" if ghost.wrong else (0, (4, 3)), "linewidth": 1.2}
        card.box(x, y, w, h, facecolor=cards.PAGE, edgecolor=colour, **look)
        card.say(x + w / 2, y + h / 2, ghost.label, 8.5, ha="center")
        if ghost.wrong:
            card.say(x, y, "×", 15, color=CAP, weight="bold", ha="center")
    for rank, text in enumerate(panel.says):
        card.say(edge + panel.beside(rank), top + panel.pitch * rank + BAR / 2, text, 8)
    for arrow in panel.found.arrows:
        _arrow(card, panel, arrow, edge, top)


def _arrow(card: cards.Card, panel: _Panel, arrow: Arrow, edge: float, top: float) -> None:
    xa, ya, wa, h = panel.box(arrow.start)
    xb, yb, wb, _ = panel.box(arrow.end)
    down = yb > ya
    start = (edge + xa + wa / 2, top + ya + (h if down else 0))
    end = (edge + xb + wb / 2, top + yb + (0 if down else h))
    ends = [(x / card.width, 1 - y / card.height) for x, y in (start, end)]
    for colour, line in ((cards.PAGE, 4.5), (CAP, 1.5)):
        style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9}
        style |= {"shrinkA": 0, "shrinkB": 0}
        patch = FancyArrowPatch(*ends, color=colour, linewidth=line, **style)
        patch.set_transform(card.figure.transFigure)
        card.figure.add_artist(patch)
    far = (11 if xa == xb else 7) / abs(end[1] - start[1])
    x, y = (a + (b - a) * far for a, b in zip(start, end, strict=True))
    _badge(card, x, y, arrow.number)


def _badge(card: cards.Card, x: float, y: float, number: int) -> None:
    """A number in a disc."""
    disc = {"boxstyle": "circle,pad=0.2", "facecolor": CAP, "edgecolor": "none"}
    style: dict[str, Any] = {"color": "white", "weight": "bold", "ha": "center", "zorder": 7}
    card.say(x, y, str(number), 7.5, bbox=disc, **style)
