"""The same picture without a kernel: a card of its own colours, and the same in words.

The card has its own light background, so that it reads on a dark page too. Figures are built
without pyplot: nothing global is touched, and nothing is shown by accident.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pplab.core.timeline import Timeline
from pplab.view import colours, words
from pplab.view.columns import check, in_flight, rows_of, windows, zero_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pplab.view.lanes import Grid
    from pplab.view.moments import Moment

DPI = 110
LARGE = 54_000  # bytes: what a picture in a notebook should stay below
AXIS, STRIP = 24.0, 17.0  # heights in points: time axis, memory of a rank


def text(timelines: Timeline | Sequence[Timeline]) -> str:
    """What a picture shows, in words: a sentence a timeline, and for two how they differ.

    Lines with measured numbers begin with ``[measured]``, so that a test of a notebook can tell
    what may change from run to run.
    """
    timelines = _several(timelines)
    lines = []
    for t in timelines:
        origin, _, detail = t.source.partition(": ")
        about = ", ".join(filter(None, (detail, words.hardware(t))))
        lines.append(f"[{origin}] {about}{': ' if about else ''}{t.measures.sentence()}.")
    if len(timelines) == 2 and all(map(len, timelines)):
        from pplab.view.comparison import Comparison

        origin = "compared" if all(map(words.is_simulated, timelines)) else "measured"
        sentence = Comparison(timelines[0], timelines[1]).sentence()
        lines.append(f"[{origin}] {sentence[0].upper()}{sentence[1:]}.")
    return "\n".join(lines)


def png(timelines: Timeline | Sequence[Timeline], **options: Any) -> bytes:
    """The picture as a PNG of some 10 to 50 KB; options as ``picture``."""
    return png_of(picture(timelines, **options))


def png_of(figure: Figure, large: int = LARGE) -> bytes:
    """A card as a PNG of a size for notebooks: in fewer colours beyond `large` bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    # A card has few colours: a palette makes the file a third as large, a coarse one smaller yet.
    # The last step moves its colours to those that are really there: greys stay without a tint.
    style: dict[str, Any] = {"dither": Image.Dither.NONE, "kmeans": 100}
    for count in (96, 48, 24):
        small = image.quantize(count, Image.Quantize.MAXCOVERAGE, **style)
        file = io.BytesIO()
        small.save(file, format="png", optimize=True, dpi=(DPI, DPI))
        if file.tell() < large:
            break
    return file.getvalue()


def picture(
    timelines: Timeline | Sequence[Timeline],
    *,
    memory: bool = False,
    cap: float | None = None,
    facts: Sequence[tuple[str, str]] = (),
    now: Moment | None = None,
    width: float = 8.6,
) -> Figure:
    """A matplotlib figure of one or several timelines, `width` inches wide.

    `memory` adds the activations in flight, `cap` a line at the most a rank may hold; `facts` are
    further (value, words) pairs beside the bubble. `now` draws a line at that moment and says under
    the lanes what every rank does. Raises ValueError when the timelines differ in unit or number
    of ranks.
    """
    from pplab.view import card as cards
    from pplab.view.lanes import Grid, draw_lanes

    timelines = _several(timelines)
    check(timelines)
    across, several = width * 72, len(timelines) > 1
    grid = Grid(rows_of(timelines), len(timelines))
    blocks, keys = cards.blocks(timelines, facts), cards.legend(timelines)
    places = cards.place(blocks, across)
    top = cards.MARGIN + cards.BLOCK * (1 + places[-1][1]) + (16 if several else 4)
    under = top + grid.height + AXIS + (24 + STRIP * len(grid.rows) if memory else 0)
    moment = now.table() if now is not None else []
    under += cards.ROW * len(moment) + (10 if moment else 0)
    lines = 1 + cards.place_keys(keys, across)[-1][1]

    card = cards.Card(across, under + cards.KEYS * lines + cards.MARGIN / 2, DPI)
    for block, (x, line) in zip(blocks, places, strict=True):
        block.draw(card, x, cards.MARGIN - 4 + cards.BLOCK * line)
    names = words.short_names(timelines) if several else [""]
    left = cards.MARGIN + 44 + max(cards.wide(name, 7.5) for name in names) + (4 if several else 0)
    left = max(left, cards.MARGIN + 78 if memory else 0)
    inside = across - left - cards.MARGIN - 4
    ax = card.axes(left, top, inside, grid.height)
    if draw_lanes(ax, timelines, grid, inside / 72 * DPI):
        card.say(left, top - 7, words.PILED, 7.5, color=cards.SOFT)
    for row, (_, rank) in enumerate(grid.rows):
        middle = (grid.top(row) + grid.top(row, grid.of - 1) + grid.bar) / 2
        if rank % grid.named == 0:
            card.say(cards.MARGIN, top + middle, f"rank {rank}", min(8.5, max(7.5, grid.pitch - 1)))
        for line, name in enumerate(names if grid.bar >= 7 else []):
            y = top + grid.top(row, line) + grid.bar / 2
            card.say(cards.MARGIN + 44, y, name, 7.5, color=cards.SOFT)
    for row, heading in grid.headings().items():
        y = top + grid.top(row) - 8
        card.say(cards.MARGIN, y, heading, 7.5, color=cards.SOFT, weight="bold")
    time_axis(card, ax, timelines, (left, top + grid.height, inside))
    if len(timelines) == 2:
        _ends(card, ax, timelines, (left, top, inside))
    if now is not None:
        ax.axvline(now.time, color=cards.INK, linewidth=1.2, zorder=6)
        cards.draw_table(card, under - cards.ROW * len(moment) - 10, moment, loud=1)
    if memory:
        y = top + grid.height + AXIS
        limit = f"; dashed: the cap, {cap:g}" if cap is not None else ""
        whose = f" ({' / '.join(names)})" if several else ""
        title = f"Memory: activations in flight, and the peak{whose}{limit}"
        card.say(cards.MARGIN, y + 8, title, 8, color=cards.SOFT, weight="bold")
        strip = card.axes(left, y + 18, inside, STRIP * len(grid.rows))
        strip.set_xlim(ax.get_xlim())
        peaks = _memory(strip, timelines, grid, cap)
        for row, (_, rank) in enumerate(grid.rows):
            middle = y + 18 + STRIP * (row + 0.5)
            card.say(cards.MARGIN, middle, f"rank {rank}", 8)
            over = cap is not None and max(peaks[row]) > cap
            number = " / ".join(map(str, peaks[row])) + (" over" if over else "")
            colour = colours.LIGHT["cap"] if over else cards.INK
            card.say(cards.MARGIN + 40, middle, number, 8, color=colour, weight="bold")
    cards.draw_legend(card, keys, under)
    return card.figure


