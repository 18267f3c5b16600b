"""Causes between computations: links, data, the end of the step, overhead."""

from __future__ import annotations

import numpy as np

from pplab.advise.diagnose.cause import Cause, Facts, cause_of
from pplab.advise.diagnose.network import Bools, Floats, Ints

#: A link is slow when its messages take so many times those of the others.
SLOW_LINK = 1.5


def slow_links(facts: Facts) -> list[Cause]:
    """One link slower than the others, and then whatever messages cost beyond that."""
    network = facts.network
    rows = network.is_role("FORWARD", "BACKWARD")
    if not rows.any():
        return []
    # a link joins slice c and c + 1, whichever way the message goes
    link = np.where(network.is_role("FORWARD"), network.piece, network.piece - 1)
    links = np.unique(link[rows])
    took = np.array([np.median(network.work[rows & (link == c)]) for c in links])
    usual = float(np.sort(took)[(len(took) - 1) // 2])
    slow = took > SLOW_LINK * usual + 1e-9
    work = network.work.copy()
    for c, time in zip(links[slow], took[slow], strict=True):
        mine = rows & (link == c)
        work[mine] = np.maximum(work[mine] - (time - usual), np.minimum(work[mine], usual))
    found = [_slow_link(facts, links, took, slow, usual, work)] if slow.any() else []
    free = np.where(rows | network.is_role("S"), 0.0, work)
    rest = float(network.step_times(work).mean() - network.step_times(free).mean())
    each = facts.time(float(np.median(work[rows])))
    found.append(
        cause_of(
            facts,
            "communication",
            free,
            f"messages take {each} each" + (", on all links" if len(links) > 1 else ""),
            [f"if every message arrived at once the step would be {facts.time(rest)} shorter"],
            "faster links, smaller activations or more overlap; "
            "schedules with fewer stages or larger micro-batches send fewer messages",
            saving=rest,
            at_most=True,
        )
    )
    return found


def _slow_link(
    facts: Facts, links: Ints, took: Floats, slow: Bools, usual: float, work: Floats
) -> Cause:
    """The links marked `slow`; `work` is that of all nodes with these as quick as usual."""
    worst = int(links[np.argmax(took)])
    first, second = facts.rank_of(worst), facts.rank_of(worst + 1)
    what = (
        f"the link between rank {first} and {second} takes {facts.time(float(took.max()))} "
        "a message, "
    )
    what += f"{took.max() / usual:.0f}x the others" if usual > 0 else "the others no time"
    each = ", ".join(
        f"{facts.rank_of(int(c))} to {facts.rank_of(int(c) + 1)} {facts.time(float(t))}"
        for c, t in zip(links, took, strict=True)
    )
    evidence = [
        f"from the end of an operation to the moment its result can be used: ranks {each}",
        f"{slow.sum()} of {len(links)} links {'are' if slow.sum() > 1 else 'is'} slow",
    ]
    advice = (
        f"find out what runs between rank {first} and {second}: stages that talk belong on one "
        "node, and a node boundary needs the fast network (NCCL_IB_HCA, NCCL_SOCKET_IFNAME); "
        "smaller or compressed activations help too"
    )
    return cause_of(
        facts, "communication", work, what, evidence, advice,
        link=(worst, worst + 1), links=links[slow].tolist(),
    )  # fmt: skip


def loading(facts: Facts) -> Cause | None:
    """Waiting for data."""
    network = facts.network
    rows = network.is_role("L")
    if not rows.any():
        return None
    each = float(np.median(network.work[rows]))
    count = int(rows.sum()) // len(network.steps) // len(network.replicas)
    total = float(network.work[rows].sum()) / len(network.steps) / len(network.replicas)
    ranks = sorted({int(r) for r in network.rank[rows]})
    evidence = [
        f"{count} loads a step on rank{'s' * (len(ranks) > 1)} "
        f"{' and '.join(map(str, ranks))}, {facts.time(each)} each, {facts.time(total)} in all, "
        "while the pipeline waits",
    ]
    without = np.where(rows, 0.0, network.work)
    return cause_of(
        facts, "data loading", without, f"reading a micro-batch takes {facts.time(each)}", evidence,
        "read ahead: a DataLoader with workers and prefetch_factor, pinned memory, samples that "
        "are tokenised beforehand, data on a local disk",
        ranks=ranks, each=each,
    )  # fmt: skip


def reduction(facts: Facts) -> Cause | None:
    """The end of the step: gradients and optimizer."""
    network = facts.network
    rows = network.is_role("G", "U")
    if not rows.any():
        return None
    names = np.where(network.label == "", "optimizer", network.label)
    words = {"G": "gradient reduction", "U": "optimizer step"}
    per = {
        words.get(str(n), str(n)): float(np.median(network.work[rows & (names == n)]))
        for n in np.unique(names[rows])
    }
    evidence = [
        "once a step: " + ", ".join(f"{n} {facts.time(t)}" for n, t in
                                    sorted(per.items(), key=lambda item: -item[1]))
    ]  # fmt: skip
    without = np.where(rows, 0.0, network.work)
    saving = facts.now - float(network.step_times(without).mean())
    return cause_of(
        facts, "optimizer and reduction", without,
        f"the end of the step takes {facts.time(saving)}", evidence,
        "more micro-batches a step spread it over more work; overlap the reduction with the last "
        "backward passes; a fused or sharded optimizer (ZeRO-1) shortens it",
        at_most=True,
    )  # fmt: skip


def overhead(facts: Facts) -> Cause:
    """Time lost between operations."""
    network = facts.network
    computes = network.is_role("F", "B", "W")
    each = float(np.median(network.delay[computes]))
    count = network.ranks * len(network.replicas) * len(network.steps)
    total = float(network.delay[computes].sum()) / count
    return cause_of(
        facts, "overhead", network.work,
        f"{facts.time(total)} of a rank's step are lost between operations",
        [
            f"before an operation, when nothing is waited for: {facts.time(each)} (median), "
            f"{facts.time(float(network.delay[computes].max()))} at worst"
        ],
        "larger micro-batches make it matter less; CUDA graphs or torch.compile shorten it",
        at_most=True,
        delay=np.zeros_like(network.delay),
    )  # fmt: skip
