"""The picture of a diagnosis: the step as a staircase of named parts, and the causes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pplab.view import card as cards
from pplab.view import colours, static, words
from pplab.view.card import wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pplab.advise.diagnose.cause import Cause
    from pplab.advise.diagnose.parts import Part
    from pplab.advise.diagnose.report import Diagnosis

NAME, VALUE = 132.0, 96.0  # points for the names left of the bars, and the numbers right of them
SHARE = 46.0  # of VALUE: the column of per cents
ROW, BAR, LINE = 17.0, 11.0, 11.5  # a row, its bar, a line of text
#: Parts below this share of the step get no row of their own.
SMALL = 0.004
CAUSES = 4
REMOVABLE, SHAPE = colours.WORK["B"], colours.LIGHT["hatch"]
#: How each part is drawn: work filled, the shape of the pipeline hatched, the rest by whether it
#: names a cause.
LOOKS: dict[str, dict[str, Any]] = {
    "useful": {"facecolor": colours.WORK["F"], "linewidth": 0},
    "fill and drain": {
        "facecolor": cards.PAGE, "edgecolor": SHAPE, "linewidth": 0.8, "hatch": "/////",
    },
}  # fmt: skip
CAUSE: dict[str, Any] = {"facecolor": REMOVABLE, "linewidth": 0}
KEYS = ("work", "pipeline fills and drains", "costs that can be cut")


def png(found: Diagnosis) -> bytes:
    """The picture as a PNG."""
    return static.png_of(picture(found))


def picture(found: Diagnosis, *, width: float = 8.6) -> Figure:
    """A matplotlib figure, `width` inches wide."""
    across = width * 72
    room = across - 2 * cards.MARGIN
    shown = [p for p in found.parts if abs(p.share) >= SMALL]
    rest = sum(p.seconds for p in found.parts if abs(p.share) < SMALL)
    headline = wrapped(_headline(found), room, 10.5, "bold")
    told = [(cause, *_lines(cause, room - 66)) for cause in found.causes[:CAUSES]]
    top = cards.MARGIN + cards.BLOCK + 4 + 14 * len(headline)
    under = top + ROW * len(shown) + 26
    tall = sum(LINE * (len(what) + len(advice)) + 7 for _, what, advice in told)
    notes = [line for note in found.notes for line in wrapped(f"Note: {note}", room, 7.5)]
    height = under + tall + 10 * len(notes) + (10 if told else 4) + cards.MARGIN
    card = cards.Card(across, height, static.DPI)

    about = (
        (f"step {found.time(found.step)}", 10, cards.INK, "bold"),
        (found.about(), 8.5, cards.INK, "normal"),
    )
    useful = words.percent(found["useful"].share)
    cards.Block(useful, "useful work / step", 25, about).draw(card, cards.MARGIN, cards.MARGIN - 4)
    for i, text in enumerate(headline):
        y = cards.MARGIN + cards.BLOCK + 14 * i + 1
        card.say(cards.MARGIN, y, text, 10.5, weight="bold")
    _staircase(card, found, shown, top)
    _keys(card, top + ROW * len(shown) + 9, rest, found)
    _causes(card, found, told, under)
    for i, note in enumerate(notes):
        card.say(cards.MARGIN, height - cards.MARGIN - 10 * (len(notes) - i - 0.5), note, 7.5)
    return card.figure


def _headline(found: Diagnosis) -> str:
    one = found.first
    if one is None:
        return "No cause stands out: what remains is the shape of the pipeline."
    most = "up to " if one.at_most else ""
    return f"{one.what[0].upper()}{one.what[1:]}: {most}{one.share:.0%} of the step could be saved."


def _staircase(card: cards.Card, found: Diagnosis, shown: list[Part], top: float) -> None:
    """One row a part, each bar beginning where the one above it ends."""
    left = cards.MARGIN + NAME
    room = card.width - left - VALUE - cards.MARGIN
    first = found.first.name if found.first else ""
    until, scale = 0.0, room / max(found.step, max(_ends(found.parts)))
    for row, part in enumerate(shown):
        y = top + ROW * row
        weight = "bold" if part.name == first else "normal"
        card.box(left, y + 2, room, BAR, facecolor=colours.mix(cards.PAGE, cards.INK, 0.05),
                 linewidth=0)  # fmt: skip
        begin, end = sorted((until, until + part.seconds))
        look = LOOKS.get(part.name, CAUSE)
        card.box(left + scale * begin, y + 2, max(0.8, scale * (end - begin)), BAR, **look)
        card.say(cards.MARGIN, y + 2 + BAR / 2, part.name, 8.5, weight=weight)
        until += part.seconds
        for right, text in ((SHARE, found.time(part.seconds)), (0.0, f"{part.share:.1%}")):
            x = card.width - cards.MARGIN - right
            card.say(x, y + 2 + BAR / 2, text, 8.5, weight=weight, ha="right")


def _ends(parts: tuple[Part, ...]) -> list[float]:
    ends, until = [], 0.0
    for part in parts:
        until += part.seconds
        ends.append(until)
    return ends


def _keys(card: cards.Card, y: float, rest: float, found: Diagnosis) -> None:
    """What the looks mean, and the parts too small for a row."""
    x = cards.MARGIN + NAME
    for text, look in zip(KEYS, (*LOOKS.values(), CAUSE), strict=True):
        card.box(x, y - 4, 14, 8, **look)
        card.say(x + 18, y, text, 7.5, color=cards.SOFT)
        x += 30 + cards.wide(text, 7.5)
    if abs(rest) > 0:
        text = f"smaller parts {found.time(rest)}"
        card.say(card.width - cards.MARGIN, y, text, 7.5, color=cards.SOFT, ha="right")


def _lines(cause: Cause, room: float) -> tuple[list[str], list[str]]:
    """A cause and its advice in lines."""
    what = f"behind {cause.behind}: {cause.what}" if cause.behind else cause.what
    return wrapped(what, room, 8.5, "bold"), wrapped(cause.advice, room, 8)


def _causes(
    card: cards.Card, found: Diagnosis, told: list[tuple[Cause, list[str], list[str]]], top: float
) -> None:
    if not told:
        return
    card.box(cards.MARGIN, top - 6, card.width - 2 * cards.MARGIN, 0.8, facecolor=cards.LINE,
             linewidth=0)  # fmt: skip
    text = "saves, each alone (savings do not add up)"
    card.say(cards.MARGIN, top + 4, text, 7.5, color=cards.SOFT)
    y = top + 18
    for cause, what, advice in told:
        share = f"{'≤ ' if cause.at_most else ''}{cause.share:.1%}"
        card.say(cards.MARGIN, y, share, 10.5, weight="bold")
        for line in what:
            card.say(cards.MARGIN + 54, y, line, 8.5, weight="bold")
            y += LINE
        for line in advice:
            card.say(cards.MARGIN + 54, y, line, 8, color=cards.SOFT)
            y += LINE
        y += 7
