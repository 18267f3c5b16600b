"""Sweeps as pictures: a widget that grows while the runs run, a card, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from pplab.runtime.sweep.result import Sweep
from pplab.view import assets
from pplab.view.show import bundle
from pplab.view.sweep_panels import describe, text


class SweepView(anywidget.AnyWidget):
    """One or several sweeps: throughput, working time and memory over micro-batches.

    Arrow keys (or the pointer) walk through the points; what is known about each is said under
    the picture. ``view.show(sweeps)`` changes it in place.
    """

    _esm = assets.module(
        "words.js",
        "sweep.js",
        render="const v = sweep(model, el); return v.close;",
    )
    _css = assets.style("timeline.css", "sweep.css")
    #: Words and numbers of the picture (see ``sweep_panels.describe``).
    meta = traitlets.Dict().tag(sync=True)
    #: What goes on while it runs; "" when it is over.
    status = traitlets.Unicode("").tag(sync=True)
    #: Changes with every picture; the page repaints when it does.
    rev = traitlets.Int(0).tag(sync=True)

    def __init__(self, sweeps: Sequence[Sweep], **traits: Any) -> None:
        super().__init__(**traits)
        self.show(sweeps)

    def show(self, sweeps: Sequence[Sweep]) -> None:
        """Draw these sweeps instead."""
        self._sweeps = list(sweeps)
        with self.hold_sync():
            self.meta, self.rev = describe(self._sweeps), self.rev + 1

    def __str__(self) -> str:
        return text(self._sweeps)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        from pplab.view.sweep_card import png

        measured = any(map(len, self._sweeps))
        picture = png(self._sweeps) if measured else None
        return bundle(super()._repr_mimebundle_(**kwargs), picture, str(self))


def sweep_bundle(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """MIME bundle of sweeps: what a notebook shows as the value of a cell."""
    return SweepView(sweeps)._repr_mimebundle_()


class LiveSweep:
    """The picture of a sweep that is still running: it grows in the output of its cell."""

    def __init__(self) -> None:
        self._view: SweepView | None = None
        self._handle: Any = None

    def update(self, sweeps: Sequence[Sweep], status: str) -> None:
        """There is a new point (or, the first time, nothing yet)."""
        if self._view is None:
            from IPython.display import display

            self._view = SweepView(sweeps, status=status)
            self._handle = display(self._view._repr_mimebundle_(), raw=True, display_id=True)
        else:
            self._view.show(sweeps)
            self.say(status)

    def say(self, status: str) -> None:
        """What goes on."""
        if self._view is not None:
            self._view.status = status

    def close(self, sweeps: Sequence[Sweep], status: str) -> None:
        """The sweep is over: what stays in the notebook is the picture as it is now."""
        if self._view is not None:
            self._view.show(sweeps)
            self._view.status = status
            self._handle.update(self._view._repr_mimebundle_(), raw=True)
