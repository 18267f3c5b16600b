"""Claims as they show: a table with links to the cells, and the same in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

from pplab.teach.audit import first, second
from pplab.teach.audit.claim import MEANING, SIGNS, TOPICS, VERDICTS, Claim
from pplab.view import colours

#: Colour of each verdict. None is that of a kind of work: a verdict is no time.
COLOURS = {
    "true": "#0b6e75",
    "mostly true": "#8fc1c4",
    "misleading": "#e0b24c",
    "false": "#a3271d",
    "unsupported": "#ffffff",
}
#: "Holds" in every sentence of the page.
HOLDS = ("true", "mostly true")


class Audit(tuple[Claim, ...]):
    """Some claims. All of them show as a picture, a choice of them as a table."""

    title: str

    def __new__(cls, claims: Iterable[Claim], title: str = "") -> Audit:
        """`title` says what was chosen; "" for everything."""
        self = super().__new__(cls, claims)
        self.title = title
        return self

    def __getitem__(self, key: Any) -> Any:
        """A claim by its number ("1.8") or place."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        for claim in self:
            if claim.number == key:
                return claim
        raise KeyError(f"no claim {key} here: there are {', '.join(c.number for c in self)}")

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each verdict, best first."""
        found = Counter(claim.verdict for claim in self)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def holding(self) -> int:
        """How many are true or mostly true."""
        return sum(self.counts[verdict] for verdict in HOLDS)

    def sentence(self) -> str:
        """What the verdicts are, in a sentence."""
        parts = [f"{count} {verdict}" for verdict, count in self.counts.items() if count]
        said = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)
        claims = "claim" if len(self) == 1 else "claims"
        return f"{len(self)} {claims}: {said}." if self else "No claims."

    def summary(self) -> str:
        """All verdicts, for each topic: the words of the picture."""
        share = f"{self.holding / len(self):.0%}" if self else "-"
        lines = [f"{self.holding} of {len(self)} claims hold ({share}). {self.sentence()}"]
        for article in (1, 2):
            of = Audit(claim for claim in self if claim.article == article)
            if of:
                lines.append(f"Article {article}: {of.holding} of {len(of)} hold.")
        for topic in TOPICS:
            of = Audit(claim for claim in self if claim.topic == topic)
            if of:
                signs = (f"{c.number}{SIGNS[c.verdict]}" for c in in_picture_order(of))
                lines.append(f"{topic + ':':14} {of.holding:>2} of {len(of):<2}  {' '.join(signs)}")
        keys = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
        return "\n".join([*lines, keys])

    def __str__(self) -> str:
        if not self.title:
            return self.summary()
        return "\n".join([f"{self.title}. {self.sentence()}", *map(str, self)])

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        if self.title:
            return {"text/plain": str(self), "text/html": self.table()}
        from pplab.teach.audit.picture import picture
        from pplab.view.show import bundle
        from pplab.view.static import png_of

        return bundle(None, png_of(picture(self)), str(self))

    def table(self) -> str:
        """The table as HTML; its links work beside the chapters."""
        left = ' style="text-align:left;vertical-align:top"'
        titles = ("claim", "the article says", "verdict", "what is so", "see for yourself")
        head = "".join(f'<th scope="col"{left}>{title}</th>' for title in titles)
        rows = []
        for claim in self:
            links = "<br>".join(
                f'<a href="{escape(place.href)}">{escape(str(place))}</a>' for place in claim.places
            )
            rows.append(
                f'<tr><th scope="row"{left}>{claim.number}</th>'
                f"<td{left}>{_plain(claim.says)}</td><td{left}>{_chip(claim.verdict)}</td>"
                f"<td{left}>{_plain(claim.truth)}</td><td{left}>{links}</td></tr>"
            )
        caption = f"<caption{left}><b>{escape(self.title)}.</b> {escape(self.sentence())}</caption>"
        return (
            f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )


def audit(*choice: str) -> Audit:
    """The claims of the two articles; all of them, or a choice.

    choice: a topic (of TOPICS), a verdict (of VERDICTS), "article 1" or "article 2", in any order;
    a claim is in it when it fits all that are given. Raises ValueError for a word that is none.
    """
    chosen = sorted([*first.CLAIMS, *second.CLAIMS], key=lambda claim: claim.order)
    for word in choice:
        if word in TOPICS:
            chosen = [claim for claim in chosen if claim.topic == word]
        elif word in VERDICTS:
            chosen = [claim for claim in chosen if claim.verdict == word]
        elif word in ("article 1", "article 2"):
            chosen = [claim for claim in chosen if claim.article == int(word[-1])]
        else:
            raise ValueError(
                f"{word!r} is no topic ({', '.join(TOPICS)}), no verdict ({', '.join(VERDICTS)}), "
                "and neither 'article 1' nor 'article 2'"
            )
    title = ", ".join(choice)
    return Audit(chosen, title[:1].upper() + title[1:])


def in_picture_order(claims: Iterable[Claim]) -> list[Claim]:
    """By verdict, best first, then by number."""
    rank = list(VERDICTS)
    return sorted(claims, key=lambda claim: (rank.index(claim.verdict), claim.order))


def _plain(text: str) -> str:
    """Prose as HTML: `code` and *stress* as the texts of the claims have them."""
    html = escape(text, quote=False)
    for mark, tag in (("`", "code"), ("*", "em")):
        parts = html.split(mark)
        if len(parts) % 2:
            odd = (f"<{tag}>{part}</{tag}>" for part in parts[1::2])
            html = "".join(part + next(odd, "") for part in parts[::2])
    return html


def _chip(verdict: str) -> str:
    face = COLOURS[verdict]
    line = "dashed" if verdict == "unsupported" else "solid"
    style = (
        f"background:{face};color:{colours.ink_on(face)};border:1px {line} {colours.GREY};"
        "padding:1px 6px;border-radius:3px;white-space:nowrap"
    )
    text = f"{SIGNS[verdict]} {verdict}"
    return f'<span style="{style}" title="{MEANING[verdict]}">{text}</span>'
