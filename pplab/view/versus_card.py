"""The static picture of a comparison of schedules: bars beside each other, timelines below."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pplab.view import card as cards
from pplab.view import colours, static
from pplab.view.columns import rows_of
from pplab.view.lanes import Grid, draw_lanes
from pplab.view.scoreboard import COLUMNS, Cell, Scoreboard
from pplab.view.scores import Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAP = colours.LIGHT["cap"]
NAME, COLUMN, ROW, TITLE = 108.0, 92.0, 32.0, 17.0  # widths and heights in points
WIDER = 24.0  # what the column of the peak needs more, for the cap in its title


class Lanes(Grid):
    """Lanes of one schedule of several: thinner than those of a single picture."""

    @property
    def bar(self) -> float:
        """Height of a lane."""
        return 11.0 if len(self.rows) <= 8 else 7.0

    @property
    def pitch(self) -> float:
        """Distance from one rank to the next."""
        return self.bar + 3


def png(board: Scoreboard) -> bytes:
    """The picture as a PNG."""
    return static.png_of(picture(board))


def picture(board: Scoreboard, *, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide: the table with its bars, then the timelines."""
    across = width * 72
    timelines = [one.timeline for one in board.running if one.timeline is not None]
    grids = [Lanes(rows_of([t]), 1) for t in timelines]
    room = across - 2 * cards.MARGIN
    says = cards.wrapped(board.verdict(), room, 13, "bold")
    setting = cards.wrapped(board.setting(), room, 8.5)
    head = cards.MARGIN + 18 * len(says) + 13 * len(setting) + 24
    tops = list(accumulate((_tall(board, one) for one in board.scores), initial=head))
    below = tops[-1] + 12
    stacked = sum(grid.height + TITLE + 7 for grid in grids)
    keys = cards.legend(timelines, apart=True)
    foot = below + (stacked + static.AXIS + 4 if timelines else 0)
    key_lines = 1 + cards.place_keys(keys, across)[-1][1]
    card = cards.Card(across, foot + cards.KEYS * key_lines + cards.MARGIN / 2, static.DPI)
    for line, text in enumerate(says):
        card.say(cards.MARGIN, cards.MARGIN + 7 + 18 * line, text, 13, weight="bold")
    for line, text in enumerate(setting):
        y = cards.MARGIN + 18 * len(says) + 7 + 13 * line
        card.say(cards.MARGIN, y, text, 8.5, color=cards.SOFT)
    _head(card, board, head - 11)
    for one, top in zip(board.scores, tops, strict=False):
        _row(card, board, one, top)
    if timelines:
        _timelines(card, board, grids, below)
        cards.draw_legend(card, keys, foot)
    return card.figure


def _left(column: int) -> float:
    return cards.MARGIN + NAME + COLUMN * column + (WIDER if column > 2 else 0)


def _head(card: cards.Card, board: Scoreboard, y: float) -> None:
    for column, (title, field) in enumerate(COLUMNS):
        card.say(_left(column), y, title, 7.5, color=cards.SOFT)
        if field == "peak" and board.cap is not None:
            x = _left(column) + cards.wide(title, 7.5) + 5
            card.say(x, y, f"| cap {board.cap:g}", 7.5, color=CAP, weight="bold")


def _remarks(board: Scoreboard, one: Score) -> list[str]:
    """What stands under the name of a schedule that runs, in lines."""
    text = board.remarks(one)
    return cards.wrapped(text, NAME - 6, cards.SMALL) if text and one.runs else []


def _tall(board: Scoreboard, one: Score) -> float:
    """Height of the row of a schedule."""
    return ROW + cards.SMALL * 1.25 * max(0, len(_remarks(board, one)) - 1)


def _row(card: cards.Card, board: Scoreboard, one: Score, top: float) -> None:
    """Name, bars and remarks of one schedule; for one that cannot run, why."""
    across = card.width - 2 * cards.MARGIN
    card.box(cards.MARGIN, top - 3, across, 0.8, facecolor=cards.LINE, linewidth=0)
    name, size = cards.fitted(one.name, NAME - 6, 8.5, "bold")
    card.say(cards.MARGIN, top + 7, name, size, weight="bold")
    if not one.runs:
        room = card.width - _left(0) - cards.MARGIN
        lines = cards.wrapped(board.remarks(one), room, 8)
        for line, text in enumerate([lines[0], lines[1] + " ..."] if len(lines) > 2 else lines):
            card.say(_left(0), top + 7 + 12 * line, text, 8, color=CAP)
        return
    for line, text in enumerate(_remarks(board, one)):
        y = top + 18 + cards.SMALL * 1.25 * line
        card.say(cards.MARGIN, y, text, cards.SMALL, color=cards.SOFT)
    for column, cell in enumerate(board.cells(one)):
        cap = board.cap_share if COLUMNS[column][1] == "peak" else None
        _bar(card, cell, _left(column), top + 1, cap)


def _bar(card: cards.Card, cell: Cell, x: float, y: float, cap: float | None) -> None:
    room = COLUMN - 16
    card.box(x, y, room, 7, facecolor=colours.mix(cards.PAGE, cards.INK, 0.07), linewidth=0)
    style: dict[str, Any] = {"facecolor": colours.mix(cards.PAGE, cards.INK, 0.6), "linewidth": 0}
    if cell.over:
        style = {"facecolor": cards.PAGE, "edgecolor": CAP, "linewidth": 1, "hatch": "//////"}
    card.box(x, y, room * cell.share, 7, **style)
    if cap is not None:
        card.box(x + room * cap - 0.7, y - 3, 1.4, 13, facecolor=CAP, linewidth=0)
    card.say(x, y + 15, cell.text, 8.5, weight="bold")
    if cell.note:
        beside = x + cards.wide(cell.text, 8.5, "bold") + 4
        card.say(beside, y + 15.5, cell.note, cards.SMALL, color=CAP if cell.over else cards.SOFT)


def _timelines(card: cards.Card, board: Scoreboard, grids: list[Lanes], top: float) -> None:
    """The lanes of all schedules on one time axis."""
    left = cards.MARGIN + 44
    inside = card.width - left - cards.MARGIN - 4
    timelines = [one.timeline for one in board.running if one.timeline is not None]
    longest = max(t.step_time for t in timelines)
    for t, grid, title in zip(timelines, grids, board.titles(), strict=True):
        card.say(cards.MARGIN, top + 6, title, 8.5, weight="bold")
        top += TITLE
        ax = card.axes(left, top, inside, grid.height)
        draw_lanes(ax, [t], grid, inside / 72 * static.DPI, until=longest)
        for row, (_, rank) in enumerate(grid.rows):
            y = top + grid.top(row) + grid.bar / 2
            card.say(cards.MARGIN, y, f"rank {rank}", cards.SMALL)
        top += grid.height + 7
    static.time_axis(card, ax, timelines, (left, top - 5, inside))
