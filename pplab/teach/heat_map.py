"""The heat map of a class: a row a learner, a column a question.

A colour never stands alone: every cell repeats its state as a sign.
"""

from __future__ import annotations

import textwrap
from html import escape
from typing import TYPE_CHECKING, Any

from pplab.teach.verdict import STATES
from pplab.view import colours

if TYPE_CHECKING:
    from pplab.teach.classroom import Classroom

#: Blue and orange keep apart for colour-blind eyes; pale ones are for "not yet".
FILL = {
    "right": colours.WORK["F"],
    "wrong": colours.WORK["B"],
    "blocked": colours.GREY,
    "not attempted": "#e9ecef",
}
LEGEND = (
    f"{STATES['right']} right; {STATES['wrong']} wrong so far; {STATES['blocked']} cannot be "
    "judged on that machine; · not attempted; a number: tries; s: solution looked up"
)


def html(room: Classroom) -> str:
    """The heat map as a table: signs in coloured cells, the question and state on hovering."""
    if not room.learners:
        return f"<p>{escape(room.sentence())}</p>{_remarks(room)}"
    left = "text-align:left;white-space:nowrap;padding:2px 8px"
    groups = "".join(
        f"<th scope='colgroup' colspan='{len(keys)}' style='{left};border-left:2px solid "
        f"currentColor'>{escape(name)}</th>"
        for name, keys in room.groups.items()
    )
    narrow = "text-align:center;padding:2px"
    numbers = "".join(
        f"<th scope='col' style='{narrow}'>{escape(key.rpartition('.')[2])}</th>"
        for keys in room.groups.values()
        for key in keys
    )
    rows = []
    for learner in room.learners:
        cells = [f"<th scope='row' style='{left}'>{escape(learner.name)}</th>"]
        for key in (key for keys in room.groups.values() for key in keys):
            state = learner.state(key)
            fill = FILL[state]
            cells.append(
                f"<td style='background:{fill};color:{colours.ink_on(fill)};text-align:center;"
                f"padding:2px 5px' title='{escape(f'{learner.name}, {key}: {state}')}'>"
                f"{escape(learner.mark(key))}</td>"
            )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f"<div style='overflow-x:auto'><table><caption style='text-align:left'>"
        f"{escape(room.sentence())}</caption><thead><tr><td></td>{groups}</tr><tr><td></td>"
        f"{numbers}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f"<p>{escape(LEGEND)}</p>{_remarks(room)}"
    )


def _remarks(room: Classroom) -> str:
    return "".join(f"<p>{escape(remark)}</p>" for remark in room.remarks)


def png(room: Classroom) -> bytes:
    """The heat map as a card."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from pplab.view.static import DPI, png_of

    ink, soft, line = (colours.LIGHT[name] for name in ("ink", "soft", "line"))
    keys = [key for group in room.groups.values() for key in group]
    cell, row = 0.24, 0.26  # inches
    names = max((len(learner.name) for learner in room.learners), default=0)
    margin = 0.35 + 0.085 * names
    wide = max(7.2, margin + cell * len(keys) + 0.15 * len(room.groups) + 0.3)
    said = textwrap.wrap(room.sentence(), int(wide / 0.088))
    top = 0.8 + 0.18 * len(said)
    high = top + 0.37 + row * (len(room.learners) + 1)
    figure = Figure(figsize=(wide, high), dpi=DPI, facecolor=colours.LIGHT["page"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, wide)
    axes.set_ylim(high, 0)
    axes.axis("off")

    def write(x: float, y: float, text: str, size: float = 8, **options: Any) -> None:
        style = {"color": ink, "va": "center", "parse_math": False, **options}
        axes.text(x, y, text, fontsize=size, **style)

    for place, part in enumerate(said):
        write(0.15, 0.22 + 0.18 * place, part, 9.5, weight="bold")
    x = margin
    for name, group in room.groups.items():
        if x > margin:
            x += 0.15
        write(x, top - 0.42, name, 8, weight="bold")
        for key in group:
            write(
                x + cell / 2, top - 0.19, key.rpartition(".")[2][:3], 6.5, color=soft, ha="center"
            )
            for place, learner in enumerate(room.learners):
                fill, y = FILL[learner.state(key)], top + row * place
                box = Rectangle((x, y - row / 2), cell, row, facecolor=fill, edgecolor="white")
                axes.add_patch(box)
                write(x + cell / 2, y, learner.mark(key), 6.5, ha="center",
                      color=colours.ink_on(fill))  # fmt: skip
            x += cell
    for place, learner in enumerate(room.learners):
        write(margin - 0.1, top + row * place, learner.name, 8, ha="right")
    y = top + row * len(room.learners) + 0.05
    axes.plot([0.15, wide - 0.15], [y, y], color=line, linewidth=0.8)
    write(0.15, y + 0.18, LEGEND, 7, color=soft)
    return png_of(figure)
