"""The static picture of cuts beside each other: boxes as wide as their time, and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pplab.view import card as cards
from pplab.view import colours, static, words
from pplab.view.partition_colours import STAGES, stage_colour
from pplab.view.partition_rows import COLUMNS, Row, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

Floats = NDArray[np.float64]

BAR, MEASURED, LABEL, GAP = 20.0, 11.0, 13.0, 11.0  # heights in points
LEFT = 96.0  # where the scale begins
FEW = 16  # layers; of more than these, most are named or none is
CAP = colours.LIGHT["cap"]


def png(rows: Rows) -> bytes:
    """The picture as a PNG."""
    return static.png_of(picture(rows), large=100_000)


def picture(rows: Rows, *, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide: a line a cut on one scale, then their numbers."""
    across = width * 72
    room = across - 2 * cards.MARGIN
    says = cards.wrapped(rows.verdict(), room, 12, "bold")
    setting = cards.wrapped(f"{rows.setting()} {rows.key()}", room, 8.5)
    notes = [
        line
        for row in rows.rows
        for text in rows.warnings(row)
        for line in cards.wrapped(f"{row.name} {text}", room, 8.5)
    ]
    head = cards.MARGIN + 16 * len(says) + 12 * len(setting) + 12 * len(notes) + 10
    tops, y = [], head
    for row in rows.rows:
        tops.append(y)
        y += BAR + LABEL + (MEASURED + LABEL if row.measured else 0) + GAP
    axis = y - GAP + 3
    below = axis + static.AXIS + 6
    titles = [title.format(piece=rows.piece) for title in COLUMNS][: 4 + rows.has_memory]
    table = [["", *titles], *([row.name, *rows.cells(row)] for row in rows.rows)]
    card = cards.Card(across, below + cards.ROW * len(table) + cards.MARGIN, static.DPI)
    for line, text in enumerate(says):
        card.say(cards.MARGIN, cards.MARGIN + 6 + 16 * line, text, 12, weight="bold")
    at = cards.MARGIN + 16 * len(says) + 6
    for line, text in enumerate(setting):
        card.say(cards.MARGIN, at + 12 * line, text, 8.5, color=cards.SOFT)
    for line, text in enumerate(notes):
        y = at + 12 * (len(setting) + line)
        card.say(cards.MARGIN, y, text, 8.5, color=CAP, weight="bold")
    inside = across - LEFT - cards.MARGIN - 4
    scale = _Scale(card, rows.longest, inside)
    for row, top in zip(rows.rows, tops, strict=True):
        _line(scale, rows, row, top)
    _axis(scale, rows, axis)
    cards.draw_table(card, below, table)
    return card.figure


class _Scale:
    """Where a time lies on the card."""

    def __init__(self, card: cards.Card, longest: float, inside: float) -> None:
        self.card, self.longest, self.inside = card, longest, inside

    def x(self, time: float) -> float:
        """Points from the left edge of the card."""
        return LEFT + time / self.longest * self.inside

    def axes(self, top: float, tall: float) -> Axes:
        """Bare axes over the scale, in points."""
        ax = self.card.axes(LEFT, top, self.inside, tall)
        ax.set_xlim(0, self.inside)
        ax.set_ylim(tall, 0)
        return ax


