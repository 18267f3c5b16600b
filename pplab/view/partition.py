"""The comparison of partitions: drag where the model is cut, and see what it costs.

What is a sum over layers (the time and the memory of a rank) the page works out itself, from the
prefix sums of the core, in the frame that follows the pointer. What needs the simulator (step and
bubble) it asks the kernel for, one question at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from pplab.core.partition import (
    DoesNotFit,
    Partition,
    PartitionError,
    Problem,
    problem_of,
    solve,
)
from pplab.core.partition.cuts import prefix_sums
from pplab.core.profile import Profile
from pplab.view import assets, words
from pplab.view.answers import Answers
from pplab.view.partition_colours import STAGES
from pplab.view.partition_measured import Measured
from pplab.view.partition_rows import COLUMNS, Row, Rows, misfits, setting_of, signed
from pplab.view.show import bundle, warm_once

Model = Profile | ArrayLike
OWN = "yours"


class PartitionComparison(Answers):
    """Cuts of one model under each other on one scale, and on top one's own, with handles to drag.

    ``partition`` is the cut on top as it stands now, as a Partition: run it, or simulate it.
    ``rows`` is what it is compared with. ``move(1, 5)`` does what dragging does.
    """

    _esm = assets.module(
        "columns.js",
        "words.js",
        "looks.js",
        "controls.js",
        "partition_sums.js",
        "partition_paint.js",
        "partition_grips.js",
        "partition_board.js",
        "partition.js",
        render="return cuts(model, el);",
    )
    _css = assets.style("timeline.css", "versus.css", "partition.css")
    #: What stays the same while cuts are moved: rows, problems, names of layers.
    about = traitlets.Dict().tag(sync=True)

    def __init__(self, rows: Rows, *, start: int = 0, **traits: Any) -> None:
        about, layers = about_rows(rows)
        super().__init__(about=about, spans=layers, choices=[row.name for row in rows.rows])
        for name, value in traits.items():
            setattr(self, name, value)
        self.rows = rows
        self._cut = rows.rows[start].partition
        self.show(bounds=list(self._cut.bounds), base=start)

    @property
    def partition(self) -> Partition:
        """The cut on top as it stands now; one of the rows while nothing has been moved."""
        return self._cut

    def move(self, cut: int, to: int) -> None:
        """Let slice `cut` (1 .. slices - 1) begin with layer `to`.

        Raises PartitionError when a slice would be left empty, IndexError for a cut there is not.
        """
        self.show(bounds=list(self._cut.moved(cut, to).bounds))

    def _asked(self, widget: Any, wish: Mapping[str, Any], buffers: Any) -> None:
        """A question of the page; or, without a number, where a drag ended: kept, not answered."""
        if "settled" in wish:
            base, bounds = int(wish["base"]), tuple(map(int, wish["settled"]))
            self._cut = _cut_of(self.rows.rows[base].partition, bounds)
        else:
            super()._asked(widget, wish, buffers)

    def _answer(self, params: dict[str, Any]) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        base = int(params["base"])
        if not 0 <= base < len(self.rows.rows):
            text = f"there are {len(self.rows.rows)} partitions to start from"
            raise PartitionError("no-such-row", f"{text}, not number {base}")
        row = self.rows.rows[base]
        self._cut = cut = _cut_of(row.partition, params["bounds"])
        params = {"bounds": list(cut.bounds), "base": base}
        meta = _predicted(self.rows, cut) | {"bounds": params["bounds"], "text": str(self)}
        return meta, self.spans, params

    def _shown(self) -> Rows:
        """The rows, and before them one's own cut when it is none of them."""
        if any(row.partition.bounds == self._cut.bounds for row in self.rows.rows):
            return self.rows
        return Rows((Row(OWN, self._cut), *self.rows.rows), self.rows.best, self.rows.why)

    def __str__(self) -> str:
        return str(self._shown())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        from pplab.view.partition_card import png

        return bundle(super()._repr_mimebundle_(**kwargs), png(self._shown()), str(self))


def compare_partitions(
    what: Model | Partition | Iterable[Partition] | Mapping[str, Partition],
    stages: int | None = None,
    methods: Iterable[str | Sequence[int]] | None = None,
    *,
    measured: Mapping[str, Measured] | None = None,
    **options: Any,
) -> PartitionComparison:
    """Cuts of a model under each other, with handles to drag, held against the optimal one.

    what:     a Profile (or one cost a layer), which is cut by `methods`; or partitions that are
              there already: one, a list, or a mapping from names
    methods:  default "uniform", "parameters" where the profile knows them, and "optimal"; others:
              see ``partition``
    measured: for some of the cuts, by name: a run with this cut, or the time of each slice, forward
              and backward of one micro-batch, in the profile's unit; drawn under the predicted ones
    options:  those of ``partition``: `schedule`, `micro_batches`, `devices`, `links`, ...

    ``.partition`` of the result is the cut that was dragged. A method that finds nothing that fits
    is left out, and the picture says why; DoesNotFit is raised when none is left. Raises
    PartitionError as ``partition`` does, ValueError for partitions of different profiles, and
    TypeError for options beside finished partitions.
    """
    finished = _finished(what)
    if finished is None:
        problem = problem_of(what, stages, **options)  # type: ignore[arg-type]
        finished = _cut(problem, list(methods) if methods is not None else _default(problem))
    elif stages is not None or methods is not None or options:
        extra = [name for name, value in (("stages", stages), ("methods", methods)) if value]
        text = f"these partitions are cut already: {', '.join([*extra, *options])}"
        raise TypeError(f"{text} cannot be set here; give a profile instead")
    return PartitionComparison(Rows.of(finished, measured))


