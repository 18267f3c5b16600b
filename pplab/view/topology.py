"""The picture of a topology: stages side by side, replicas under each other, parts touching.

A rank talks along three axes, and each is a line of its own: to its neighbour stages (arrows), to
the other replicas of its stage (lines down), to the other parts of its layers (the touching
boxes). Links that leave a node are dashed and red: they are the slow ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from pplab.core.topology import AXES, Topology
from pplab.view import card as cards
from pplab.view import colours, static
from pplab.view.show import bundle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX, TALL, GAP, DROP = 34.0, 30.0, 40.0, 30.0  # a rank, its height, between stages, replicas
LEAST = 470.0  # width of the card, in points
SLOW = colours.LIGHT["cap"]
#: Tints of nodes, told apart by their number in the box as well.
TINTS = ("#4c78a8", "#b35806", "#3f7f4f", "#8c2d62", "#6f6f2b", "#5b5b8c")
WORDS = {
    "pipe": "arrow: activations on, gradients back",
    "data": "line down: replicas add up gradients",
    "model": "touching: parts of one stage add up each layer",
}
MOST = 64  # ranks that are drawn; the table has them all


def topology_bundle(topology: Topology) -> dict[str, Any]:
    """MIME bundle of a topology: picture and words; only words beyond 64 ranks."""
    png = static.png_of(picture(topology)) if topology.world <= MOST else None
    return bundle(None, png, str(topology))


class _Places:
    """Where each rank's box is, in points."""

    def __init__(self, topology: Topology, down: float = 0.0) -> None:
        self.topology = topology
        self.cell = BOX * topology.model
        self.left, self.top = cards.MARGIN + 52, 74.0 + down
        self.width = self.left + topology.pipe * (self.cell + GAP) - GAP + cards.MARGIN + 8
        self.height = self.top + topology.data * (TALL + DROP) - DROP + 16

    def corner(self, rank: int) -> tuple[float, float]:
        """Upper left corner of a rank's box."""
        at = self.topology.coordinates(rank)
        x = self.left + at.pipe * (self.cell + GAP) + at.model * BOX
        return x, self.top + at.data * (TALL + DROP)


def picture(topology: Topology) -> Figure:
    """A matplotlib figure: a box a rank, with its number, in the tint of its node."""
    keys = _legend(topology)
    across = max(_Places(topology).width, LEAST)
    title = f"{topology.world} ranks"
    beside = cards.MARGIN + cards.wide(title, 15, "bold") + 14
    words = [
        line
        for part in topology.sentence().split(" = ", 1)[1].split("; ")
        for line in cards.wrapped(part, across - beside - cards.MARGIN, 8.5)
    ]
    places = _Places(topology, 14 * max(0, len(words) - 2))
    lines = 1 + cards.place_keys(keys, across)[-1][1]
    card = cards.Card(across, places.height + cards.KEYS * lines + cards.MARGIN, static.DPI)
    card.say(cards.MARGIN, 18, title, 15, weight="bold")
    for line, text in enumerate(words):
        card.say(beside, 13 + 14 * line, text, 8.5)
    for stage in range(topology.pipe):
        x = places.left + stage * (places.cell + GAP) + places.cell / 2
        card.say(x, places.top - 12, f"stage {stage}", 8.5, ha="center", weight="bold")
    for replica in range(topology.data):
        y = places.top + replica * (TALL + DROP) + TALL / 2
        card.say(cards.MARGIN, y, f"replica {replica}", 8.5)
    _links(card, places)
    for rank in range(topology.world):
        _box(card, places, rank)
    cards.draw_legend(card, keys, places.height)
    return card.figure


def _box(card: cards.Card, places: _Places, rank: int) -> None:
    x, y = places.corner(rank)
    colour = TINTS[places.topology.node(rank) % len(TINTS)]
    card.box(x, y, BOX, TALL, facecolor=colour, edgecolor=cards.PAGE, linewidth=1.2, zorder=3)
    style: dict[str, Any] = {"ha": "center", "color": colours.ink_on(colour), "zorder": 4}
    several = places.topology.nodes > 1
    card.say(x + BOX / 2, y + (10 if several else TALL / 2), f"{rank}", 10, weight="bold", **style)
    if several:
        card.say(x + BOX / 2, y + 22, f"node {places.topology.node(rank)}", cards.SMALL, **style)


def _links(card: cards.Card, places: _Places) -> None:
    topology = places.topology
    for axis in ("pipe", "data"):
        for group in topology.groups(axis):
            for one, other in pairwise(group):
                _link(card, places, axis, one, other)


def _link(card: cards.Card, places: _Places, axis: str, one: int, other: int) -> None:
    topology = places.topology
    slow = topology.node(one) != topology.node(other)
    part = topology.coordinates(one).model
    (xa, ya), (xb, yb) = places.corner(one), places.corner(other)
    style: dict[str, Any] = {
        "color": SLOW if slow else cards.SOFT,
        "linestyle": (0, (3, 2)) if slow else "-",
        "linewidth": 1.4,
    }
    if axis == "data":
        ends = [(xa + BOX / 2, ya + TALL), (xb + BOX / 2, yb)]
    else:  # a lane of its own for each part, from the cell's edge to the next cell's
        y = ya + TALL * (part + 1) / (topology.model + 1)
        edge = places.corner(topology.rank(*topology.coordinates(one)._replace(model=0)))[0]
        ends = [(edge + places.cell, y), (edge + places.cell + GAP, y)]
    (x0, y0), (x1, y1) = ((x / card.width, 1 - y / card.height) for x, y in ends)
    line: FancyArrowPatch | Line2D
    if axis == "data":
        line = Line2D([x0, x1], [y0, y1], transform=card.figure.transFigure, **style)
    else:
        line = FancyArrowPatch(
            (x0, y0), (x1, y1), arrowstyle="-|>", mutation_scale=8, shrinkA=1, shrinkB=1, **style
        )
        line.set_transform(card.figure.transFigure)
    card.figure.add_artist(line)


def _legend(topology: Topology) -> list[tuple[str, dict[str, Any], str]]:
    marks: dict[str, tuple[str, dict[str, Any]]] = {
        "pipe": ("→", {"color": cards.SOFT}),
        "data": ("|", {"color": cards.SOFT}),
        "model": ("", {"facecolor": TINTS[0]}),
    }
    keys = [(*marks[axis], WORDS[axis]) for axis in AXES if getattr(topology, axis) > 1]
    if topology.nodes > 1:
        keys.append(("- -", {"color": SLOW}, "dashed red: between nodes"))
        if topology.nodes <= len(TINTS):
            keys.append(("", {"facecolor": TINTS[0]}, "one colour: one node"))
    return keys or [("", {"facecolor": TINTS[0]}, "a rank")]