def _line(scale: _Scale, rows: Rows, row: Row, top: float) -> None:
    """One cut: its layers, the names of its stages, and measured times under them."""
    cut, card = row.partition, scale.card
    name, size = cards.fitted(row.name, LEFT - cards.MARGIN - 8, 9.5, "bold")
    card.say(cards.MARGIN, top + 6, name, size, weight="bold")
    step = f"step {rows.time(cut.step)}"
    card.say(cards.MARGIN, top + 17, step, 8, color=cards.SOFT)
    ends = np.concatenate(([0.0], np.cumsum(cut.loads)))
    edges = _edges(row, ends)
    x = np.array([scale.x(float(e)) - LEFT for e in edges])
    ax = scale.axes(top - 2, BAR + 4)
    _boxes(ax, row, x, 2.0, BAR)
    _names(ax, rows, row, x)
    problem, heavy = cut.problem, row.slowest
    _labels(
        scale,
        ends,
        top + BAR + LABEL / 2 + 1,
        lambda s: _texts(rows, row, s, float(cut.loads[s])),
        [s for s in range(problem.slices) if problem.rank_of[s] == heavy],
    )
    if row.measured is None:
        return
    times, excess, y = np.array(row.measured), row.excess(), top + BAR + LABEL + 2
    over = np.concatenate(([0.0], np.cumsum(times)))
    card.say(cards.MARGIN, y + MEASURED / 2, "measured", 8, color=cards.SOFT)
    _measured_boxes(scale.axes(y, MEASURED), row, over / scale.longest * scale.inside)

    def texts(s: int) -> list[str]:
        assert excess is not None
        percent = f"{excess[s] * 100:+.1f} %" if np.isfinite(excess[s]) else ""
        value = f"{rows.time(float(times[s]))} ({percent})" if percent else ""
        name = _name(row, s)
        return [f"{rows.piece} {name}: {value}", f"{name}: {value}", f"{name}: {percent}", name]

    _labels(scale, over, y + MEASURED + LABEL / 2, texts, [int(np.argmax(times))], force=False)


def _edges(row: Row, ends: Floats) -> Floats:
    """Time at which each layer begins on the scale, and the end of the last; shape (n + 1,)."""
    problem, bounds = row.partition.problem, row.partition.bounds
    edges = np.empty(problem.layers + 1)
    for s, (a, b) in enumerate(pairwise(bounds)):
        edges[a:b] = ends[s] + (problem.prefix[a:b] - problem.prefix[a]) / problem.speed[s]
    edges[-1] = ends[-1]
    return edges


def _boxes(ax: Axes, row: Row, x: Floats, y: float, tall: float) -> None:
    """Slices in the colours of their ranks, lines between layers, the heaviest rank outlined."""
    from matplotlib.patches import Rectangle

    problem, bounds = row.partition.problem, row.partition.bounds
    layout = problem.schedule.layout
    for s, (a, b) in enumerate(pairwise(bounds)):
        rank, chunk = layout.place_of(s)
        wide = max(0.5, x[b] - x[a] - 1.4)
        edge = STAGES[rank % len(STAGES)] if chunk else "none"
        style: dict[str, Any] = {"edgecolor": edge, "linewidth": 0.8 if chunk else 0}
        style["facecolor"] = stage_colour(rank, chunk, layout.chunks)
        ax.add_patch(Rectangle((x[a], y), wide, tall, **style))
        if rank % 2 and wide < 26:  # too narrow for a name: colour must not be the only sign
            ax.add_patch(_hatched(x[a], y, wide, tall))
        gaps = np.diff(x[a : b + 1])
        inner = x[a + 1 : b][(gaps[:-1] >= 2) & (gaps[1:] >= 2)]
        ax.vlines(inner - 0.7, y, y + tall, color=cards.PAGE, linewidth=0.7, alpha=0.75)
    for s, (a, b) in enumerate(pairwise(bounds)):
        if problem.rank_of[s] == row.slowest:
            box = Rectangle((x[a] - 0.8, y - 0.8), x[b] - x[a] + 0.2, tall + 1.6, facecolor="none")
            box.set(edgecolor=cards.INK, linewidth=1.8, zorder=6, clip_on=False)
            ax.add_patch(box)


def _measured_boxes(ax: Axes, row: Row, x: Floats) -> None:
    """Measured slices end to end; what is longer than predicted is hatched."""
    from matplotlib.patches import Rectangle

    layout, loads = row.partition.problem.schedule.layout, row.partition.loads
    assert row.measured is not None
    for s, time in enumerate(row.measured):
        rank, chunk = layout.place_of(s)
        wide = max(0.5, x[s + 1] - x[s] - 1.4)
        colour = stage_colour(rank, chunk, layout.chunks)
        ax.add_patch(Rectangle((x[s], 0), wide, MEASURED, facecolor=colour, linewidth=0))
        if time > loads[s]:
            part = wide * (1 - loads[s] / time)
            ax.add_patch(_hatched(x[s] + wide - part, 0, part, MEASURED))


