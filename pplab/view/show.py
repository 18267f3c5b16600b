"""One output, three readers: a live widget, a picture, and words.

JupyterLab takes the widget when it runs; an untrusted or unrun notebook, GitHub and an exported
page show the PNG; a terminal and a screen reader get the text.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Any

from pplab.core.timeline import Timeline
from pplab.view.comparison import Comparison

WIDGET = "application/vnd.jupyter.widget-view+json"
_warmed = False


def bundle(widget: Any, png: bytes | None, text: str) -> dict[str, Any]:
    """The MIME bundle of one output.

    `widget` is a widget, what its own ``_repr_mimebundle_`` gave, or None; `png` and `text` are
    what is shown where there is no kernel.
    """
    data: dict[str, Any] = {"text/plain": text}
    if png:
        data["image/png"] = base64.b64encode(png).decode("ascii")
    if hasattr(widget, "_repr_mimebundle_"):
        widget = widget._repr_mimebundle_()
    if isinstance(widget, tuple):
        widget = widget[0]
    if widget and WIDGET in widget:
        data[WIDGET] = widget[WIDGET]
    return data


def timeline_bundle(*timelines: Timeline, **options: Any) -> dict[str, Any]:
    """MIME bundle of one or several timelines: what a notebook shows as the value of a cell.

    Options are those of ``TimelineView``: ``memory=True`` for the strip of activations in flight,
    ``cap=`` for a line in it.
    """
    from pplab.view.timeline import TimelineView

    warm_once()
    return TimelineView(*timelines, **options)._repr_mimebundle_()


def warm_once() -> None:
    """In a notebook, start the process server with the first picture: who looks at a timeline
    will want a run next, and finds it quick. Elsewhere, and whenever it fails, do nothing.
    """
    global _warmed
    if _warmed:
        return
    with contextlib.suppress(Exception):
        from pplab.runtime import client, progress

        if progress.in_notebook():
            _warmed = True
            client.warm()


def compare(
    simulated: Timeline, measured: Timeline, *, memory: bool = False, cap: float | None = None
) -> Comparison:
    """Two timelines over each other, rank by rank, with the difference shaded.

    Usually a simulated one over a measured one, but any two will do: two schedules, two runs. Of
    a run of several steps the typical one is taken, both are shifted to start at 0, and a
    simulation of one pipeline is laid over each replica of a run. Raises ValueError when their
    units or numbers of ranks differ.
    """
    return Comparison.of(simulated, measured, memory=memory, cap=cap)
