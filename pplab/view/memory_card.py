"""The picture of ``MemoryBars``: two bars a row, predicted outlined, measured filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pplab.core.memory import size
from pplab.view import card as cards
from pplab.view import colours
from pplab.view.memory import PARTS, Holding, MemoryBars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colour of each part. None is that of a kind of work: memory is no time.
COLOURS = {
    "parameters": "#0b6e75",
    "gradients": "#a8650a",
    "optimizer": "#6a4c93",
    "activations": "#5f6b1f",
}
BAR, BETWEEN, ROW = 13.0, 2.0, 40.0  # points
DPI = 110


def picture(bars: MemoryBars, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide."""
    across = width * 72
    top = cards.MARGIN + cards.BLOCK + 6
    keys: list[tuple[str, dict[str, Any], str]] = [
        (PARTS[part], {"facecolor": COLOURS[part]}, part)
        for part in PARTS
        if any(part in row.measured for row in bars.rows)
    ]
    edge: dict[str, Any] = {"facecolor": "none", "edgecolor": cards.INK, "linewidth": 1}
    keys += [("", edge, "outlined: predicted"), ("", {"facecolor": cards.INK}, "filled: measured")]
    under = top + ROW * len(bars.rows) + 4
    lines = 1 + cards.place_keys(keys, across)[-1][1]
    card = cards.Card(across, under + cards.KEYS * lines + cards.MARGIN / 2, DPI)
    for block, (x, line) in zip(_blocks(bars), cards.place(_blocks(bars), across), strict=True):
        block.draw(card, x, cards.MARGIN - 4 + cards.BLOCK * line)
    left = (
        cards.MARGIN
        + 10
        + max(max(cards.wide(row.name, 8.5, "bold"), cards.wide(row.who, 7.5)) for row in bars.rows)
    )
    right = 88.0  # room for the totals
    most = max(max(row.told, row.found) for row in bars.rows)
    per = (across - left - right - cards.MARGIN) / most
    for number, row in enumerate(bars.rows):
        _row(card, row, left, top + ROW * number, per)
    cards.draw_legend(card, keys, under)
    return card.figure


def _blocks(bars: MemoryBars) -> list[cards.Block]:
    rows = bars.rows
    worst = max(rows, key=lambda row: abs(row.error))
    lines = (
        (f"worst: {worst.name}, {worst.who}", 9.0, cards.INK, "bold"),
        ("bytes really allocated, counted storage by storage", 8.5, cards.INK, "normal"),
        ("at the worst moment of a step; buckets left out", 7.5, cards.SOFT, "normal"),
    )
    found = [cards.Block(_percent(worst.error), "predicted against measured", 25, lines)]
    worst_of = {row.name: max(r.found for r in rows if r.name == row.name) for row in rows}
    if len(worst_of) > 1:  # runs compare by the rank of each that needs most
        low, high = min(worst_of, key=worst_of.__getitem__), max(worst_of, key=worst_of.__getitem__)
        share = f"{worst_of[low] / worst_of[high]:.0%}"
        found.append(cards.Block(share, f"{low} / {high}", 15))
    return found


def _percent(error: float) -> str:
    return f"{error:+.1%}" if abs(error) >= 0.0005 else "0.0%"


def _row(card: cards.Card, row: Holding, left: float, top: float, per: float) -> None:
    card.say(cards.MARGIN, top + BAR - 4, row.name, 8.5, weight="bold")
    card.say(cards.MARGIN, top + BAR + 8, row.who, 7.5, color=cards.SOFT)
    for line, amounts in enumerate((row.predicted, row.measured)):
        x, y = left, top + line * (BAR + BETWEEN)
        for part, amount in amounts.items():
            wide, base = amount * per, COLOURS[part]
            face = base if line else colours.mix(colours.LIGHT["page"], base, 0.2)
            style = {"facecolor": face, "edgecolor": cards.PAGE if line else base}
            card.box(x, y, wide, BAR, linewidth=0.9, **style)
            ink = colours.ink_on(base) if line else cards.INK
            for text in (f"{PARTS[part]} {size(amount)}", PARTS[part]):
                if wide > cards.wide(text, 7.5) + 5:
                    card.say(x + wide / 2, y + BAR / 2 + 0.3, text, 7.5, color=ink, ha="center")
                    break
            x += wide
        total = sum(amounts.values())
        weight = "bold" if line else "normal"
        card.say(x + 6, y + BAR / 2, size(total), 8, weight=weight)