def _hatched(x: float, y: float, wide: float, tall: float) -> Rectangle:
    from matplotlib.patches import Rectangle

    patch = Rectangle((x, y), wide, tall, facecolor="none", edgecolor="white", linewidth=0)
    patch.set_hatch("////")
    patch.set_hatch_linewidth(0.7)
    return patch


def _names(ax: Axes, rows: Rows, row: Row, x: Floats) -> None:
    """Names of layers in their boxes, or their numbers, or nothing where neither fits."""
    layers, layout = rows.profile.layers, row.partition.problem.schedule.layout
    gaps = np.diff(x) - 1.4
    texts = [
        next((t for t in (layer.name, str(i)) if cards.wide(t, 8) < gap - 4), "")
        if gap >= 9
        else ""
        for i, (layer, gap) in enumerate(zip(layers, gaps, strict=True))
    ]
    if len(texts) > FEW and sum(map(bool, texts)) < len(texts) / 2:
        return  # some numbers here and there would only raise questions
    style: dict[str, Any] = {"ha": "center", "va": "center", "family": cards.FONT, "fontsize": 8}
    for s, (a, b) in enumerate(pairwise(row.partition.bounds)):
        ink = colours.ink_on(stage_colour(*layout.place_of(s), layout.chunks))
        for i in range(a, b):
            if texts[i]:
                middle = (x[i] + x[i + 1]) / 2 - 0.7
                ax.text(middle, 2 + BAR / 2, texts[i], color=ink, **style)


def _name(row: Row, s: int) -> str:
    rank, chunk = row.partition.problem.schedule.layout.place_of(s)
    return f"{rank}.{chunk}" if row.partition.problem.schedule.chunks > 1 else f"{rank}"


def _texts(rows: Rows, row: Row, s: int, value: float) -> list[str]:
    """What may stand under a slice, the longest first."""
    name, time = _name(row, s), rows.time(value)
    return [f"{rows.piece} {name}: {time}", f"{name}: {time}", name]


def _labels(
    scale: _Scale,
    ends: Floats,
    y: float,
    texts: Callable[[int], Sequence[str]],
    heavy: Sequence[int],
    force: bool = True,
) -> None:
    """Labels under slices: those of the heaviest in bold and first, others where there is room."""
    taken: list[tuple[float, float]] = []
    for s in [*heavy, *(s for s in range(len(ends) - 1) if s not in heavy)]:
        bold, sign = ("bold", "▲ ") if s in heavy and force else ("normal", "")
        middle = (scale.x(float(ends[s])) + scale.x(float(ends[s + 1]))) / 2
        room = scale.x(float(ends[s + 1])) - scale.x(float(ends[s])) - 4
        options = texts(s)
        if sign:  # its name may be wider than its slice, when it must
            options = [*options, options[len(heavy) > 1]]
        for k, text in enumerate(options):
            half = cards.wide(sign + text, 8.5, bold) / 2
            if 2 * half > room and not (sign and k == len(options) - 1):
                continue
            at = min(max(middle, LEFT + half), LEFT + scale.inside - half)
            if any(at + half + 4 > a and at - half - 4 < b for a, b in taken):
                continue
            taken.append((at - half, at + half))
            colour = cards.INK if s in heavy else cards.SOFT
            style = {"color": colour, "weight": bold, "ha": "center"}
            scale.card.say(at, y, sign + text, 8.5, **style)
            break


def _axis(scale: _Scale, rows: Rows, top: float) -> None:
    factor, unit = words.scale(rows.unit, scale.longest)
    card = scale.card
    card.box(LEFT, top, scale.inside, 0.8, facecolor=cards.LINE, linewidth=0)
    for value in words.ticks(scale.longest * factor, max(2, scale.inside / 62)):
        x = scale.x(value / factor)
        card.box(x - 0.4, top, 0.8, 3.5, facecolor=cards.LINE, linewidth=0)
        card.say(x, top + 9, f"{value:g}", 7.5, color=cards.SOFT, ha="center")
    card.say(LEFT - 6, top + 9, unit, 7.5, color=cards.SOFT, ha="right")
