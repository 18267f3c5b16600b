"""What to say of ranges that make no pipeline, or an incomplete one."""

from __future__ import annotations

from collections import Counter

from pplab.traces.frameworks import UNDERSTOOD
from pplab.traces.imported import Options
from pplab.traces.names import is_phase
from pplab.traces.rows import RankTrace, Row

#: Share of the time of a rank's passes that may lie on top of others of its own.
OVERLAP = 0.05

HELP = (
    "Put torch.profiler.record_function or NVTX ranges around the passes, or say which names mean "
    'what: names={r"fwd (\\d+)": "F", ...}, on the command line --name \'fwd (\\d+)=F\'; the only '
    "group, or one called micro_batch, is its number, and chunk and stage may have groups, too."
)


def refusal(traces: list[RankTrace], options: Options, title: str) -> str:
    """What was found instead of a pipeline, and what to do."""
    others: Counter[str] = Counter()
    for trace in traces:
        others += trace.others
        others.update(r.name for r in trace.ranges)
    who = f"{traces[0].label}" if len(traces) == 1 else f"{len(traces)} ranks"
    text = f"no pipeline in this trace ({title}, {who}): "
    if any(is_phase(name) for name in others):
        text += (
            "Megatron-LM's own ranges name only the phases of a step (warmup, steady, cooldown), "
            "not the passes of single micro-batches. "
        )
    shown = ", ".join(f"{name!r} ({count})" for name, count in others.most_common(6))
    if others:
        text += f"of its {others.total()} named ranges none is a forward or backward pass of a "
        text += "micro-batch" + (" by the names given" if options.names is not None else "")
        text += f"; most frequent: {shown}. "
    else:
        text += "it has no named ranges at all. "
    for note in list(dict.fromkeys(note for trace in traces for note in trace.notes))[:3]:
        text += f"{note}. "
    text += f"{HELP} "
    return text + ("" if options.names is not None else f"{UNDERSTOOD}.")


def doubts(traces: list[RankTrace], rows: list[list[Row]]) -> list[str]:
    """What the names leave out, and what a rank cannot have done."""
    kinds = [{row.named.kind for row in mine} for mine in rows]
    forward = [t.label for t, mine in zip(traces, kinds, strict=True) if "F" in mine]
    only = [
        t.label for t, mine in zip(traces, kinds, strict=True) if "F" in mine and "B" not in mine
    ]
    notes = []
    if only and len(only) == len(forward):
        notes.append("no backward pass is named: only the forward passes are shown")
    elif only:
        notes.append(
            f"{_listed(only)}: forward passes have names but backward passes have none (DeepSpeed "
            "names them on the last stage only), so they are drawn as idle, and idle shares are "
            "too high by as much: record torch.profiler.profile(with_stack=True) instead"
        )
    for trace, mine in zip(traces, rows, strict=True):
        share = _overlap([row for row in mine if row.named.kind in "FBW"])
        if share > OVERLAP:
            notes.append(
                f"{trace.label}: {share:.0%} of the time of its passes lies on top of other passes "
                "of the same rank: are these several ranks or threads in one, or ranges within "
                "ranges? Its idle share means nothing"
            )
    return notes


def _overlap(rows: list[Row]) -> float:
    total = sum(row.end - row.start for row in rows)
    covered, until = 0, -(2**63)
    for row in sorted(rows, key=lambda row: row.start):
        covered += max(0, row.end - max(row.start, until))
        until = max(until, row.end)
    return 1 - covered / total if total else 0.0


def _listed(labels: list[str], most: int = 3) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
