"""Table 5 of the Zero Bubble paper (arXiv 2401.10241), computed again from its Table 6.

For four models and three numbers of micro-batches each, the paper gives profiled times of F, B, W
and of a message, and the bubble rates that follow for four schedules. The rate is

    (cost - M (TF + TB + TW)) / cost,   cost = the longest first-to-last-operation span of a rank.

1F1B, ZB-H1 and ZB-H2 come out to the four decimals printed. So does interleaved 1F1B, once it is
counted as the authors' program counts it (``efficiency.py`` of sail-sg/zero-bubble-pipeline-
parallelism; ``wrap="first"`` below): where a chunk of the last rank hands on to the next chunk of
the first rank, only the first micro-batch of each group of P waits for its message. With free
messages the others would not wait anyway, but with the table's message times they do: counted in
full, the rate is 0.0008 to 0.0035 larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pplab.core.costs import Costs
from pplab.core.graph import Graph
from pplab.core.ops import CODE
from pplab.core.schedule import Schedule
from pplab.core.schedules.interleaved import interleaved
from pplab.core.schedules.one_f_one_b import one_f_one_b
from pplab.core.schedules.zb_h1 import zb_h1
from pplab.core.schedules.zb_h2 import zb_h2
from pplab.core.simulate import times


@dataclass(frozen=True)
class Case:
    """One row: a model on P stages with M micro-batches, times in ms and published rates."""

    model: str
    stages: int
    chunks: int  # one layer of a stage each, for the interleaved column
    micro_batches: int
    forward: float
    backward: float  # B, the input gradient alone
    weight: float
    message: float
    published: dict[str, float]


#: The columns computed here; ZB-1p and ZB-2p come from the paper's search and are left out.
SCHEDULE_NAMES = ("1F1B", "1F1B-I", "ZB-H1", "ZB-H2")

_ROWS = """
1.5B  8  3  24 18.522 18.086  9.337 0.601 .2431 .1055 .1585 .1083
1.5B  8  3  32 18.513 18.086  9.331 0.626 .1985 .0818 .1242 .0837
1.5B  8  3  64 18.546 18.097  9.321 0.762 .1240 .0443 .0674 .0444
6.2B  8  4  24 29.718 29.444 19.927 0.527 .2347 .0808 .1323 .0698
6.2B  8  4  32 29.802 29.428 19.530 0.577 .1898 .0628 .1045 .0559
6.2B  8  4  64 29.935 29.621 19.388 0.535 .1091 .0320 .0554 .0294
14.6B 16 3  48 11.347 11.248  8.132 0.377 .2552 .1104 .1397 .0672
14.6B 16 3  64 11.307 11.254  8.101 0.379 .2082 .0852 .1088 .0516
14.6B 16 3 128 11.325 11.308  8.109 0.378 .1251 .0445 .0576 .0266
28.3B 32 2  96 10.419 10.207  7.715 0.408 .2646 .1493 .1421 .0641
28.3B 32 2 128 10.408 10.204  7.703 0.408 .2168 .1164 .1106 .0490
28.3B 32 2 256 10.402 10.248  7.698 0.460 .1352 .0624 .0594 .0257
"""


def _read(row: str) -> Case:
    model, stages, chunks, micro_batches, *numbers = row.split()
    forward, backward, weight, message, *rates = map(float, numbers)
    return Case(
        model,
        int(stages),
        int(chunks),
        int(micro_batches),
        forward,
        backward,
        weight,
        message,
        dict(zip(SCHEDULE_NAMES, rates, strict=True)),
    )


CASES: tuple[Case, ...] = tuple(_read(row) for row in _ROWS.strip().splitlines())


def rate(case: Case, name: str, *, wrap: str = "all") -> float:
    """Bubble rate of schedule `name` (one of SCHEDULE_NAMES), by the paper's definition.

    `wrap` matters to 1F1B-I only: "all" messages from the last rank's chunk to the first rank's
    next one take their time, or only the "first" of each group, as in the authors' program.
    """
    chunks = case.chunks if name == "1F1B-I" else 1
    plan = _plan(case, name)
    costs = Costs(
        forward=case.forward / chunks,
        backward=(case.backward + case.weight) / chunks,
        weight=case.weight / chunks,
        latency=case.message,
        unit="ms",
    )
    graph = _without_wrap(plan.graph, case.stages) if wrap == "first" else plan.graph
    start, end = times(plan, costs, graph)
    ranks = [graph.rank == rank for rank in range(case.stages)]
    cost = max(float(end[mine].max() - start[mine].min()) for mine in ranks)
    work = case.micro_batches * (case.forward + case.backward + case.weight)
    return (cost - work) / cost


def _plan(case: Case, name: str) -> Schedule:
    if name == "1F1B-I":
        return interleaved(case.stages, case.micro_batches, chunks=case.chunks)
    makers = {"1F1B": one_f_one_b, "ZB-H1": zb_h1, "ZB-H2": zb_h2}
    return makers[name](case.stages, case.micro_batches)


def _without_wrap(graph: Graph, stages: int) -> Graph:
    """The graph without the wrap-around messages of all but the first micro-batch of a group.

    They lead from the last rank to the next chunk of rank 0, and back for gradients.
    """
    turn = np.where(graph.kind == CODE["F"], 0, stages - 1)
    wraps = graph.remote & (graph.piece % stages == turn)
    free = wraps & (graph.micro_batch % stages > 0)
    return replace(graph, needs=np.where(free, -1, graph.needs), remote=graph.remote & ~free)


def rows() -> list[tuple[str, float, float]]:
    """Every number of the table as (what it is, computed here, published); 48 of them.

    1F1B-I is counted as the authors did.
    """
    return [
        (
            f"{case.model} p{case.stages} m{case.micro_batches} {name}",
            rate(case, name, wrap="first" if name == "1F1B-I" else "all"),
            case.published[name],
        )
        for case in CASES
        for name in SCHEDULE_NAMES
    ]
