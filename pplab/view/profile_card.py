"""A profile as a picture: a column a layer, forward and backward, and under it the bytes.

Static, and complete in words: a profile is looked at once, then cut. The card has its own light
background, so that it reads on a dark page too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from pplab.core.profile import Profile
from pplab.core.profile_words import in_bytes, text
from pplab.view import colours, words
from pplab.view.show import bundle, warm_once
from pplab.view.static import DPI, png_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pplab.view.card import Block, Card

TALL, STRIP = 130.0, 44.0  # heights in points: times, bytes
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # between two numbered layers
LEFT = 52.0  # points: room for the numbers of the vertical axis


def profile_bundle(profile: Profile) -> dict[str, Any]:
    """MIME bundle of a profile: what a notebook shows as the value of a cell."""
    warm_once()
    return bundle(None, profile_png(profile), profile_text(profile))


def profile_text(profile: Profile) -> str:
    """Sentence, table and notes; each line of a measured profile begins with ``[measured]``."""
    said = text(profile)
    if not profile.source.startswith("measured"):
        return said
    return "\n".join(f"[measured] {line}" for line in said.splitlines())


def profile_png(profile: Profile) -> bytes:
    """The picture as a PNG of some 20 KB."""
    return png_of(profile_picture(profile))


def profile_picture(profile: Profile, *, width: float = 8.6) -> Figure:
    """A matplotlib figure of a profile, `width` inches wide."""
    from pplab.view import card as cards

    across = width * 72
    blocks, keys = _blocks(profile), _legend(profile)
    places = cards.place(blocks, across)
    bytes_known = bool(profile.column("activation_bytes").any())
    top = cards.MARGIN + cards.BLOCK * (1 + places[-1][1]) + 18
    names = top + TALL
    strip = names + 38
    under = strip + (STRIP + 18 if bytes_known else 0)
    lines = 1 + cards.place_keys(keys, across)[-1][1]
    card = cards.Card(across, under + cards.KEYS * lines + cards.MARGIN / 2, DPI)
    for block, (x, line) in zip(blocks, places, strict=True):
        block.draw(card, x, cards.MARGIN - 4 + cards.BLOCK * line)
    left, inside = cards.MARGIN + LEFT, across - 2 * cards.MARGIN - LEFT - 4
    _times(card, card.axes(left, top, inside, TALL), profile, (left, top, inside))
    _names(card, profile, (left, names, inside))
    if bytes_known:
        _bytes(card, card.axes(left, strip + 14, inside, STRIP), profile, strip)
    cards.draw_legend(card, keys, under + 2)
    return card.figure


def _blocks(profile: Profile) -> list[Block]:
    """The header: the whole, the slowest layer, what is kept."""
    from pplab.view.card import INK, SOFT, Block

    total = float(profile.times.sum())
    lines = [(f"{len(profile)} layers, {_parameters(profile)}", 10.0, INK, "bold")]
    lines.append((profile.source[:70], 8.5, INK, "normal"))
    if words.hardware(profile):
        lines.append((words.hardware(profile), 7.5, SOFT, "normal"))
    whole = words.duration(total, profile.unit, digits=3)
    found = [Block(whole, "F + B of one micro-batch", 25, tuple(lines))]
    if total > 0:
        most = int(np.argmax(profile.times))
        share = f"{profile.times[most] / total:.0%}"
        found.append(Block(share, f"slowest layer: {profile.layers[most].name}", 15))
    kept = profile.column("activation_bytes").sum()
    if kept:
        found.append(Block(in_bytes(kept), "kept for the backward pass", 15))
    return found


def _parameters(profile: Profile) -> str:
    count = profile.column("parameters").sum()
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{words.number(count / size, 3)}{name} parameters"
    return f"{count:.0f} parameters"


def _legend(profile: Profile) -> list[tuple[str, dict[str, Any], str]]:
    keys: list[tuple[str, dict[str, Any], str]] = [
        ("F", {"facecolor": colours.WORK["F"]}, "forward"),
        ("B", {"facecolor": colours.WORK["B"]}, "backward (whole)"),
    ]
    ink = colours.LIGHT["ink"]
    if profile.column("spread").any():
        keys.append(("|", {"color": ink}, "upright line: middle half of the repeats"))
    if profile.column("activation_bytes").any():
        keys.append(("", {"facecolor": colours.GREY}, "kept for the backward pass"))
        keys.append(("-", {"facecolor": ink}, "level line: handed to the next layer"))
    return keys


def _times(card: Card, ax: Axes, profile: Profile, box: tuple[float, float, float]) -> None:
    """Columns of F and B on each other, with their spread, and round numbers at the side."""
    left, top, inside = box
    n, spread = len(profile), profile.column("spread")
    longest = float((profile.times + spread).max()) * 1.04 or 1.0
    ax.set_xlim(0, n)
    ax.set_ylim(0, longest)
    factor, unit = words.scale(profile.unit, longest)
    for value in words.ticks(longest * factor, 4):
        y = top + TALL * (1 - value / factor / longest)
        ax.axhline(value / factor, color=colours.LIGHT["line"], linewidth=0.7, zorder=0)
        card.say(left - 6, y, f"{value:g}", 7.5, color=colours.LIGHT["soft"], ha="right")
    card.say(left, top - 9, f"Time of each layer ({unit})", 8, color=colours.LIGHT["soft"],
             weight="bold")  # fmt: skip
    x, thick = np.arange(n) + 0.5, _thick(n, inside)
    ax.bar(x, profile.forward, thick, color=colours.WORK["F"], linewidth=0)
    ax.bar(x, profile.backward, thick, profile.forward, color=colours.WORK["B"], linewidth=0)
    if spread.any():
        ax.vlines(x, profile.times - spread, profile.times + spread, colors=colours.LIGHT["ink"],
                  linewidth=1.4)  # fmt: skip


def _thick(n: int, inside: float) -> float:
    """Width of a column, the distance between two being 1: no gap that would be below a point."""
    return 0.78 if inside / n > 5 else 1.0


def _names(card: Card, profile: Profile, box: tuple[float, float, float]) -> None:
    """Numbers of the layers, and their kinds, those that follow each other in one bracket."""
    from pplab.view.card import wide

    left, top, inside = box
    n, soft = len(profile), colours.LIGHT["soft"]
    step = next(s for s in STEPS if s * inside / n >= 18 or s == STEPS[-1])
    for i in range(0, n, step):
        x = left + (i + 0.5) / n * inside
        card.say(x, top + 7, str(i), 7, color=soft, ha="center")
    card.say(left - 6, top + 7, "layer", 7.5, color=soft, ha="right")
    found, labels, end, fits = (
        runs([la.kind or la.name for la in profile.layers]),
        [],
        -np.inf,
        True,
    )
    for kind, first, count in found:
        name = f"{kind} × {count}" if count > 1 else kind
        start, across = left + first / n * inside, count / n * inside
        if count > 1:
            card.box(start + 2, top + 14, across - 4, 0.9, facecolor=soft, linewidth=0)
        half = wide(name, 7.5) / 2
        middle = min(max(start + across / 2, left + half - LEFT / 2), left + inside - half)
        fits = fits and middle - half > end + 5
        labels.append((middle, name, 2 * half < across))
        end = middle + half
    for middle, name, inside_its_own in labels:
        if fits or inside_its_own:
            card.say(middle, top + 22, name, 7.5, ha="center")


def runs(kinds: Sequence[str]) -> list[tuple[str, int, int]]:
    """(kind, first layer, how many follow each other) of layers that are of one kind."""
    found, first = [], 0
    for kind, same in groupby(kinds):
        count = len(list(same))
        found.append((kind, first, count))
        first += count
    return found


def _bytes(card: Card, ax: Axes, profile: Profile, top: float) -> None:
    """What each layer keeps for its backward pass, and what it hands to the next."""
    from pplab.view.card import MARGIN

    n, kept = len(profile), profile.column("activation_bytes")
    handed = profile.column("output_bytes")
    most = float(max(kept.max(), handed.max()))
    ax.set_xlim(0, n)
    ax.set_ylim(0, most * 1.04)
    soft, left = colours.LIGHT["soft"], MARGIN + LEFT
    inside = card.width - 2 * MARGIN - LEFT - 4
    card.say(left, top + 5, "Memory of each layer, one micro-batch", 8, color=soft, weight="bold")
    for y, value in ((top + 14 + STRIP, 0.0), (top + 14 + STRIP * (1 - 1 / 1.04), most)):
        card.box(left, y - 0.3, inside, 0.6, facecolor=colours.LIGHT["line"], linewidth=0)
        card.say(left - 6, y, in_bytes(value) if value else "0", 7.5, color=soft, ha="right")
    x, thick = np.arange(n) + 0.5, _thick(n, inside)
    ax.bar(x, kept, thick, color=colours.GREY, linewidth=0)
    ax.hlines(handed, x - thick / 2, x + thick / 2, colors=colours.LIGHT["ink"], linewidth=1.6)
