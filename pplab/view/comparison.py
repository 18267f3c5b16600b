"""Two timelines over each other: how long, how idle, and where they part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, NamedTuple

import numpy as np

from pplab.core.timeline import COLUMNS, Timeline
from pplab.core.words import aligned
from pplab.view import words
from pplab.view.columns import check


class Difference(NamedTuple):
    """One rank in two timelines; times in their unit, differences are second minus first."""

    rank: int
    busy: tuple[float, float]
    idle: tuple[float, float]
    busy_difference: float
    idle_difference: float


class Table(list[Difference]):
    """Rows of ``Difference``, printed as a table."""

    def __init__(self, rows: list[Difference], names: list[str], unit: str) -> None:
        super().__init__(rows)
        self.names, self.unit = names, unit

    def _cells(self) -> list[list[str]]:
        longest = max((max(row.busy + row.idle) for row in self), default=0.0)
        factor, unit = words.scale(self.unit, longest)
        one, other = self.names
        head = ["rank", f"busy {one}", f"busy {other}", "difference"]
        head += [f"idle {one}", f"idle {other}", "difference"]
        body = [
            [
                str(row.rank),
                *(f"{time * factor:.4g}" for time in row.busy),
                f"{row.busy_difference * factor:+.3g}",
                *(f"{time * factor:.4g}" for time in row.idle),
                f"{row.idle_difference * factor:+.3g}",
            ]
            for row in self
        ]
        return [[f"{text} [{unit}]" if i else text for i, text in enumerate(head)], *body]

    def __str__(self) -> str:
        return aligned(self._cells(), left=())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = ["".join(f"<th scope='col'>{escape(text)}</th>" for text in head)]
        rows += ["".join(f"<td>{escape(text)}</td>" for text in row) for row in body]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What ``compare`` gives: displays itself; `simulated` and `measured` are one step each."""

    simulated: Timeline
    measured: Timeline
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, simulated: Timeline, measured: Timeline, **options: Any) -> Comparison:
        """The typical steps of two timelines, both starting at 0; ValueError as ``compare``."""
        check([simulated, measured])
        one, other = simulated.typical.shifted(), measured.typical.shifted()
        if len(one.replicas) == 1 and len(other.replicas) > 1:
            one = _repeated(one, other.replicas)
        return cls(one, other, options)

    @property
    def ratio(self) -> float:
        """Measured step time / simulated step time; 1.08 means 8 % longer than predicted."""
        step = self.simulated.step_time
        return self.measured.step_time / step if step else float("nan")

    def table(self) -> Table:
        """Busy and idle time of every rank in both timelines, and their differences."""
        one, other = self.simulated.measures, self.measured.measures
        rows = [
            Difference(rank, (a, b), (c, d), b - a, d - c)
            for rank, (a, b, c, d) in enumerate(
                zip(
                    one.busy.tolist(),
                    other.busy.tolist(),
                    one.idle.tolist(),
                    other.idle.tolist(),
                    strict=True,
                )
            )
        ]
        return Table(rows, words.short_names([self.simulated, self.measured]), self.measured.unit)

    def sentence(self) -> str:
        """The ratio of the steps, and the rank on which the two differ most."""
        names = words.short_names([self.simulated, self.measured])
        one, other = (name if "'s " in name else f"the {name}" for name in names)
        text = f"{other} step takes {self.ratio:.2f} times {one} one"
        changes = [
            (abs(change), rank, word, change)
            for row in self.table()
            for rank, word, change in (
                (row.rank, "busy", row.busy_difference),
                (row.rank, "idle", row.idle_difference),
            )
        ]
        size, rank, word, change = max(changes, key=lambda c: (round(c[0], 12), -c[1]))
        if size <= 0.005 * self.simulated.step_time:
            return f"{text}; no rank is busy or idle much longer than in {one} one"
        amount = words.duration(size, self.measured.unit)
        more = "longer" if change > 0 else "less long"
        return f"{text}; they differ most on rank {rank}, which is {word} {amount} {more}"

    def __str__(self) -> str:
        from pplab.view.static import text

        return text([self.simulated, self.measured])

    __repr__ = __str__

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        from pplab.view.show import timeline_bundle

        return timeline_bundle(self.simulated, self.measured, **self.options)


def _repeated(timeline: Timeline, replicas: tuple[int, ...]) -> Timeline:
    """The one pipeline of a timeline once for each of several replicas."""
    times = len(replicas)
    columns: dict[str, Any] = {
        name: np.tile(getattr(timeline, name), times) for name in COLUMNS if name != "replica"
    }
    columns["replica"] = np.repeat(np.array(replicas, dtype=np.int32), len(timeline))
    return replace(timeline, **columns)
