"""The one data structure: a pipeline run is a timeline, wherever it comes from.

A timeline is a table of spans: which rank (of which replica) ran which operation of which
micro-batch and chunk, from when to when, in which step. Simulated, measured and imported runs all
become one, and everything that draws, measures, compares or advises takes one. What can be read
off it lives in ``measure``; this file holds the table, its selections and its storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pplab.core.layout import Layout
from pplab.core.ops import CODE, KINDS, USEFUL, Op

if TYPE_CHECKING:
    from pplab.core.measure import Measures

#: Columns and their types. Times are float64 (seconds, or the timeline's `unit`).
COLUMNS: dict[str, Any] = {
    "step": np.int32,
    "replica": np.int32,
    "rank": np.int32,
    "kind": np.int8,
    "micro_batch": np.int32,
    "chunk": np.int32,
    "start": np.float64,
    "end": np.float64,
}


class Span(NamedTuple):
    """One row of a timeline."""

    step: int
    replica: int
    rank: int
    op: Op
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Timeline:
    """Spans as columns of equal length N, sorted by (step, replica, rank, start).

    step, replica, rank, micro_batch, chunk: int32; kind: int8, an index into ``KINDS``;
    start, end: float64 in `unit` ("s" or "units"). `source` says where it comes from ("simulated",
    "measured: paced", ...) and is printed on every picture; `hardware` says on what it ran.
    """

    step: NDArray[np.int32]
    replica: NDArray[np.int32]
    rank: NDArray[np.int32]
    kind: NDArray[np.int8]
    micro_batch: NDArray[np.int32]
    chunk: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    layout: Layout
    source: str = "simulated"
    schedule: str = ""
    unit: str = "s"
    hardware: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, ArrayLike],
        layout: Layout,
        *,
        in_order: bool = False,
        **about: Any,
    ) -> Timeline:
        """A timeline from columns in any order; `step` and `replica` default to 0.

        `in_order` says that the rows are sorted already. Raises ValueError when columns differ in
        length, a span ends before it starts, or a rank, chunk or kind does not exist.
        """
        length = len(np.asarray(columns["start"]))
        full = {name: columns.get(name, np.zeros(length)) for name in COLUMNS}
        arrays: dict[str, Any] = {
            name: np.asarray(full[name]).astype(COLUMNS[name]) for name in COLUMNS
        }
        uneven = {name: len(array) for name, array in arrays.items() if len(array) != length}
        if uneven:
            raise ValueError(f"columns differ in length: start has {length}, but {uneven}")
        if np.any(arrays["end"] < arrays["start"]):
            raise ValueError("a span ends before it starts")
        for name, count in (
            ("rank", layout.stages),
            ("chunk", layout.chunks),
            ("kind", len(KINDS)),
        ):
            if length and not (arrays[name].min() >= 0 and arrays[name].max() < count):
                raise ValueError(f"{name}s go from 0 to {count - 1}")
        if not in_order:
            keys = ("end", "start", "rank", "replica", "step")
            order = np.lexsort(tuple(arrays[key] for key in keys))
            arrays = {name: array[order] for name, array in arrays.items()}
        return cls(**arrays, layout=layout, **about)

    # -- reading rows ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Span]:
        rows = zip(
            self.step.tolist(),
            self.replica.tolist(),
            self.rank.tolist(),
            self.kind.tolist(),
            self.micro_batch.tolist(),
            self.chunk.tolist(),
            self.start.tolist(),
            self.end.tolist(),
            strict=True,
        )
        for step, replica, rank, kind, micro_batch, chunk, start, end in rows:
            yield Span(step, replica, rank, Op(KINDS[kind], micro_batch, chunk), start, end)

    def columns(self) -> dict[str, Any]:
        """The columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def is_kind(self, letters: str) -> NDArray[np.bool_]:
        """Which rows are of one of the kinds, e.g. ``is_kind("FB")``; shape (N,)."""
        return np.isin(self.kind, [CODE[letter] for letter in letters])

    # -- choosing rows --------------------------------------------------------------------------

    def where(self, rows: NDArray[np.bool_]) -> Timeline:
        """The timeline with only some rows (boolean mask of shape (N,))."""
        chosen: dict[str, Any] = {name: column[rows] for name, column in self.columns().items()}
        return replace(self, **chosen)

    def only(
        self, *, step: int | None = None, replica: int | None = None, kinds: str | None = None
    ) -> Timeline:
        """The rows of one step, one replica or some kinds."""
        rows = np.ones(len(self), dtype=bool)
        if step is not None:
            rows &= self.step == step
        if replica is not None:
            rows &= self.replica == replica
        if kinds is not None:
            rows &= self.is_kind(kinds)
        return self.where(rows)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Numbers of the steps recorded."""
        return tuple(np.unique(self.step).tolist())

    @cached_property
    def replicas(self) -> tuple[int, ...]:
        """Numbers of the data-parallel replicas recorded."""
        return tuple(np.unique(self.replica).tolist())

    @property
    def stages(self) -> int:
        """Ranks of one pipeline."""
        return self.layout.stages

    @cached_property
    def micro_batches(self) -> int:
        """Micro-batches of a step (the largest number seen, plus one)."""
        return int(self.micro_batch.max(initial=-1)) + 1

    @cached_property
    def typical(self) -> Timeline:
        """The recorded step of median duration, the first step left out (it also warms up)."""
        steps = self.steps[1:] or self.steps
        if len(self.steps) <= 1:
            return self
        length = {s: self.only(step=s).measures.window for s in steps}
        return self.only(step=sorted(steps, key=lambda s: length[s])[(len(steps) - 1) // 2])

    def shifted(self, by: float | None = None) -> Timeline:
        """The same spans `by` later; by default so that the first one starts at 0."""
        if by is None:
            by = -float(self.start.min(initial=np.inf)) if len(self) else 0.0
        return replace(self, start=self.start + by, end=self.end + by)

    # -- what can be read off it (see ``measure``) ------------------------------------------------

    @cached_property
    def measures(self) -> Measures:
        """Bubble, busy and idle time, phases, critical path, activations in flight."""
        from pplab.core.measure import Measures

        return Measures(self)

    @property
    def bubble(self) -> float:
        """Idle / total: 1 - useful / total, over all ranks and steps. 0.27 means 27 % idle."""
        return self.measures.bubble

    @property
    def step_time(self) -> float:
        """First operation's start to last operation's end of a step; the mean over the steps."""
        return self.measures.step_time

    def __str__(self) -> str:
        return self.measures.sentence()

    def __repr__(self) -> str:
        return f"<Timeline {self.source}: {self}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: the live widget, a picture, and words (see ``pplab.view``).

        The one place where the core looks up, and only when a notebook displays something.
        """
        from pplab.view.show import timeline_bundle

        return timeline_bundle(self.typical)

    def __eq__(self, other: object) -> bool:
        """Same spans and layout, whatever the labels."""
        if not isinstance(other, Timeline):
            return NotImplemented
        mine, theirs = self.columns(), other.columns()
        return self.layout == other.layout and all(
            np.array_equal(mine[name], theirs[name]) for name in COLUMNS
        )

    __hash__ = None  # type: ignore[assignment]

    # -- keeping it -----------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Everything but the spans, as plain JSON values."""
        return {
            "layout": {
                "stages": self.layout.stages,
                "chunks": self.layout.chunks,
                "placement": self.layout.placement,
            },
            "source": self.source,
            "schedule": self.schedule,
            "unit": self.unit,
            "hardware": self.hardware,
        }

    def save(self, file: str | Path | IO[bytes]) -> None:
        """Write an ``.npz`` of plain arrays (no pickle) with the labels as JSON inside."""
        np.savez_compressed(file, about=np.array(json.dumps(self.about())), **self.columns())

    @classmethod
    def load(cls, file: str | Path | IO[bytes]) -> Timeline:
        """Read what ``save`` wrote. Nothing in the file is ever executed."""
        with np.load(file, allow_pickle=False) as data:
            about = json.loads(str(data["about"]))
            columns = {name: data[name] for name in COLUMNS}
        layout = Layout(**about.pop("layout"))
        return cls.of(columns, layout, **about)


def useful(timeline: Timeline) -> NDArray[np.bool_]:
    """Which rows are useful work (F, B, W, U) rather than waiting or bookkeeping; shape (N,)."""
    return timeline.is_kind(USEFUL)
