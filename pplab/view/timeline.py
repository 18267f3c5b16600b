"""The live picture: a widget that draws one or several timelines on the same time axis."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from pplab.core.timeline import Timeline
from pplab.view import assets, static
from pplab.view.columns import pack
from pplab.view.show import bundle


class TimelineView(anywidget.AnyWidget):
    """One or several timelines, rank by rank, with zoom, stepping and tooltips.

    Simulated timelines are outlined, all others filled. `memory` adds a strip with the activations
    in flight, `cap` a line at the most a rank may hold. ``view.show(other, ...)`` changes the
    picture in place. Raises ValueError when timelines differ in unit or number of ranks.
    """

    _esm = assets.module(
        *assets.PICTURE,
        render='const v = mount(model, el); model.on("change:rev", v.refresh);'
        ' return () => { model.off("change:rev", v.refresh); v.close(); };',
    )
    _css = assets.style("timeline.css")
    #: Words and numbers of the picture, and the binary columns (see ``columns``).
    meta = traitlets.Dict().tag(sync=True)
    spans = traitlets.Bytes(b"").tag(sync=True)
    #: Changes with every picture; the page repaints when it does.
    rev = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, *timelines: Timeline, memory: bool = False, cap: float | None = None, **traits: Any
    ) -> None:
        super().__init__(**traits)
        self.show(*timelines, memory=memory, cap=cap)

    def show(self, *timelines: Timeline, memory: bool = False, cap: float | None = None) -> None:
        """Draw these timelines instead; the reader's zoom stays when the length is the same."""
        meta, spans = pack(timelines, memory=memory, cap=cap)
        self._timelines, self._options = timelines, {"memory": memory, "cap": cap}
        meta |= {"text": str(self), **self._more()}
        meta["lines"][0] |= self._headline()
        with self.hold_sync():
            self.meta, self.spans, self.rev = meta, spans, self.rev + 1

    def _more(self) -> dict[str, Any]:
        """What a special kind of view adds to the words and numbers the page gets."""
        return {}

    def _headline(self) -> dict[str, Any]:
        """What a special kind of view prints instead of the bubble."""
        return {}

    def _png(self) -> bytes | None:
        return static.png(self._timelines, **self._options)

    def __str__(self) -> str:
        return static.text(self._timelines)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return bundle(super()._repr_mimebundle_(**kwargs), self._png(), str(self))
