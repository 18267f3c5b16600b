"""The static picture of a sweep: what the widget shows, on a card of its own colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pplab.runtime.sweep.result import Sweep
from pplab.view import card as cards
from pplab.view import colours
from pplab.view.static import DPI, png_of
from pplab.view.sweep_panels import describe

WIDTH, TALL, GAP = 8.6 * 72, 258.0, 58.0  # points: the card, its panels, between two columns
MARKS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^"}
#: Behind a word that stands on lines.
BEHIND = {"boxstyle": "square,pad=0.12", "facecolor": colours.LIGHT["page"], "linewidth": 0}
PAGE, INK, SOFT, LINE, CAP = (colours.LIGHT[k] for k in ("page", "ink", "soft", "line", "cap"))


def png(sweeps: Sequence[Sweep]) -> bytes:
    """The picture as a PNG of some 20 to 50 KB."""
    return png_of(picture(sweeps))


def picture(sweeps: Sequence[Sweep]) -> Any:
    """The picture as a matplotlib Figure."""
    meta = describe(sweeps)
    title = (meta["title"][0], 10.0, INK, "bold"), (meta["title"][1], 8.5, INK, "normal")
    blocks = [cards.Block(value, text, 15) for value, text in meta["facts"]]
    blocks = blocks or [cards.Block("…", "not measured yet", 15)]
    blocks[0] = cards.Block(blocks[0].value, blocks[0].meaning, 25)
    last = blocks[-1]
    blocks[-1] = cards.Block(last.value, last.meaning, last.size, title)
    places = cards.place(blocks, WIDTH)
    top = cards.MARGIN + cards.BLOCK * (1 + places[-1][1]) + 6
    notes = _wrapped(meta["missing"])
    height = top + TALL + 6 + cards.KEYS + 13 * len(notes) + cards.MARGIN
    card = cards.Card(WIDTH, height, DPI)
    for block, (x, row) in zip(blocks, places, strict=True):
        block.draw(card, x, cards.MARGIN - 4 + cards.BLOCK * row)
    left = cards.MARGIN + 42
    large = (left, top + 34, 270.0, TALL - 34 - 32)
    second = left + 270 + GAP
    wide, tall = WIDTH - cards.MARGIN - 8 - second, (TALL - 20 - 32 - 42) / 2
    boxes = [large, (second, top + 20, wide, tall), (second, top + 20 + tall + 42, wide, tall)]
    for number, (what, box) in enumerate(zip(meta["panels"], boxes, strict=True)):
        _panel(card, meta, what, box, large=number == 0, axis=number != 1)
    _legend(card, meta, top + TALL + 4)
    for i, line in enumerate(notes):
        y = top + TALL + cards.KEYS + 12 + 13 * i
        card.say(cards.MARGIN, y, line, 8, color=CAP, weight="bold")
    return card.figure


def _panel(
    card: cards.Card,
    meta: dict[str, Any],
    what: dict[str, Any],
    box: tuple[float, float, float, float],
    *,
    large: bool,
    axis: bool,
) -> None:
    left, top, wide, tall = box
    ax = card.axes(*box)
    low, high = meta["x"]
    pad = (high - low) * 0.03
    ax.set_xlim(low - pad, high + pad)
    ax.set_ylim(0, 1)

    def across(x: float) -> float:
        return left + (x - low + pad) / (high - low + 2 * pad) * wide

    card.say(left - 40, top - (28 if large else 12), what["title"], 8.5, weight="bold")
    for value, label in what["ticks"]:
        ax.axhline(value, color=LINE, linewidth=0.6, alpha=0.7, zorder=0)
        card.say(left - 6, top + tall * (1 - value), label, 7.5, color=SOFT, ha="right")
    for value, label in meta["xticks"]:
        card.say(across(value), top + tall + 9, label, 7.5, color=SOFT, ha="center")
    if axis:
        words = "micro-batches M (GAS)"
        card.say(left + wide, top + tall + 21, words, 7.5, color=SOFT, ha="right")
    if large:
        for value, label in meta["rules"]:
            ax.axvline(value, color=SOFT, linewidth=0.8, linestyle=(0, (1.5, 3)), zorder=1)
            card.say(across(value), top - 7, label, 7.5, color=SOFT, ha="center")
        if meta["knee"]:
            value, label = meta["knee"]
            ax.axvline(value, color=INK, linewidth=1.3, zorder=1)
            card.say(across(value) + 4, top + tall - 8, label, 8, weight="bold", bbox=BEHIND)
    if what["level"]:
        value, label, kind = what["level"]
        colour = CAP if kind == "cap" else SOFT
        ax.axhline(value, color=colour, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        card.say(left + 3, top + tall * (1 - value) - 6, label, 7.5, color=colour)
    size = 6.5 if large else 5.0
    for one, line, dots in zip(meta["series"], what["lines"], what["dots"], strict=True):
        colour = one["colour"]
        if line:
            ax.plot(*zip(*line, strict=True), color=colour, linewidth=1.4, linestyle=_dash(one))
        for x, y, over in dots:
            ax.plot(
                x, y, MARKS[one["mark"]], markersize=size, clip_on=False, zorder=5,
                markerfacecolor=PAGE if over else colour,
                markeredgecolor=colour if over else PAGE, markeredgewidth=1.6 if over else 0.8,
            )  # fmt: skip
    if large and meta["best"]:
        x, y, label = meta["best"]
        ring: dict[str, Any] = {"markersize": 14, "markerfacecolor": "none", "markeredgecolor": INK}
        ax.plot(x, y, "o", markeredgewidth=1.3, zorder=6, clip_on=False, **ring)
        style = {"weight": "bold", "ha": "center", "bbox": BEHIND}
        card.say(across(x), top + tall * (1 - y) + 18, label, 8, **style)


def _dash(one: dict[str, Any]) -> Any:
    dash = [float(part) / 1.8 for part in one["dash"].split()]
    return (0, tuple(dash)) if dash else "-"


def _legend(card: cards.Card, meta: dict[str, Any], top: float) -> None:
    x = cards.MARGIN
    for one in meta["series"]:
        ax = card.axes(x, top, 30, 11)
        ax.set_xlim(0, 1)
        ax.set_ylim(-1, 1)
        ax.plot([0, 1], [0, 0], color=one["colour"], linewidth=1.4, linestyle=_dash(one))
        ax.plot(0.5, 0, MARKS[one["mark"]], color=one["colour"], markersize=5)
        card.say(x + 35, top + 5.5, one["name"], 8)
        x += 35 + cards.wide(one["name"], 8) + 16
    for _, text in meta["legend"]:
        card.say(x, top + 5.5, text, 8, color=SOFT)
        x += cards.wide(text, 8) + 16


def _wrapped(text: str, most: float = WIDTH - 2 * cards.MARGIN) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and cards.wide(f"{lines[-1]} {word}", 8, "bold") <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