def _several(timelines: Timeline | Sequence[Timeline]) -> list[Timeline]:
    return [timelines] if isinstance(timelines, Timeline) else list(timelines)


def time_axis(
    card: Any, ax: Axes, timelines: list[Timeline], box: tuple[float, float, float]
) -> None:
    """Round numbers under the lanes; `box` is (left, top, width) in points."""
    left, top, inside = box
    longest = ax.get_xlim()[1]
    factor, unit = words.scale(timelines[0].unit, longest)
    card.box(left, top + 3, inside, 0.8, facecolor=colours.LIGHT["line"], linewidth=0)
    for value in words.ticks(longest * factor, max(2, inside / 62)):
        x = left + value / (longest * factor) * inside
        card.box(x - 0.4, top + 3, 0.8, 3.5, facecolor=colours.LIGHT["line"], linewidth=0)
        card.say(x, top + 12, f"{value:g}", 7.5, color=colours.LIGHT["soft"], ha="center")
    style = {"color": colours.LIGHT["soft"], "ha": "right"}
    card.say(left - 6, top + 12, unit, 7.5, **style)


def _ends(card: Any, ax: Axes, timelines: list[Timeline], box: tuple[float, float, float]) -> None:
    """The difference of the two steps as a shaded band with its length in words."""
    from pplab.view.card import wide

    zero = zero_of(timelines)
    found = [windows(t, zero) for t in timelines]
    if not all(found):
        return
    one, other = (w[-1][1] for w in found)
    ink = colours.LIGHT["ink"]
    ax.axvspan(min(one, other), max(one, other), color=ink, alpha=0.12, linewidth=0, zorder=0)
    for end in (one, other):
        ax.axvline(end, color=ink, linewidth=0.8, zorder=5)
    if abs(other - one) > 1e-9 * max(one, other):
        late = words.duration(abs(other - one), timelines[0].unit, digits=3)
        name = words.short_names(timelines)[1]
        string = f"{name} ends {late} {'later' if other > one else 'earlier'}"
        x = box[0] + (one + other) / 2 / ax.get_xlim()[1] * box[2]
        x = min(x, box[0] + box[2] - wide(string, 8.5, "bold") / 2)
        card.say(x, box[1] - 8, string, 8.5, weight="bold", ha="center")


def _memory(ax: Axes, timelines: list[Timeline], grid: Grid, cap: float | None) -> list[list[int]]:
    """Activations in flight, a strip a rank; returns the peaks by row and timeline."""
    zero, stop = zero_of(timelines), ax.get_xlim()[1]
    held = [[in_flight(t, row, zero) for t in timelines] for row in grid.rows]
    peaks = [[int(count.max(initial=0)) for _, count in row] for row in held]
    most = max(1.0, cap or 0, *(peak for row in peaks for peak in row)) * 1.08
    ax.set_ylim(len(grid.rows), 0)
    for row, curves in enumerate(held):
        foot = row + 0.95
        for t, (times, count) in reversed(list(zip(timelines, curves, strict=True))):
            x = np.concatenate([[0.0], times, [stop]])
            y = foot - np.concatenate([[0], count, count[-1:] if len(count) else [0]]) / most * 0.9
            style: dict[str, Any] = {"step": "post", "linewidth": 0, "color": colours.LIGHT["ink"]}
            ax.fill_between(x, foot, y, alpha=0.1 if words.is_simulated(t) else 0.3, **style)
            ax.step(x, y, where="post", color=colours.LIGHT["soft"], linewidth=0.9)
        ax.axhline(foot, color=colours.LIGHT["line"], linewidth=0.7)
        if cap is not None:
            y_cap = foot - cap / most * 0.9
            ax.axhline(y_cap, color=colours.LIGHT["cap"], linewidth=1.1, linestyle=(0, (4, 2)))
    return peaks
