"""Questions on a page: choose an answer or type one, hear at once what is to be said about it.

The page knows the questions and nothing else. An answer goes to Python, and what Python says of it
comes back: nothing that gives an answer away lies in the notebook before it was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import anywidget
import traitlets

from pplab.view import assets
from pplab.view.show import bundle

#: `code` and *emphasis*, the two marks that texts of questions use.
_MARKS = re.compile(r"`([^`]+)`|\*(\w[^*]*)\*")


class QuestionsView(anywidget.AnyWidget):
    """A list of questions with a button each.

    A card is a dict: "text"; "options" (a list of texts) or none for a number; "unit"; "answer"
    (the last one given, or None); "said" (what was said about it: "state", "sign", "reason") or
    None. `judge` takes the number of a card and the answer, and returns what is said.
    """

    title = traitlets.Unicode().tag(sync=True)
    intro = traitlets.Unicode().tag(sync=True)
    button = traitlets.Unicode("Check").tag(sync=True)
    #: The word that counts cards in the line on top ("right", "" for no such line).
    counted = traitlets.Unicode("right").tag(sync=True)
    cards = traitlets.List().tag(sync=True)
    #: Changes with every answer; the page looks at the cards again when it does.
    rev = traitlets.Int(0).tag(sync=True)

    _esm = assets.module("words.js", "quiz.js", render="return questions(model, el);")
    _css = assets.style("timeline.css", "quiz.css")

    def __init__(
        self,
        cards: Sequence[Mapping[str, Any]],
        judge: Callable[[int, Any], dict[str, Any]],
        **traits: Any,
    ) -> None:
        empty: dict[str, Any] = {"options": [], "unit": "", "answer": None, "said": None}
        super().__init__(cards=[{**empty, **card} for card in cards], **traits)
        self._judge = judge
        self.on_msg(self._asked)

    def _asked(self, _: Any, message: Mapping[str, Any], __: Any) -> None:
        if "card" not in message:
            return
        number, answer = int(message["card"]), message["answer"]
        said = self._judge(number, answer)
        cards = list(self.cards)
        cards[number] = {**cards[number], "answer": answer, "said": said}
        with self.hold_sync():
            self.cards, self.rev = cards, self.rev + 1

    # -- where there is no kernel ---------------------------------------------------------------

    def __str__(self) -> str:
        lines = [self.title, *([self.intro] if self.intro else [])]
        for number, card in enumerate(self.cards, 1):
            mark = f"{number}. " if len(self.cards) > 1 else ""
            lines.append(f"{mark}{plain(card['text'])}")
            lines += [f"   ( ) {plain(option)}" for option in card["options"]]
            if not card["options"]:
                lines.append(f"   your number: ____ {card['unit']}".rstrip())
        lines.append("Run this cell to answer.")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = []
        for card in self.cards:
            options = "".join(f"<li>{marked(option)}</li>" for option in card["options"])
            number = f" <i>({('a number ' + card['unit']).strip()})</i>"
            options = f"<ul>{options}</ul>" if options else number
            items.append(f"<li>{marked(card['text'])}{options}</li>")
        listed = f"<ol>{''.join(items)}</ol>" if len(items) > 1 else f"<ul>{items[0]}</ul>"
        intro = f"<p>{marked(self.intro)}</p>" if self.intro else ""
        run = "<p><i>Run this cell to answer.</i></p>"
        return f"<p><b>{marked(self.title)}</b></p>{intro}{listed}{run}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        widget = super()._repr_mimebundle_(**kwargs)
        return {**bundle(widget, None, str(self)), "text/html": self._repr_html_()}


def plain(text: str) -> str:
    """The text without its marks."""
    return _MARKS.sub(lambda m: m[1] or m[2], text)


def marked(text: str) -> str:
    """The text as HTML."""
    return _MARKS.sub(
        lambda m: f"<code>{m[1]}</code>" if m[1] else f"<em>{m[2]}</em>", escape(text, quote=False)
    )
