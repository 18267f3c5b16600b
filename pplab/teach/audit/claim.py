"""One claim of an article: what it says, whether it is so, and which cell shows it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

#: The words for a verdict, best first, each with the letter of ``claims.md`` it stands for:
#: T true, M misleading, F false, U unverifiable.
VERDICTS = {
    "true": "T",
    "mostly true": "T",
    "misleading": "M",
    "false": "F",
    "unsupported": "U",
}
#: What each word means.
MEANING = {
    "true": "it is so",
    "mostly true": "so, with a condition that the article leaves out",
    "misleading": "a true core that leads to a wrong choice",
    "false": "it is not so, and a run or the source shows it",
    "unsupported": "nothing in the article, or elsewhere, lets anyone check it",
}
#: The sign that stands beside each word wherever it is shown.
SIGNS = {"true": "✓", "mostly true": "≈", "misleading": "◐", "false": "✗", "unsupported": "?"}
#: The subjects, in the order of the page.
TOPICS = (
    "diagnosis",
    "micro-batches",
    "partitioning",
    "ZeRO",
    "config keys",
    "launch",
    "schedules",
    "results",
)
#: Notebooks that show something, by the number they are called by.
CHAPTERS = {
    "00": "00_start_here.ipynb",
    "01": "01_bubbles.ipynb",
    "02": "02_gas.ipynb",
    "03": "03_partitioning.ipynb",
    "04": "04_zero.ipynb",
    "05": "05_schedules.ipynb",
    "06": "06_tuning.ipynb",
    "07": "07_audit.ipynb",
}
#: The notebook of the audit itself.
HERE = "07"


class Place(NamedTuple):
    """A heading in a chapter, under which a cell shows it."""

    chapter: str
    heading: str

    @property
    def notebook(self) -> str:
        """File name in ``chapters/``."""
        return CHAPTERS[self.chapter]

    @property
    def href(self) -> str:
        """A link from a notebook beside it, as JupyterLab and nbconvert name their headings.

        JupyterLab does not decode what a browser encodes, so a heading with quotation marks or
        letters beyond ASCII cannot be linked to (a test refuses it).
        """
        anchor = "#" + quote(self.heading.replace(" ", "-"), safe="-:?,.!()/'")
        return anchor if self.chapter == HERE else self.notebook + anchor

    def __str__(self) -> str:
        where = "below" if self.chapter == HERE else f"chapter {int(self.chapter)}"
        return f"{where}: {self.heading}"


class Claim(NamedTuple):
    """A claim and what became of it.

    number: as in ``claims.md``, article and place in it ("1.8"); topic: one of TOPICS; says: what
    the article says, in our words; verdict: a key of VERDICTS; truth: what is so, in one or two
    sentences; where: "01: Find the formula", one or several, what to look at
    """

    number: str
    topic: str
    says: str
    verdict: str
    truth: str
    where: tuple[str, ...]

    @property
    def article(self) -> int:
        """1 or 2."""
        return int(self.number.split(".")[0])

    @property
    def order(self) -> tuple[int, int]:
        """For sorting: 1.8 comes before 1.10."""
        article, place = self.number.split(".")
        return int(article), int(place)

    @property
    def places(self) -> list[Place]:
        """Where it is shown."""
        return [Place(*(part.strip() for part in where.split(":", 1))) for where in self.where]

    def __str__(self) -> str:
        shown = "; ".join(map(str, self.places))
        return (
            f"{self.number} {SIGNS[self.verdict]} {self.verdict}: {self.says}\n"
            f"      {self.truth}\n      -> {shown}"
        )
