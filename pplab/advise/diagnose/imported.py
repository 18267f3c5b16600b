"""The network of a trace of the straggler study: every message and collective with its own time.

Dependencies as in that study (arXiv 2505.05713, section 3): computations of a rank in their order;
parameters are gathered before the first; an activation or gradient is sent after the computation
that makes it and received before the one that uses it; gradients are reduced after the last. A
collective operation begins when its last member is there; its own time is the rest.
"""

from __future__ import annotations

from collections import defaultdict

from pplab.advise.diagnose.network import Builder, Network
from pplab.core.layout import Layout
from pplab.traces.straggler import KINDS, Event, StragglerTrace

#: Who takes part in a collective operation: the same rank of every replica, or all ranks.
ACROSS_REPLICAS = {"params-all-gather", "grads-reduce-scatter"}
ALL_RANKS = {"optimizer-clip-main-grad"}
IN_PIPELINE = {"embedding-grads-all-reduce"}


def network_of_trace(trace: StragglerTrace) -> Network:
    """The network of all steps of a trace."""
    layout = Layout(trace.stages, trace.chunks)
    build = Builder()
    chains: dict[tuple[int, int, int], list[Event]] = defaultdict(list)
    messages: dict[tuple[str, int, int, int, int], Event] = {}
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for e in trace.events:
        if KINDS[e.name] in "SR":
            piece = layout.slice_of(e.rank, e.chunk)
            messages[e.name, e.step, e.replica, piece, e.micro_batch] = e
        else:
            chains[e.step, e.replica, e.rank].append(e)
            if KINDS[e.name] == "G":
                groups[_group(e)].append(e)
    # What is lost before a collective counts as no delay: ranks may have waited for something that
    # was not recorded (in the AR trace, the last stages of all replicas for each other)
    joins = {
        key: build.node(
            "JOIN", (members[0].step, members[0].replica, members[0].rank),
            begin := max(e.start for e in members), begin, label=f"join {members[0].name}",
            delay=0.0,
        )
        for key, members in groups.items()
    }  # fmt: skip
    begins = {key: max(e.start for e in members) for key, members in groups.items()}
    made: dict[tuple[str, int, int, int, int], int] = {}
    #: By operation: when the one before it on its rank had ended.
    idle_since: dict[tuple[str, int, int, int, int], float] = {}
    for where, events in chains.items():
        before: int | None = None
        until = float("-inf")
        for e in sorted(events, key=lambda e: (e.start, e.end)):
            kind = KINDS[e.name]
            if kind == "G":
                key = _group(e)
                # the recorded start of a collective is that of its last member: the rank itself
                # was there when it had ended what it did before
                at = e.start if before is None else until
                here = build.node("JOIN", where, at, at, label=f"to {e.name}", waits_for=(before,))
                build.edge(here, joins[key])
                begin, until = min(begins[key], e.end), e.end
                before = build.node("G", where, begin, e.end, label=e.name, waits_for=(joins[key],))
                continue
            piece = layout.slice_of(e.rank, e.chunk)
            before = build.node(
                kind, where, e.start, e.end, piece=piece, micro_batch=e.micro_batch,
                label=e.name, waits_for=(before,),
            )  # fmt: skip
            if kind in "FB":
                made[kind, e.step, e.replica, piece, e.micro_batch] = before
                idle_since[kind, e.step, e.replica, piece, e.micro_batch] = until
            until = e.end
    for (kind, step, replica, piece, m), used in list(made.items()):
        way, other = ("forward", piece - 1) if kind == "F" else ("backward", piece + 1)
        producer = made.get((kind, step, replica, other, m))
        if producer is None:
            continue
        sent = messages.get((f"{way}-send", step, replica, other, m))
        got = messages.get((f"{way}-recv", step, replica, piece, m))
        if sent is None or got is None:  # handed on within a rank
            build.edge(producer, used)
            continue
        rank, _ = layout.place_of(other)
        begin = max(sent.start, got.start)
        # a transfer begins when both sides are there; what it lost is counted from then on
        both = max(build.rows[producer][9], idle_since[kind, step, replica, piece, m])
        node = build.node(
            way.upper(), (step, replica, rank), begin, max(begin, got.end), piece=other,
            micro_batch=m, label=f"{way}-message", delay=max(0.0, begin - both),
            waits_for=(producer,),
        )  # fmt: skip
        build.edge(node, used)
    return build.network(layout.slices, trace.stages)


def _group(e: Event) -> tuple[object, ...]:
    if e.name in ACROSS_REPLICAS:
        return e.name, e.step, e.rank
    if e.name in ALL_RANKS:
        return e.name, e.step
    if e.name in IN_PIPELINE:
        return e.name, e.step, e.replica
    return e.name, e.step, e.replica, e.rank
