"""The picture of a tuning: every plan by its step and its memory, and what memory forbids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pplab.core.memory import size
from pplab.core.words import number, scale
from pplab.view import card as cards
from pplab.view import colours, static, words
from pplab.view.card import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pplab.advise.tune.plan import Plan
    from pplab.advise.tune.tuning import Tuning

LEFT, TALL, FOOT = 58.0, 200.0, 34.0  # points: beside the field, the field, the time axis
NUMBERED = 4  # plans with a number in the field and a line below it
WIDE = 6.0  # largest over smallest memory from which on the scale is logarithmic
BEHIND = {"boxstyle": "square,pad=0.1", "facecolor": cards.PAGE, "linewidth": 0, "alpha": 0.85}
FARTHEST = 3.0  # steps this many times the first one's are beyond the picture
PLAN, OUT, CAP = colours.WORK["F"], colours.GREY, colours.LIGHT["cap"]
REAL = colours.WORK["B"]


def png(found: Tuning) -> bytes:
    """The picture as a PNG."""
    return static.png_of(picture(found))


def picture(found: Tuning, *, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide."""
    across = width * 72
    room = across - 2 * cards.MARGIN
    best = found.best
    headline = wrapped(f"{best.what}{_cut(best)}", room, 10.5, "bold")
    told = [line for i in range(min(NUMBERED, len(found))) for line in _told(found, i, room - 20)]
    top = cards.MARGIN + cards.BLOCK + 6 + 14 * len(headline)
    under = top + TALL + FOOT + cards.KEYS + 8
    card = cards.Card(across, under + 12 * len(told) + cards.MARGIN, static.DPI)
    about = (
        (f"step {best.time(best.step)}, predicted{_real(found)}", 10, cards.INK, "bold"),
        (f"{found.machine}, batch of {found.batch}; {found.source}", 8.5, cards.INK, "normal"),
        (found.counts().partition(";")[0].rstrip("."), 7.5, cards.SOFT, "normal"),
    )
    block = cards.Block(words.percent(best.bubble), "bubble: idle / total", 25, about)
    block.draw(card, cards.MARGIN, cards.MARGIN - 4)
    for i, text in enumerate(headline):
        card.say(cards.MARGIN, cards.MARGIN + cards.BLOCK + 14 * i + 3, text, 10.5, weight="bold")
    _field(card.axes(cards.MARGIN + LEFT, top, room - LEFT, TALL), found)
    _keys(card, found, top + TALL + FOOT)
    for i, (text, weight) in enumerate(told):
        card.say(cards.MARGIN, under + 12 * i + 6, text, 8, weight=weight)
    return card.figure


def _cut(plan: Plan) -> str:
    inner = plan.partition.bounds[1:-1]
    return f", cut at {', '.join(map(str, inner))}" if inner else ""


def _real(found: Tuning) -> str:
    ran = next((v for v in found.verified if v.plan is found.best and v.steps), None)
    return f"; {found.best.time(ran.step)}, measured ({ran.error:+.1%})" if ran else ""


def _told(found: Tuning, i: int, room: float) -> list[tuple[str, str]]:
    plan = found.plans[i]
    weight = "bold" if plan is found.best else "normal"
    lines = wrapped(f"{i + 1}. {plan.what}: {plan.reason}", room, 8, weight)
    return [(line if n == 0 else f"     {line}", weight) for n, line in enumerate(lines)]


