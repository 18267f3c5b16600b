"""Cuts of one model under each other: the rows of the picture, and what it says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition import DoesNotFit, Partition, solve
from pplab.core.partition.fit import gigabytes
from pplab.core.profile import Profile
from pplab.core.words import aligned
from pplab.view import words
from pplab.view.partition_measured import Measured, measured_times

Floats = NDArray[np.float64]

#: Title of each column of the table, in the order of ``Rows.cells``.
COLUMNS = ("largest {piece}", "above the mean", "bubble", "step", "most memory")
#: Starts of slices that the text lists; a picture of more is read off the picture.
LISTED = 15


@dataclass(frozen=True)
class Row:
    """A cut with a name; `measured` has the time of each slice in a run, in the profile's unit."""

    name: str
    partition: Partition
    measured: tuple[float, ...] | None = None

    @property
    def slowest(self) -> int:
        """The rank with the most work."""
        return int(np.argmax(self.partition.rank_loads))

    def excess(self) -> Floats | None:
        """Measured over predicted time of each slice, minus 1; nan where nothing was predicted."""
        if self.measured is None:
            return None
        loads = self.partition.loads
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(loads > 0, np.array(self.measured) / loads - 1, np.nan)


@dataclass(frozen=True)
class Rows:
    """Cuts of one profile; `best` is what each of them is held against (see ``best_of``).

    Raises ValueError when they cut different layers.
    """

    rows: tuple[Row, ...]
    best: Row | None = None
    #: Why there is no `best`.
    why: str = ""

    def __post_init__(self) -> None:
        first = self.rows[0].partition.problem.profile
        for row in self.rows[1:]:
            other = row.partition.problem.profile
            if other is not first and other != first:
                text = f"{self.rows[0].name} and {row.name} cut different profiles"
                raise ValueError(f"{text}: only cuts of the same layers stand on one scale")

    @classmethod
    def of(
        cls,
        partitions: Sequence[Partition] | Mapping[str, Partition],
        measured: Mapping[str, Measured] | None = None,
    ) -> Rows:
        """Rows named after the methods (or the keys), held against the optimal cut.

        measured: runs of some of them, or times of their slices, by name. Raises ValueError for a
        name that is not there, for times of another cut, and for no partition at all.
        """
        names = list(partitions) if isinstance(partitions, Mapping) else None
        cuts = list(partitions.values() if isinstance(partitions, Mapping) else partitions)
        names = names or _names(cuts)
        times = dict(measured or {})
        if unknown := [name for name in times if name not in names]:
            text = f"measured times are given for {', '.join(map(str, unknown))}"
            raise ValueError(f"{text}; the partitions are called {', '.join(names)}")
        if not cuts:
            raise ValueError("give at least one partition to show")
        rows = tuple(
            Row(name, cut, measured_times(name, cut, times[name]) if name in times else None)
            for name, cut in zip(names, cuts, strict=True)
        )
        return cls(rows, *best_of(rows))

    @property
    def profile(self) -> Profile:
        """The layers that are cut."""
        return self.rows[0].partition.problem.profile

    @property
    def unit(self) -> str:
        """Unit of all times."""
        return self.profile.unit

    @cached_property
    def longest(self) -> float:
        """The most that has to fit on the scale: all slices of a row, predicted or measured."""
        totals = [float(row.partition.loads.sum()) for row in self.rows]
        totals += [sum(row.measured) for row in self.rows if row.measured]
        return max(totals) or 1.0

    @property
    def piece(self) -> str:
        """What the model is cut into: stages, or slices of which a rank has several."""
        return (
            "stage" if all(r.partition.problem.schedule.chunks == 1 for r in self.rows) else "rank"
        )

    def time(self, value: float) -> str:
        """A time in words."""
        return words.duration(value, self.unit)

    # -- words -----------------------------------------------------------------------------------

    def verdict(self) -> str:
        """What is to be seen, as a sentence: which cut takes how much longer than the best."""
        if self.best is None:
            return self.why
        best = self.best.partition
        same = (best.bounds, best.step)
        others = [r for r in self.rows if (r.partition.bounds, r.partition.step) != same]
        if not others:
            text = f"The {self.best.name} cut: {self.time(best.step)} a step, {_idle(best)}"
            return f"{text}, the slowest {self.piece} {self.time(best.max_load)}."
        parts = []
        for row in others:
            text = f"{row.name} takes {self.time(row.partition.step)} a step"
            if best.step:
                text += f", {_longer(row.partition.step / best.step - 1, self.best.name)}"
            if not row.partition.fits:
                text += (
                    ", but does not fit" if row.partition.overfull else ", but parts tied layers"
                )
            parts.append(text)
        listed = "; ".join([*parts, f"{self.best.name} takes {self.time(best.step)}"])
        return f"{listed[0].upper()}{listed[1:]}."

    def setting(self) -> str:
        """What is predicted, how, and from which layer times."""
        kinds = list(dict.fromkeys(setting_of(row.partition) for row in self.rows))
        text = f"{len(self.profile)} layers ({self.profile.source}); predicted by simulation: "
        text += f"{' and '.join(kinds)}."
        if self.best is not None and self.best.partition.proof:
            text += f" About the {self.best.name} cut: {self.best.partition.proof}."
        return text

    def key(self) -> str:
        """How to read the picture, in sentences."""
        text = "Boxes are layers, as wide as their time. "
        text += f"Outlined, ▲: the {self.piece} with most work."
        if self.piece == "rank":
            text += " 2.1: rank 2, chunk 1; lighter: later chunks."
        if any(row.measured for row in self.rows):
            text += " Measured: hatched where it took longer than predicted."
        return text

    def cells(self, row: Row) -> list[str]:
        """The numbers of a row, in the order of COLUMNS; the last only where memory is known."""
        cut = row.partition
        number = row.slowest
        found = [
            f"{self.time(cut.max_load)} ({self.piece} {number})",
            words.percent(cut.imbalance),
            words.percent(cut.bubble),
            self.time(cut.step),
        ]
        if self.has_memory:
            most = int(np.argmax(cut.memory))
            found.append(f"{gigabytes(cut.memory[most])} ({self.piece} {most})")
        return found

    @property
    def has_memory(self) -> bool:
        """Whether the profile knows what the layers need."""
        return any(row.partition.memory.any() for row in self.rows)

    def warnings(self, row: Row) -> list[str]:
        """What does not fit, as sentences without an end."""
        return misfits(row.partition, self.piece)

    def table(self) -> list[list[str]]:
        """Head and rows as text."""
        titles = [title.format(piece=self.piece) for title in COLUMNS][: 4 + self.has_memory]
        rows = [["cut", *titles, "starts of the slices, and remarks"]]
        for row in self.rows:
            starts = [str(b) for b in row.partition.bounds[1:-1]]
            inner = ", ".join([*starts[:LISTED], *(["..."] if len(starts) > LISTED else [])])
            remarks = [inner or "none", *self.warnings(row)]
            rows.append([row.name, *self.cells(row), "; ".join(remarks)])
        return rows

    def measured_sentences(self) -> list[str]:
        """How measured times of slices differ from the predicted ones, one sentence a row."""
        found = []
        for row in self.rows:
            excess = row.excess()
            if excess is None or row.measured is None:
                continue
            times = ", ".join(self.time(value) for value in row.measured)
            text = f"{row.name}: the slices took {times}"
            if np.isfinite(excess).any():
                worst = int(np.nanargmax(np.abs(excess)))
                text += f"; slice {worst} is furthest off, {signed(float(excess[worst]))} against "
                text += f"the predicted {self.time(float(row.partition.loads[worst]))}"
            found.append(text + ".")
        return found

    def __str__(self) -> str:
        """The text alternative. Lines that hold measured numbers begin with ``[measured]``."""
        # predictions from measured layers change from run to run as the layers do
        origin = "measured" if self.profile.source.startswith("measured") else "simulated"
        lines = [f"{self.verdict()} {self.setting()}", *aligned(self.table()).split("\n")]
        return "\n".join(
            [f"[{origin}] {line}" if origin == "measured" or i == 0 else line
             for i, line in enumerate(lines)]
            + [f"[measured] {line}" for line in self.measured_sentences()]
        )  # fmt: skip


