"""From a schedule and its costs to a timeline, before anything runs.

Every operation starts when the one before it on its rank has ended and its input has arrived:

    start = max(end of the previous operation + overhead, end of the producer + message time)

Sends cost the sender nothing and links never queue: what is left out here shows as the difference
between a simulated and a measured timeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pplab.core.costs import Costs, Floats
from pplab.core.graph import Graph
from pplab.core.ops import CODE
from pplab.core.timeline import Timeline

if TYPE_CHECKING:
    from pplab.core.schedule import Schedule


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """The timeline of one step of `schedule` under `costs`.

    Raises ScheduleError when the schedule cannot run, ValueError when the costs do not fit it.
    """
    graph = schedule.graph
    start, end = times(schedule, costs)
    columns = {
        "rank": graph.rank,
        "kind": graph.kind,
        "micro_batch": graph.micro_batch,
        "chunk": graph.chunk,
        "start": start,
        "end": end,
    }
    updates = costs.updates(schedule.stages)
    at_the_end = bool(np.any(updates > 0)) and CODE["U"] not in graph.kind
    if at_the_end:
        last = end.max(initial=0.0)
        ranks = np.arange(schedule.stages)
        extra = {
            "rank": ranks,
            "kind": np.full(len(ranks), CODE["U"]),
            "micro_batch": np.full(len(ranks), -1),
            "chunk": np.zeros(len(ranks), dtype=int),
            "start": np.full(len(ranks), last),
            "end": last + updates,
        }
        columns = {name: np.concatenate([columns[name], extra[name]]) for name in columns}
    return Timeline.of(
        columns,
        layout=schedule.layout,
        in_order=not at_the_end,  # a graph is numbered rank by rank, in the order of execution
        source="simulated",
        schedule=schedule.name,
        unit=costs.unit,
    )


def times(schedule: Schedule, costs: Costs, graph: Graph | None = None) -> tuple[Floats, Floats]:
    """Start and end of every operation, in the numbering of ``schedule.graph``; shapes (N,).

    `graph` is another graph to follow, with fewer dependencies. Raises what ``simulate`` raises.
    """
    graph = schedule.graph if graph is None else graph
    messages = costs.messages(schedule.layout.slices)
    return _times(graph, _durations(schedule, graph, costs), messages, costs.overhead)


def _durations(schedule: Schedule, graph: Graph, costs: Costs) -> Floats:
    table = costs.table(schedule.layout.slices, schedule.micro_batches)
    table = np.concatenate([table, np.zeros((1, *table.shape[1:]))])  # U has its own cost below
    durations = table[graph.kind, graph.piece, graph.micro_batch]
    split = np.flatnonzero(graph.split)
    durations[split] -= table[CODE["W"], graph.piece[split], graph.micro_batch[split]]
    updates = np.flatnonzero(graph.kind == CODE["U"])
    durations[updates] = costs.updates(schedule.stages)[graph.rank[updates]]
    return durations


def _times(
    graph: Graph, durations: Floats, messages: Floats, overhead: float
) -> tuple[Floats, Floats]:
    """Start and end of every operation, wave by wave (see ``graph``)."""
    order, (before, needs) = graph.order, graph.in_wave_order
    delay = np.append(messages, 0.0)[graph.cut][order]
    lost = np.where(graph.before >= 0, overhead, 0.0)[order]
    lasts = durations[order]
    count = len(order)
    start, end = np.empty(count), np.zeros(count + 1)  # end[-1]: "no predecessor", time 0
    take, maximum, add = end.take, np.maximum, np.add
    for low, high in zip(graph.waves[:-1].tolist(), graph.waves[1:].tolist(), strict=True):
        own = take(before[low:high])
        own += lost[low:high]
        arrived = take(needs[low:high])
        arrived += delay[low:high]
        begin = maximum(own, arrived, out=start[low:high])
        add(begin, lasts[low:high], out=end[low:high])
    back = graph.place
    return start[back], end[back]
