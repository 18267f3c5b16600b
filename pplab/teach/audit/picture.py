"""The verdicts as a picture: a row a topic, a box a claim, the best verdicts on the left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pplab.teach.audit.claim import SIGNS, TOPICS, VERDICTS
from pplab.teach.audit.page import COLOURS, Audit, in_picture_order
from pplab.view import card as cards
from pplab.view import colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX, ROW = 22.0, 27.0  # height of a box and of a row, in points
LEFT, RIGHT = 92.0, 74.0  # room for topics, and for totals
WIDEST = 34.0
DPI = 110


def picture(claims: Audit, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide."""
    across = width * 72
    rows = [(topic, in_picture_order(c for c in claims if c.topic == topic)) for topic in TOPICS]
    rows = [(topic, found) for topic, found in rows if found]
    top = cards.MARGIN + cards.BLOCK + 8
    under = top + ROW * len(rows) + 4
    keys = [
        ("", _style(verdict), f"{SIGNS[verdict]} {verdict}: {claims.counts[verdict]}")
        for verdict in VERDICTS
    ]
    lines = 1 + cards.place_keys(keys, across)[-1][1]
    card = cards.Card(across, under + cards.KEYS * lines + cards.MARGIN / 2, DPI)
    _head(claims).draw(card, cards.MARGIN, cards.MARGIN - 4)
    room = across - LEFT - RIGHT - 2 * cards.MARGIN
    wide = min(WIDEST, room / max((len(found) for _, found in rows), default=1))
    for line, (topic, found) in enumerate(rows):
        y = top + ROW * line
        card.say(cards.MARGIN, y + BOX / 2, topic, 9, weight="bold")
        for place, claim in enumerate(found):
            x, face = cards.MARGIN + LEFT + place * wide, COLOURS[claim.verdict]
            card.box(x + 1, y, wide - 2, BOX, **_style(claim.verdict))
            ink = {"color": colours.ink_on(face), "ha": "center"}
            card.say(x + wide / 2, y + 7, SIGNS[claim.verdict], 8, weight="bold", **ink)
            card.say(x + wide / 2, y + 16, claim.number, 7, **ink)
        total = f"{Audit(found).holding} of {len(found)} hold"
        x = cards.MARGIN + LEFT + len(found) * wide + 8
        card.say(x, y + BOX / 2, total, 8, color=cards.SOFT)
    cards.draw_legend(card, keys, under)
    return card.figure


def _style(verdict: str) -> dict[str, Any]:
    face = COLOURS[verdict]
    line = "dashed" if verdict == "unsupported" else "solid"
    edge = colours.mix(face, "#000000", 0.35)
    return {"facecolor": face, "edgecolor": edge, "linewidth": 0.8, "linestyle": line}


def _head(claims: Audit) -> cards.Block:
    lines = [(claims.sentence(), 10.0, cards.INK, "bold")]
    parts = []
    for article in (1, 2):
        of = Audit(claim for claim in claims if claim.article == article)
        if of:
            parts.append(f"article {article}: {of.holding} of {len(of)} hold")
    lines.append(("; ".join(parts), 8.5, cards.INK, "normal"))
    lines.append(("A box is a claim, with its number in the list.", 7.5, cards.SOFT, "normal"))
    return cards.Block(f"{claims.holding} of {len(claims)}", "hold", 25, tuple(lines))
