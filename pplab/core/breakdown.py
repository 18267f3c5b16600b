"""Where the time of a step goes, each part with a name; the parts add up to the step.

The step is rebuilt from its own measured durations, one imperfection at a time, and each rebuild
is simulated: first every stage alike and messages free (what is idle then is fill and drain), then
each stage with its own mean (imbalance), then every operation with its own duration (variation),
then with messages that take time, then with the gaps between operations. What the last rebuild
still lacks is said too, as "not explained".
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pplab.core.costs import Costs
from pplab.core.gaps import gaps
from pplab.core.ops import CODE
from pplab.core.schedule import Schedule
from pplab.core.timeline import Timeline

Floats = NDArray[np.float64]


class Part(NamedTuple):
    """One share of the step: its name, its time (unit of the timeline), what it is."""

    name: str
    time: float
    meaning: str


@dataclass(frozen=True)
class Breakdown:
    """The parts of one step; their times add up to `step`."""

    parts: tuple[Part, ...]
    step: float
    unit: str
    source: str

    def __getitem__(self, name: str) -> float:
        """Share of the step (0 to 1) of the part called `name`; KeyError when there is none."""
        for part in self.parts:
            if part.name == name:
                return part.time / self.step
        raise KeyError(f"{name!r}; the parts are {', '.join(p.name for p in self.parts)}")

    def _rows(self) -> list[tuple[str, str, str, str]]:
        scale, unit = (1e3, "ms") if self.unit == "s" else (1.0, self.unit)
        return [
            (p.name, f"{p.time * scale:.1f} {unit}", f"{p.time / self.step:.1%}", p.meaning)
            for p in self.parts
        ]

    def __str__(self) -> str:
        mark = "[measured] " if self.source.startswith("measured") else ""
        return "\n".join(
            f"{mark}{name:16} {time:>12} {share:>7}  {meaning}"
            for name, time, share, meaning in self._rows()
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for part, (name, time, share, meaning) in zip(self.parts, self._rows(), strict=True):
            width = max(0.0, part.time / self.step) * 12
            bar = (
                '<span style="display:inline-block;height:0.8em;background:#4c78a8;'
                f'width:{width:.2f}em"></span>'
            )
            cells = (escape(name), escape(time), escape(share), bar, escape(meaning))
            left = ' style="text-align:left"'
            rows.append("<tr>" + "".join(f"<td{left}>{cell}</td>" for cell in cells) + "</tr>")
        head = "".join(
            f'<th scope="col" style="text-align:left">{text}</th>'
            for text in ("where the step goes", "time", "share", "", "what it is")
        )
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def breakdown(timeline: Timeline, schedule: Schedule) -> Breakdown:
    """Split the typical step of `timeline`, which followed `schedule`, into named parts.

    Several replicas are averaged. Raises ValueError when the timeline lacks an operation of the
    schedule.
    """
    one = timeline.typical
    work = one.only(kinds="FBWU")
    table = durations(work, schedule)
    overhead, latency = gaps(work)

    def step(times: Floats, latency: float = 0.0, overhead: float = 0.0) -> float:
        costs = Costs(
            forward=times[0],
            backward=times[1] + times[2],
            weight=times[2],
            latency=latency,
            overhead=overhead,
        )
        return schedule.simulate(costs).step_time

    mean_slice = np.broadcast_to(table.mean(axis=2, keepdims=True), table.shape)
    alike = np.broadcast_to(table.mean(axis=(1, 2), keepdims=True), table.shape)
    useful = float(table.sum()) / schedule.stages
    latency, overhead = max(0.0, latency), max(0.0, overhead)
    rebuilt = [
        useful,
        step(alike),
        step(mean_slice),
        step(table),
        step(table, latency=latency),
        step(table, latency=latency, overhead=overhead),
    ]
    names = (
        ("fill and drain", "idle even if all stages were alike and messages free"),
        ("imbalance", "some stages take longer than others"),
        ("variation", "operations of one stage do not all take the same time"),
        ("messages", f"from the end of an operation to its use elsewhere: {_ms(latency, one)}"),
        ("overhead", f"between two operations of a rank: {_ms(overhead, one)}"),
    )
    parts = [Part("useful work", useful, "F and B, the mean over the ranks")]
    for (name, meaning), before, after in zip(names, rebuilt, rebuilt[1:], strict=False):
        parts.append(Part(name, after - before, meaning))
    end = work.only(kinds="FBW").end.max()
    last = float(work.end.max() - end)
    parts.append(Part("optimizer step", last, "gradient reduction, update, waiting for all"))
    whole = float(work.end.max() - work.start.min())
    parts.append(
        Part("not explained", whole - sum(p.time for p in parts), "what the rebuild does not see")
    )
    return Breakdown(tuple(parts), whole, timeline.unit, timeline.source)


def durations(work: Timeline, schedule: Schedule) -> Floats:
    """Mean duration over replicas by [F, B, W][slice][micro-batch]; 0 where W is not split off.

    Raises ValueError when an operation of the schedule was not recorded.
    """
    layout, M = schedule.layout, schedule.micro_batches
    total, count = np.zeros((2, 3, layout.slices, M))
    timed = work.only(kinds="FBW")
    pieces = layout.table()[timed.rank, timed.chunk]
    np.add.at(total, (timed.kind, pieces, timed.micro_batch), timed.end - timed.start)
    np.add.at(count, (timed.kind, pieces, timed.micro_batch), 1)
    missing = count[[CODE["F"], CODE["B"]]] == 0
    if missing.any():
        kind, piece, m = (int(index[0]) for index in np.nonzero(missing))
        raise ValueError(
            f"the timeline has no {'FB'[kind]}{m} of slice {piece}, which the schedule runs"
        )
    return total / np.maximum(count, 1)


def _ms(time: float, timeline: Timeline) -> str:
    if timeline.unit == "s":
        return f"{time * 1e3:.2f} ms each"
    return f"{time:.3g} {timeline.unit} each"