def best_of(rows: Sequence[Row]) -> tuple[Row | None, str]:
    """The optimal cut among the rows, or the optimal one for the first of them, or why none is."""
    known = [row for row in rows if row.partition.method == "optimal"]
    if known:
        return min(known, key=lambda row: row.partition.step), ""
    try:
        return Row("optimal", solve(rows[0].partition.problem)), ""
    except DoesNotFit as error:
        text = str(error)
        return None, f"{text[0].upper()}{text[1:]}."


def misfits(cut: Partition, piece: str) -> list[str]:
    """Which ranks need more memory than they have, and tied layers that lie apart."""
    found = []
    for rank in cut.overfull:
        need, cap = gigabytes(cut.memory[rank]), gigabytes(cut.devices[rank].memory)
        found.append(f"does not fit: {piece} {rank} needs {need} and has {cap}")
    if not cut.fits and not found:
        found.append("keeps tied layers on different ranks")
    return found


def setting_of(cut: Partition) -> str:
    """Schedule and devices in words: ``1F1B, 3 stages, 8 micro-batches``."""
    plan = cut.problem.schedule
    text = f"{plan.name}, {plan.stages} stages, {plan.micro_batches} micro-batches"
    if plan.chunks > 1:
        text = f"{plan.name}, {plan.stages} ranks with {plan.chunks} chunks each"
        text += f", {plan.micro_batches} micro-batches"
    if len({device.speed for device in cut.devices}) > 1:
        text += f", devices of speed {', '.join(f'{d.speed:g}' for d in cut.devices)}"
    return text


def signed(share: float) -> str:
    """A difference in percent: ``+18.2 %``, ``-3.0 %``, ``0.0 %``."""
    text = words.percent(abs(share))
    return text if text == "0.0 %" else ("+" if share > 0 else "-") + text


def _longer(share: float, best: str) -> str:
    """How a step compares with that of the best cut."""
    text = words.percent(abs(share))
    if text == "0.0 %":
        return f"as long as {best}"
    return f"{text} {'longer' if share > 0 else 'shorter'} than {best}"


def _idle(cut: Partition) -> str:
    return f"{words.percent(cut.bubble)} idle"


def _names(cuts: Sequence[Partition]) -> list[str]:
    """The methods; a second cut by the same one gets a number."""
    names: list[str] = []
    for cut in cuts:
        name, number = cut.method, 2
        while name in names:
            name, number = f"{cut.method} {number}", number + 1
        names.append(name)
    return names
