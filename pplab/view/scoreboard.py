"""Scores of several schedules beside each other: the table behind the bars, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from pplab.core.words import aligned
from pplab.view import words
from pplab.view.scores import Numbers, Score

#: Title of each column with bars, and the field of a score it shows.
COLUMNS = (
    ("Time per step", "step"),
    ("Bubble", "bubble"),
    ("Peak activations", "peak"),
    ("Weight versions", "versions"),
    ("Messages", "messages"),
)


class Cell(NamedTuple):
    """A number with the length of its bar, as a share of the longest in the column."""

    text: str
    share: float
    note: str = ""
    over: bool = False


@dataclass(frozen=True)
class Scoreboard:
    """Scores under the same numbers; `cap` is the most activations a rank may hold, or None."""

    scores: tuple[Score, ...]
    numbers: Numbers
    cap: float | None = None

    @property
    def running(self) -> list[Score]:
        """The schedules that can run with these numbers."""
        return [one for one in self.scores if one.runs]

    @property
    def fastest(self) -> list[Score]:
        """Fastest under the cap among those that use fresh weights; several when they tie."""
        fit = [one for one in self.running if one.fits(self.cap) and not one.stream]
        least = min((one.step for one in fit), default=0.0)
        return [one for one in fit if one.step <= least * (1 + 1e-9)]

    @property
    def cap_share(self) -> float | None:
        """Where the cap lies on the bars of the peak, as a share; None where there is none."""
        return self.cap / self._most("peak") if self.cap is not None and self.running else None

    def _most(self, field: str) -> float:
        most = max((float(getattr(one, field)) for one in self.running), default=1.0)
        if field == "peak" and self.cap is not None:
            most = max(most, self.cap)
        return most or 1.0

    def cells(self, one: Score) -> list[Cell]:
        """The numbers of a schedule that runs, in the order of COLUMNS."""
        found = []
        for _, field in COLUMNS:
            value, note, over = float(getattr(one, field)), "", False
            text = words.percent(value) if field == "bubble" else words.number(value)
            if field == "step" and one.span < one.step * (1 - 1e-9):
                note = f"{words.number(one.span)} back to back"
            if field == "bubble" and one.stream:
                note = "once filled"
            if field == "peak" and not one.fits(self.cap):
                note, over = "over the cap", True
            found.append(Cell(text, value / self._most(field), note, over))
        return found

    def remarks(self, one: Score) -> str:
        """What the numbers do not say: is it the fastest, and what does it ask for."""
        if not one.runs:
            return f"cannot run with these numbers: {one.problem}"
        found = []
        if one in self.fastest:
            found.append("fastest under the cap" if self.cap is not None else "fastest")
        if one.stream and one.stale:
            found.append(f"gradients up to {one.stale} update{'s' * (one.stale > 1)} old")
        if one.split:
            found.append("needs B and W apart")
        if one.chunks > 1:
            found.append(f"{one.chunks} chunks a rank")
        return ", ".join(found)

    def titles(self) -> list[str]:
        """What stands above the timeline of each schedule that runs."""
        found = []
        for one in self.running:
            assert one.timeline is not None
            t = one.timeline
            title = f"{one.name}: {words.duration(t.step_time, t.unit)}, "
            title += f"{words.percent(t.bubble)} idle"
            if one.stream:
                title += f"; once filled, {words.duration(one.step, t.unit)} for as many"
            found.append(title)
        return found

    def verdict(self) -> str:
        """Which schedule is the fastest, as a sentence."""
        under = " under the cap" if self.cap is not None else ""
        fresh = " on fresh weights" if any(one.stream for one in self.running) else ""
        if not self.fastest:
            return f"No schedule{fresh} runs{under} with these numbers."
        names = " and ".join(one.name for one in self.fastest)
        step = words.duration(self.fastest[0].step, "units")
        return f"Fastest{under}{fresh}: {names}, {step} a step."

    def setting(self) -> str:
        """The numbers all schedules have in common, as a sentence."""
        cap = f", at most {self.cap:g} activations a rank" if self.cap is not None else ""
        return f"{self.numbers}{cap}."

    def table(self) -> list[list[str]]:
        """Head and rows as text: schedule, the columns, remarks."""
        rows = [["Schedule", *(title for title, _ in COLUMNS), "Remarks"]]
        for one in self.scores:
            cells = self.cells(one) if one.runs else [Cell("-", 0.0)] * len(COLUMNS)
            texts = [cell.text + (f" ({cell.note})" if cell.note else "") for cell in cells]
            rows.append([one.name, *texts, self.remarks(one)])
        return rows

    def __str__(self) -> str:
        return f"[simulated] {self.setting()} {self.verdict()}\n{aligned(self.table())}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.table(), f"{self.setting()} {self.verdict()}")


def html_table(rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table in HTML, with a heading for each column and each row."""
    head, *body = rows
    style = " style='text-align:left;vertical-align:top'"
    lines = ["".join(f"<th scope='col'{style}>{escape(text)}</th>" for text in head)]
    for first, *rest in body:
        cells = "".join(f"<td{style}>{escape(text)}</td>" for text in rest)
        lines.append(f"<th scope='row'{style}>{escape(first)}</th>{cells}")
    inside = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption{style}>{escape(caption)}</caption>{inside}</table>"
