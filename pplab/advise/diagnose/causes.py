"""What makes the step longer than it needs to be: each cause with evidence, advice and a saving.

The saving of a cause is found by removal: the recorded steps are replayed, delays and all, without
that one cause. Savings of several causes do not add up: what one hides, another uncovers.
"""

from __future__ import annotations

from dataclasses import replace

from pplab.advise.diagnose import between, computing
from pplab.advise.diagnose.cause import Cause, Facts
from pplab.advise.diagnose.factors import factors

#: A cause that costs less than this share of the step is not worth a line.
LEAST = 0.01
#: How many causes are removed in turn to see what stood behind them.
ROUNDS = 3


def causes(facts: Facts) -> tuple[Cause, ...]:
    """Everything that costs at least ``LEAST`` of the step, the most costly first; after these,
    what costs as much only once the ones before it are removed (``behind`` says which)."""
    found = visible(facts)
    names = {cause.name for cause in found}
    now, removed, round_ = facts, list[str](), found
    for _ in range(ROUNDS):
        if not round_ or round_[0].without is None:
            break
        removed.append(round_[0].name)
        now = after(now, round_[0])
        round_ = [cause for cause in visible(now) if cause.name not in removed]
        for cause in round_:
            if cause.name not in names:
                names.add(cause.name)
                share = cause.saving / facts.now
                found.append(replace(cause, behind=" and ".join(removed), share=share))
    return tuple(found)


def visible(facts: Facts) -> list[Cause]:
    """The causes that matter as things are, the most costly first."""
    found = [
        computing.imbalance(facts),
        computing.slow_worker(facts),
        computing.sequences(facts),
        computing.jitter(facts),
        *between.slow_links(facts),
        between.loading(facts),
        between.reduction(facts),
        between.overhead(facts),
    ]
    kept = [cause for cause in found if cause is not None and cause.share >= LEAST]
    return sorted(kept, key=lambda cause: -cause.saving)


def after(facts: Facts, cause: Cause) -> Facts:
    """How things are once a cause is removed."""
    assert cause.without is not None
    work, delay = cause.without
    network = replace(facts.network, work=work, delay=delay)
    return replace(facts, network=network, found=factors(network))
