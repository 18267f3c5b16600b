"""What the explorers have in common: the page asks, Python computes, the page draws.

The page sends one question at a time and keeps only the latest wish while it waits, so a drag
never piles up work in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets


class Answers(anywidget.AnyWidget):
    """A picture beside a form; `params` is what the form shows and the picture answers."""

    #: Words and numbers of the picture, and its binary columns (see ``columns``).
    meta = traitlets.Dict().tag(sync=True)
    spans = traitlets.Bytes(b"").tag(sync=True)
    #: Changes with every picture; the page repaints when it does.
    rev = traitlets.Int(0).tag(sync=True)
    params = traitlets.Dict().tag(sync=True)
    #: Number of the question that `params` answers.
    seq = traitlets.Int(0).tag(sync=True)
    #: Schedules to choose from.
    choices = traitlets.List().tag(sync=True)
    #: Least, most and step of each slider.
    ranges = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self._asked)

    def show(self, **params: Any) -> None:
        """Change some of the numbers of the form, and redraw."""
        self._put({**self.params, **params}, self.seq)

    def _asked(self, _: Any, wish: Mapping[str, Any], __: Any) -> None:
        if "seq" in wish:  # the rest only keeps the connection awake (see controls.js)
            self._put({key: wish[key] for key in self.params}, int(wish["seq"]))

    def _put(self, params: dict[str, Any], seq: int) -> None:
        meta, spans, params = self._answer(params)
        with self.hold_sync():
            self.meta, self.spans, self.params = meta, spans, params
            self.seq, self.rev = seq, self.rev + 1

    def _answer(self, params: dict[str, Any]) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        """(meta, spans, params as they were understood) for what the form asks."""
        raise NotImplementedError