def partition_bundle(partitions: Sequence[Partition]) -> dict[str, Any]:
    """MIME bundle of one or several cuts: what a notebook shows as the value of a cell."""
    warm_once()
    return PartitionComparison(Rows.of(partitions))._repr_mimebundle_()


def _finished(what: Any) -> list[Partition] | Mapping[str, Partition] | None:
    """`what` as finished cuts; None when it is a model that is still to be cut."""
    if isinstance(what, Partition):
        return [what]
    if isinstance(what, Mapping):
        return what
    if isinstance(what, Profile | np.ndarray):
        return None
    cuts = list(what)
    ready = [isinstance(cut, Partition) for cut in cuts]
    if any(ready) and not all(ready):
        odd = cuts[ready.index(False)]
        raise TypeError(f"a list of partitions holds {odd!r}, which is none: see pplab.partition")
    return cuts if all(ready) else None


def _default(problem: Problem) -> list[str]:
    known = problem.profile.column("parameters").any()
    return ["uniform", *(["parameters"] if known else []), "optimal"]


def _cut(problem: Problem, methods: Sequence[str | Sequence[int]]) -> list[Partition]:
    """One cut a method; one that finds nothing that fits is left out while another is there."""
    found, missing = [], None
    for method in methods:
        try:
            found.append(solve(problem, method))
        except DoesNotFit as error:
            missing = error
    if missing and not found:
        raise missing
    return found


# -- what the page gets ---------------------------------------------------------------------------


def _cut_of(base: Partition, bounds: Sequence[int]) -> Partition:
    """`base` itself while nothing was moved, so that its method and its proof stay with it."""
    same = tuple(map(int, bounds)) == base.bounds
    return base if same else base.with_bounds(tuple(map(int, bounds)))


def _predicted(rows: Rows, cut: Partition) -> dict[str, Any]:
    """What the simulator says of a cut, in words, and beside the best one."""
    found = {"step": rows.time(cut.step), "bubble": words.percent(cut.bubble), "lost": ""}
    if rows.best is not None and rows.best.partition.step:
        found["lost"] = signed(cut.step / rows.best.partition.step - 1)
    return found | {"messages": [rows.time(float(m)) if m else "" for m in cut.messages]}


def about_rows(rows: Rows) -> tuple[dict[str, Any], bytes]:
    """What the page gets once: words and problems, and the prefix sums of the layers as bytes."""
    profile, problems = rows.profile, list[Problem]()
    drawn = []
    for row in (*rows.rows, *([rows.best] if rows.best is not None else [])):
        cut = row.partition
        if not any(cut.problem is other for other in problems):
            problems.append(cut.problem)
        excess = row.excess()
        drawn.append(
            {
                "name": row.name,
                "bounds": list(cut.bounds),
                "problem": next(i for i, p in enumerate(problems) if p is cut.problem),
                "measured": list(row.measured) if row.measured else None,
                "excess": None if excess is None else [
                    signed(float(e)) if np.isfinite(e) else "" for e in excess
                ],
                "setting": setting_of(cut),
                "warnings": misfits(cut, rows.piece),
                **_predicted(rows, cut),
            }
        )  # fmt: skip
    names = [layer.name for layer in profile.layers]
    plain = all(name == f"layer {i}" for i, name in enumerate(names))
    about = {
        "layers": len(profile),
        "names": [] if plain else names,
        "unit": profile.unit,
        "setting": rows.setting(),
        "key": rows.key(),
        "piece": rows.piece,
        "columns": [title.format(piece=rows.piece) for title in COLUMNS],
        "rows": drawn[: len(rows.rows)],
        "best": drawn[-1] if rows.best is not None else None,
        "why": rows.why,
        "hasMemory": rows.has_memory,
        "problems": [_problem(problem, i) for i, problem in enumerate(problems)],
        "colours": STAGES,
    }
    kept = problems[0].byte_sums[1]
    sums = [problems[0].prefix, prefix_sums(profile.forward), kept]
    sums += [problem.byte_sums[0] for problem in problems]
    return about, np.concatenate(sums).astype("<f8").tobytes()


def _problem(problem: Problem, number: int) -> dict[str, Any]:
    """What ``sumsOf`` needs, as plain values; slices in the order of the model."""
    layout, slices = problem.schedule.layout, range(problem.slices)
    return {
        "ranks": problem.ranks,
        "rank": problem.rank_of.tolist(),
        "chunk": [layout.place_of(s)[1] for s in slices],
        "chunks": layout.chunks,
        "speed": problem.speed.tolist(),
        "caps": [float(cap) if np.isfinite(cap) else None for cap in problem.caps],
        "devices": [device.name for device in problem.devices],
        "held": [counts.tolist() for counts in problem.in_flight],
        "table": layout.table().tolist(),
        "tied": [
            [list(numbers), problem.shared[key]] for key, numbers in problem.profile.tied.items()
        ],
        "together": problem.keep_tied,
        "number": number,
    }
