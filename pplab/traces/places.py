"""Which place in the pipeline every rank of a trace has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pplab.core.layout import Layout
from pplab.traces.chains import Passes, arrangement, passes, upwards
from pplab.traces.files import TraceError
from pplab.traces.imported import Options
from pplab.traces.named import Named

if TYPE_CHECKING:
    from pplab.traces.rows import RankTrace, Row


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


def places(
    traces: list[RankTrace], rows: list[list[Row]], options: Options, *, within: bool = False
) -> Places:
    """Places from what pplab noted, else from the stages that ranges name, else from the groups
    of ranks that the files list, else by rank.

    rows: the operations of each trace; within: they may hold waits, so that the times at which
    they begin say nothing.
    """
    _no_rank_twice(traces)
    named = [{row.named for row in mine} for mine in rows]
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
        order = [passes(mine) for mine in rows]
        if options.stages is None and all(trace.pipeline for trace in traces):
            found = _grouped(traces, chunks)
        else:
            found = _by_rank(traces, chunks, options, None if within else order)
        found = _placed(found, order)
    if found.missing:
        ranks = ", ".join(map(str, found.missing))
        many = len(found.missing) > 1
        found.notes.append(
            f"rank{'s' * many} {ranks} of {found.layout.stages} {'are' if many else 'is'} missing:"
            " no file was given; drawn empty, and to be left out of every idle share"
        )
    return found


def _no_rank_twice(traces: list[RankTrace]) -> None:
    guesses = [trace.rank for trace in traces if trace.guessed]
    if len(set(guesses)) < len(guesses):  # names of nodes, say, and not of ranks
        for trace in traces:
            trace.rank = None if trace.guessed else trace.rank
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
    groups = list(dict.fromkeys(trace.pipeline for trace in traces))
    if options.stages is None and all(groups):
        stages = max(stages, *map(len, groups))
    elif alone and _same(traces, slices) and options.stages is None:
        stages = max(stages, world)  # the files of the last stages are the missing ones
    replicas: dict[int, int] = {}
    place = []
    for trace, mine in zip(traces, slices, strict=True):
        rank = mine[0]
        if rank >= stages:
            raise TraceError(
                f"a rank runs stages {mine}, which do not fit a pipeline of {stages} ranks with "
                f"{chunks} stages each"
            )
        replica = groups.index(trace.pipeline) if all(groups) else replicas.get(rank, 0)
        place.append((replica, rank))
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


def _same(traces: list[RankTrace], slices: list[list[int]]) -> bool:
    """Whether stage i is on rank i: elsewhere other ranks of the job are replicas of these."""
    return all(t.rank in (None, mine[0]) for t, mine in zip(traces, slices, strict=True))


def _grouped(traces: list[RankTrace], chunks: int) -> Places:
    """A pipeline for every group of ranks that is one; its ranks are in the order of its stages."""
    groups = list(dict.fromkeys(trace.pipeline for trace in traces))
    if len({len(group) for group in groups}) > 1:
        raise TraceError(
            f"{traces[0].label}: the files list pipelines of different lengths "
            f"({', '.join(str(len(group)) for group in groups)} ranks): read those of one job"
        )
    place = [(groups.index(t.pipeline), t.pipeline.index(t.rank or 0)) for t in traces]
    return Places(Layout(len(groups[0]), chunks), place)


def _placed(found: Places, order: list[Passes]) -> Places:
    """The same as a V, where the second chunks run from the last rank up to the first."""
    if found.layout.chunks != 2 or found.layout.stages < 2:
        return found
    at = {place: number for number, place in enumerate(found.place)}
    pairs = [(n, at[r, rank + 1]) for (r, rank), n in at.items() if (r, rank + 1) in at]
    if not pairs or not all(upwards(order[a], order[b]) for a, b in pairs):
        return found
    return replace(found, layout=Layout(found.layout.stages, 2, "v"))


def _by_rank(
    traces: list[RankTrace], chunks: int, options: Options, order: list[Passes] | None
) -> Places:
    """Ranks in order are stages in order; with `stages` given, all replicas of one first. Without,
    and with the files of all ranks, `order` may show that ranks are replicas of each other."""
    notes: list[str] = []
    numbers = [trace.rank for trace in traces]
    if any(number is None for number in numbers):
        if len(traces) > 1:
            notes.append("the files do not say which rank they are of: taken in their order")
        numbers = list(range(len(traces)))
    ranks = [int(number or 0) for number in numbers]
    world = max([*(t.world or 0 for t in traces), max(ranks) + 1])
    stages, consecutive = options.stages, False
    if stages is None and order is not None and sorted(ranks) == list(range(world)):
        stages, consecutive = arrangement([order[ranks.index(rank)] for rank in range(world)])
        if stages < world:
            notes.append(_arranged(world, stages, consecutive))
    if stages:
        if world % stages:
            raise TraceError(
                f"{world} ranks cannot form pipelines of {stages} stages: "
                f"{world} is no multiple of {stages}"
            )
        each = world // stages
        place = [(rank % each, rank // each) for rank in ranks]
        if consecutive:
            place = [divmod(rank, stages) for rank in ranks]
        return Places(Layout(stages, chunks), place, notes=notes)
    if 2 * len(traces) >= world:
        return Places(Layout(world, chunks), [(0, rank) for rank in ranks], notes=notes)
    row = sorted(ranks)
    if len(traces) > 1:
        notes.append(
            f"{len(traces)} of the {world} ranks of the job are here, taken as consecutive stages "
            "of one pipeline; say stages=... if they are not"
        )
    else:
        notes.append(f"this is rank {ranks[0]} of {world}: the others are not here")
    place = [(0, row.index(rank)) for rank in ranks]
    return Places(Layout(len(traces), chunks), place, notes=notes, assumed=len(traces) > 1)


def _arranged(world: int, stages: int, consecutive: bool) -> str:
    each = world // stages
    if stages == 1:
        text = f"no rank hands work on to another: the {world} ranks are taken as replicas"
    else:
        a, b = (0, stages) if consecutive else (0, 1)
        text = (
            f"ranks {a} and {b} run the same micro-batches at the same time: the {world} ranks are "
            f"taken as {each} replicas (or tensor-parallel partners) of pipelines of {stages} "
            f"stages, {'one after the other' if consecutive else f'rank 0, {each}, ... for one'}"
        )
    return text + (
        "; say stages=... (--stages) if that is wrong, as it may be where only the CPU was "
        "recorded, which queues the work"
    )
