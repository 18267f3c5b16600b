"""What is seen while layers are measured: where, and how far."""

from __future__ import annotations

import html
import sys
from typing import Any

from pplab.runtime.launch import ON_THE_CPU
from pplab.runtime.progress import in_notebook


class Progress:
    """One output of a notebook that is updated in place; a tqdm bar in a terminal; else nothing."""

    def __init__(self, repeats: int, quiet: bool) -> None:
        self.repeats, self.done = repeats, 0
        self.note = "starting"
        self._handle: Any = None
        self._bar: Any = None
        if quiet:
            return
        if in_notebook():
            from IPython.display import display

            self._handle = display(self._draw(), raw=True, display_id=True)
        elif sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=repeats, unit="repeat", leave=False, file=sys.stderr)

    def say(self, note: str) -> None:
        """Where it happens, or how it ended."""
        self.note = note
        self._show()

    def reach(self, done: int) -> None:
        """So many repeats are over."""
        if self._bar is not None:
            self._bar.update(done - self.done)
        self.done = done
        self._show()

    def close(self, note: str) -> None:
        """The last words; they stay in the notebook."""
        self.say(note)
        if self._bar is not None:
            self._bar.close()

    def _show(self) -> None:
        if self._handle is not None:
            self._handle.update(self._draw(), raw=True)
        if self._bar is not None:
            self._bar.set_postfix_str(self.note)

    def _draw(self) -> dict[str, str]:
        text = f"measured {self.done} of {self.repeats} repeats, {self.note}"
        bar = (
            f'<progress value="{self.done}" max="{self.repeats}" style="width:16em" '
            f'aria-label="repeats done"></progress>'
        )
        return {
            "text/html": f'<div role="status">{bar} <span>{html.escape(text)}</span></div>',
            "text/plain": f"[measured] {text}",
        }


def where(placed: dict[str, Any]) -> str:
    """On which device, and why."""
    if placed["device"] == "cuda":
        return "on a GPU"
    return "on the CPU" + placed["why"].removeprefix(ON_THE_CPU)
