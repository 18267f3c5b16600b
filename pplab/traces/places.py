"""Which place in the pipeline every rank of a trace has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pplab.core.layout import Layout
from pplab.traces.files import TraceError
from pplab.traces.imported import Options
from pplab.traces.names import Named

if TYPE_CHECKING:
    from pplab.traces.rows import RankTrace


#: More stages, chunks or ranks than this are a mistake in the file.
MOST = 1 << 17


@dataclass(frozen=True)
class Places:
    """The layout, and (replica, pipeline rank) of each trace.

    stages: the slices of the model that each runs; assumed: nothing says that these ranks form a
    pipeline, it was taken so.
    """

    layout: Layout
    place: list[tuple[int, int]]
    stages: list[list[int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    assumed: bool = False

    def chunk(self, trace: int, named: Named) -> int:
        """The chunk of the rank that an operation runs."""
        if named.stage is not None and self.stages:
            return self.stages[trace].index(named.stage)
        return named.chunk or 0

    def piece(self, trace: int, named: Named) -> int:
        """The slice of the model that an operation runs."""
        return self.layout.slice_of(self.place[trace][1], self.chunk(trace, named))

    @property
    def missing(self) -> tuple[int, ...]:
        """Pipeline ranks without a trace."""
        there = {rank for _, rank in self.place}
        return tuple(rank for rank in range(self.layout.stages) if rank not in there)


def places(traces: list[RankTrace], named: list[set[Named]], options: Options) -> Places:
    """Places from what pplab noted, else from the stages that ranges name, else by rank.

    named: the operations of each trace.
    """
    _no_rank_twice(traces)
    most = max((n or 0 for mine in named for op in mine for n in (op.stage, op.chunk)), default=0)
    world = max((max(t.world or 0, t.rank or 0) for t in traces), default=0)
    if max(most, world) > MOST:
        raise TraceError(
            f"{traces[0].label}: {max(most, world):,} stages, chunks or ranks: that is no pipeline"
        )
    slices = [sorted({op.stage for op in mine if op.stage is not None}) for mine in named]
    if all("stage" in trace.about for trace in traces):
        found = _noted(traces)
    elif all(slices):
        found = _named(traces, slices, options)
    else:
        chunks = 1 + max((op.chunk or 0 for mine in named for op in mine), default=0)
        found = _by_rank(traces, chunks, options)
    if found.missing:
        ranks = ", ".join(map(str, found.missing))
        many = len(found.missing) > 1
        found.notes.append(
            f"rank{'s' * many} {ranks} of {found.layout.stages} {'are' if many else 'is'} missing:"
            " no file was given; drawn empty, and to be left out of every idle share"
        )
    return found


def _no_rank_twice(traces: list[RankTrace]) -> None:
    seen: dict[tuple[int | None, str], str] = {}
    for trace in traces:
        if trace.rank is None:
            continue
        key = (trace.rank, str(trace.about.get("run", "")))
        if key in seen:
            raise TraceError(
                f"{seen[key]} and {trace.label} are both of rank {trace.rank}: give one file per "
                "rank, all of the same run"
            )
        seen[key] = trace.label


def _noted(traces: list[RankTrace]) -> Places:
    try:
        layout = Layout(**traces[0].about["layout"])
        place = [(int(t.about["replica"]), int(t.about["stage"])) for t in traces]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{traces[0].label}: pplab's notes in it were changed: {error}") from None
    return Places(layout, place)


def _named(traces: list[RankTrace], slices: list[list[int]], options: Options) -> Places:
    """The first slice of a rank is its place in the pipeline, in every placement in use."""
    notes: list[str] = []
    chunks = max(map(len, slices))
    total = max(max(mine) for mine in slices) + 1
    stages = options.stages or -(-total // chunks)
    world = max((t.world or 0 for t in traces), default=0)
    alone = len({tuple(mine) for mine in slices}) == len(slices)
    if options.stages is None and alone and world > stages:
        stages = world  # the files of the last stages are the missing ones
    replicas: dict[int, int] = {}
    place = []
    for mine in slices:
        rank = mine[0]
        if rank >= stages:
            raise TraceError(
                f"a rank runs stages {mine}, which do not fit a pipeline of {stages} ranks with "
                f"{chunks} stages each"
            )
        place.append((replicas.get(rank, 0), rank))
        replicas[rank] = replicas.get(rank, 0) + 1
    for placement in ("loop", "v"):
        if placement == "v" and chunks != 2:
            continue
        layout = Layout(stages, chunks, placement)
        fits = all(
            [layout.slice_of(rank, c) for c in range(len(mine))] == mine
            for (_, rank), mine in zip(place, slices, strict=True)
        )
        if fits:
            return Places(layout, place, slices, notes)
    notes.append(
        "the stages lie on the ranks in a way that is neither a loop nor a V: messages between "
        "ranks cannot be told"
    )
    return Places(Layout(stages, chunks), place, slices, notes)


def _by_rank(traces: list[RankTrace], chunks: int, options: Options) -> Places:
    """Ranks in order are stages in order; with `stages` given, all replicas of one first."""
    notes: list[str] = []
    numbers = [trace.rank for trace in traces]
    if any(number is None for number in numbers):
        if len(traces) > 1:
            notes.append("the files do not say which rank they are of: taken in their order")
        numbers = list(range(len(traces)))
    ranks = [int(number or 0) for number in numbers]
    world = max([*(t.world or 0 for t in traces), max(ranks) + 1])
    if options.stages:
        if world % options.stages:
            raise TraceError(
                f"{world} ranks cannot form pipelines of {options.stages} stages: "
                f"{world} is no multiple of {options.stages}"
            )
        each = world // options.stages
        place = [(rank % each, rank // each) for rank in ranks]
        return Places(Layout(options.stages, chunks), place, notes=notes)
    if 2 * len(traces) >= world:
        return Places(Layout(world, chunks), [(0, rank) for rank in ranks], notes=notes)
    order = sorted(ranks)
    if len(traces) > 1:
        notes.append(
            f"{len(traces)} of the {world} ranks of the job are here, taken as consecutive stages "
            "of one pipeline; say stages=... if they are not"
        )
    else:
        notes.append(f"this is rank {ranks[0]} of {world}: the others are not here")
    place = [(0, order.index(rank)) for rank in ranks]
    return Places(Layout(len(traces), chunks), place, notes=notes, assumed=len(traces) > 1)