def _field(ax: Axes, found: Tuning) -> None:
    """Dots of plans and of what is out, the cap, and what real runs took."""
    ax.set_axis_on()
    factor, unit = scale(found.first.unit, found.first.step)
    far = FARTHEST * found.first.step
    rest = [one for one in found.out if one.step and one.kind == "alike" and one.step <= far]
    large = [one for one in found.out if one.kind == "memory" and 0 < one.step <= far]
    shown = [plan for plan in found.plans if plan.step <= far]
    ax.scatter([o.step * factor for o in rest], [o.need for o in rest], s=9, c=OUT, linewidths=0)
    ax.scatter([o.step * factor for o in large], [o.need for o in large], s=22, c=CAP,
               marker="x", linewidths=1)  # fmt: skip
    x, y = [p.step * factor for p in shown], [p.memory.peak for p in shown]
    ax.scatter(x, y, s=30, c=PLAN, linewidths=0, zorder=3)
    for v in (v for v in found.verified if v.steps):
        told, took, high = v.plan.step * factor, v.step * factor, v.plan.memory.peak
        ax.plot([told, took], [high, high], color=REAL, linewidth=1, zorder=2)
        ax.plot([took], [high], marker="|", markersize=13, color=REAL, zorder=4,
                markeredgewidth=2)  # fmt: skip
    caps = [one.cap for one in large]
    high = max([*y, *(o.need for o in rest), *(o.need for o in large)])
    if caps:
        ax.axhline(min(caps), color=CAP, linewidth=1, linestyle=(0, (4, 2)))
        ax.annotate(f"memory of a rank: {size(min(caps))}", (1, min(caps)), (-2, 3),
                    xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
                    fontsize=8, color=CAP, family=cards.FONT, bbox=BEHIND, zorder=4)  # fmt: skip
    for i, plan in enumerate(found.plans[:NUMBERED]):
        over = i % 2 == 0
        shift, side = ((0, 8), "bottom") if over else ((0, -8), "top")
        ax.annotate(str(i + 1), (plan.step * factor, plan.memory.peak), textcoords="offset points",
                    ha="center", fontsize=9, weight="bold", color=cards.INK, family=cards.FONT,
                    bbox=BEHIND, zorder=5, xytext=shift, va=side)  # fmt: skip
    low_y = min([*y, *(o.need for o in rest), *(o.need for o in large)])
    if high > WIDE * low_y:
        ax.set_yscale("log")
        ax.set_ylim(low_y / 1.6, high * 1.3)
    else:
        ax.set_ylim(0, 1.14 * high)
    low = min([*x, *(o.step * factor for o in (*rest, *large))])
    ends = [*x, *(o.step * factor for o in (*rest, *large)), *_taken(found, factor)]
    pad = 0.04 * (max(ends) - min(low, *ends)) or 0.1 * low
    ax.set_xlim(min(low, *ends) - pad, max(ends) + pad)
    _axes(ax, f"step ({unit}): to the left is faster, below is smaller")


def _taken(found: Tuning, factor: float) -> list[float]:
    return [v.step * factor for v in found.verified if v.steps]


def _axes(ax: Axes, across: str) -> None:
    style: dict[str, Any] = {"fontsize": 8.5, "color": cards.INK, "family": cards.FONT}
    ax.set_xlabel(across, **style)
    ax.set_ylabel("memory, fullest rank", **style)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value) if value else "0"))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    ax.xaxis.set_major_locator(MaxNLocator(8))
    if ax.get_yscale() == "log":
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.tick_params(labelsize=8, colors=cards.INK, length=3, color=cards.LINE)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(cards.LINE)
    ax.set_facecolor(cards.PAGE)


def _keys(card: cards.Card, found: Tuning, top: float) -> None:
    """What the marks mean; only those that are there."""
    keys = [("o", PLAN, 5.0, "a plan, predicted")]
    if any(v.steps for v in found.verified):
        keys.append(("|", REAL, 8.0, "measured on real ranks"))
    if any(one.kind == "memory" and one.step for one in found.out):
        keys.append(("x", CAP, 5.0, "does not fit"))
    if any(one.kind == "alike" for one in found.out):
        keys.append(("o", OUT, 3.0, "a plan of its shape does as well with less memory"))
    ax = card.axes(cards.MARGIN + LEFT, top, card.width - LEFT - 2 * cards.MARGIN, 12)
    ax.set_xlim(0, card.width - LEFT - 2 * cards.MARGIN)
    ax.set_ylim(0, 12)
    x = 4.0
    for marker, colour, large, meaning in keys:
        ax.plot(np.array([x]), np.array([6.0]), marker=marker, color=colour, markersize=large,
                markeredgewidth=2 if marker == "|" else 1)  # fmt: skip
        card.say(cards.MARGIN + LEFT + x + 8, top + 6, meaning, 8)
        x += 24 + cards.wide(meaning, 8)
