"""Lanes of operations on matplotlib axes: what the canvas of the widget draws, for paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from pplab.core.ops import CODE, KINDS, USEFUL
from pplab.core.timeline import Timeline
from pplab.view import colours
from pplab.view.columns import Arrays, Row, columns, windows, zero_of
from pplab.view.words import is_simulated

FONT = "DejaVu Sans"
LEAST = 7.0  # points: text in a bar is that large, or is left out


@dataclass(frozen=True)
class Grid:
    """Where the lanes lie, in points down from the top of the axes."""

    rows: list[Row]
    of: int  # timelines

    @property
    def bar(self) -> float:
        """Height of a lane."""
        return float(np.clip(300 // (len(self.rows) * self.of), 4, 17 if self.of == 1 else 13))

    @property
    def between(self) -> float:
        """Space between the lanes of one rank."""
        return min(6.0, self.bar / 2) if self.of > 1 else 0.0

    @property
    def pitch(self) -> float:
        """Distance from one rank to the next."""
        return self.of * self.bar + (self.of - 1) * self.between + (7 if self.bar > 8 else 2)

    @property
    def named(self) -> int:
        """Every which rank has room for its name."""
        return max(1, math.ceil(8.5 / self.pitch))

    def headings(self) -> dict[int, str]:
        """Row index above which each replica is named; nothing with only one replica."""
        if self.rows[-1][0] == self.rows[0][0]:
            return {}
        first = {replica: i for i, (replica, _) in reversed(list(enumerate(self.rows)))}
        return {i: f"replica {replica}" for replica, i in first.items()}

    def top(self, row: int, line: int = 0) -> float:
        """Upper edge of a lane."""
        heads = sum(i <= row for i in self.headings()) * 14
        return row * self.pitch + line * (self.bar + self.between) + heads

    @property
    def height(self) -> float:
        """Height of all lanes."""
        return self.top(len(self.rows) - 1, self.of - 1) + self.bar


def draw_lanes(
    ax: Axes, timelines: Sequence[Timeline], grid: Grid, pixels: float, until: float = 0.0
) -> bool:
    """All lanes of some timelines; `pixels` is the width of the axes on screen, which end where
    the timelines do, or at `until` if that is later.

    Returns True when some lane has more operations than pixels, so that shares were drawn.
    """
    table = columns(timelines, grid.rows)
    longest = float(table["end"].max(initial=until)) or 1.0
    ax.set_xlim(0, longest * 1.005)
    ax.set_ylim(grid.height, 0)
    per, piled = pixels / (longest * 1.005), False
    zero = zero_of(timelines)
    if len(timelines) > 1:
        _differences(ax, table, grid)
    for row in range(len(grid.rows)):
        for line, t in enumerate(timelines):
            top = grid.top(row, line)
            for begin, stop in windows(t, zero):
                _idle(ax, begin, stop, top, grid.bar)
            mine = table["lane"] == row * grid.of + line
            lane = {name: column[mine] for name, column in table.items()}
            if np.sum(lane["kind"] < len(USEFUL)) > pixels:
                piled = True
                _dense(ax, lane, top, grid.bar, is_simulated(t), pixels)
            else:
                chunks = t.layout.chunks
                _waits(ax, lane, table, top, grid.bar)
                _bars(ax, lane, top, grid.bar, is_simulated(t), chunks, per)
    return piled


def _idle(ax: Axes, begin: float, stop: float, top: float, bar: float) -> None:
    patch = Rectangle((begin, top), stop - begin, bar, facecolor="none", linewidth=0)
    patch.set(hatch="////", edgecolor=colours.LIGHT["hatch"], zorder=1)
    patch.set_hatch_linewidth(0.5)
    ax.add_patch(patch)


def _add(ax: Axes, shapes: NDArray[np.float64], **style: Any) -> None:
    """Polygons of shape (n, corners, 2); the limits of the axes stay."""
    ax.add_collection(PolyCollection(list(shapes), **{"linewidths": 0, **style}), autolim=False)


def _boxes(start: Any, end: Any, top: float, height: float) -> NDArray[np.float64]:
    """Rectangles as polygons; shape (n, 4, 2)."""
    start, end = np.asarray(start, dtype=float), np.asarray(end, dtype=float)
    y = np.broadcast_to(np.array([top, top, top + height, top + height]), (len(start), 4))
    return np.stack([np.stack([start, end, end, start], axis=1), y], axis=2)


def _bars(
    ax: Axes, lane: Arrays, top: float, bar: float, outlined: bool, chunks: int, per: float
) -> None:
    work = np.flatnonzero(lane["kind"] < len(USEFUL))
    page, ink = colours.LIGHT["page"], colours.LIGHT["ink"]
    faces, edges = [], []
    for kind, chunk in zip(lane["kind"][work], lane["chunk"][work], strict=True):
        base = colours.WORK[KINDS[kind]]
        light = 0.2 * chunk / max(1, chunks - 1)
        solid = colours.shade(KINDS[kind], int(chunk), chunks)
        faces.append(colours.mix(page, base, 0.26 - light) if outlined else solid)
        edges.append(base if outlined else page)
    boxes = _boxes(lane["start"][work], lane["end"][work], top, bar)
    _add(ax, boxes, facecolors=faces, edgecolors=edges, linewidths=0.7, zorder=3)
    size = min(8.5, bar * 0.65)
    digits = len(str(int(lane["micro_batch"].max(initial=0))))
    for i, face in zip(work.tolist(), faces, strict=True):
        m, start, end = int(lane["micro_batch"][i]), lane["start"][i], lane["end"][i]
        # The letter repeats what the colour says; where only the number fits, the number. Bars of
        # one width are all labelled or none: the longest number decides.
        letter, room = KINDS[lane["kind"][i]], (end - start) * per
        need = size * (digits if m >= 0 else 1)
        text = letter if m < 0 or room > need + size + 3 else ""
        text += str(m) if m >= 0 else ""
        if size >= LEAST and room > need + 1:
            style: dict[str, Any] = {"ha": "center", "va": "center", "family": FONT, "zorder": 4}
            style |= {"fontsize": size, "color": ink if outlined else colours.ink_on(face)}
            ax.text((start + end) / 2, top + bar / 2 + 0.5, text, **style)


def _waits(ax: Axes, lane: Arrays, table: Arrays, top: float, bar: float) -> None:
    """Thin lines at the foot in the colour of what is awaited; other bookkeeping in grey."""
    recorded = lane["kind"] == CODE["R"]
    if recorded.any():
        rows = np.flatnonzero(recorded)
        start, end = lane["start"][rows], lane["end"][rows]
        needs = lane["needs"][rows]
        kind = np.where(needs >= 0, table["kind"][needs], CODE["R"])
    else:
        rows = np.flatnonzero((lane["kind"] < len(USEFUL)) & (lane["wait"] > 0))
        start, end = lane["start"][rows] - lane["wait"][rows], lane["start"][rows]
        kind = lane["kind"][rows]
    thin = max(1.5, bar * 0.13)
    for code in np.unique(kind).tolist():
        boxes = _boxes(start[kind == code], end[kind == code], top + bar - thin, thin)
        colour = colours.WORK.get(KINDS[code], colours.GREY)
        _add(ax, boxes, facecolors=colour, zorder=2)
    rest = np.flatnonzero((lane["kind"] >= len(USEFUL)) & ~recorded)
    boxes = _boxes(lane["start"][rest], lane["end"][rest], top + bar * 0.32, bar * 0.36)
    _add(ax, boxes, facecolors=colours.GREY, zorder=2)


def _dense(ax: Axes, lane: Arrays, top: float, bar: float, outlined: bool, pixels: float) -> None:
    """More operations than pixels: per pixel column the shares of time of the kinds, piled up."""
    count, (_, right) = int(pixels), ax.get_xlim()
    edges = np.linspace(0, right, count + 1)
    foot = np.full(count, top)
    for code, kind in enumerate(USEFUL):
        mine = lane["kind"] == code
        # Work done until a time, at the edges of the pixels; its increase is the share.
        times = np.stack([lane["start"][mine], lane["end"][mine]], axis=1).ravel()
        if not len(times):
            continue
        done = np.cumsum(np.diff(times, prepend=times[0]) * (np.arange(len(times)) % 2))
        share = np.diff(np.interp(edges, times, done)) / (right / count)
        tall = np.clip(share, 0, 1) * bar
        colour = colours.WORK[kind]
        if outlined:
            colour = colours.mix(colours.LIGHT["page"], colour, 0.62)
        x = np.repeat(edges, 2)[1:-1]
        ax.fill_between(
            x, np.repeat(foot, 2), np.repeat(foot + tall, 2), color=colour, linewidth=0, zorder=3
        )
        foot = foot + tall


def _differences(ax: Axes, table: Arrays, grid: Grid) -> None:
    """Between the lanes of a rank: the further an operation is from its twin, the darker."""
    rows = np.flatnonzero((table["twin"] >= 0) & (table["lane"] % grid.of == 1))
    if not len(rows):
        return
    twins, start, end = table["twin"][rows], table["start"], table["end"]
    mean = float(np.mean(end[rows] - start[rows])) or 1.0
    apart = np.abs(start[rows] + end[rows] - start[twins] - end[twins]) / 2 / mean
    level = np.minimum(8, np.round(apart * 6)) * 0.05
    tops = np.array([grid.top(row) + grid.bar for row in range(len(grid.rows))])
    y = tops[table["lane"][rows] // grid.of]
    shapes = np.stack(
        [
            np.stack([start[twins], end[twins], end[rows], start[rows]], axis=1),
            np.stack([y, y, y + grid.between, y + grid.between], axis=1),
        ],
        axis=2,
    )
    ink = colours.LIGHT["ink"]
    faces = [f"{ink}{round(255 * share):02x}" for share in level]
    _add(ax, shapes, facecolors=faces, zorder=1.5)
