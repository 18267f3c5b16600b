"""The batch triangle as DeepSpeed resolves it, values that work, and what counts as what.

    batch = resolve(train=256, micro=2, replicas=7)
    batch.ok, batch.filled                 # False, ("gas",): 256 is not 2 * 18 * 7
    proposals(batch)                       # the nearest numbers that work
    count_micro_batches(8, stages=4, micro=2, gas=8)   # M = 8, not 16

The triangle itself is in ``triangle``, values that work in ``nearest``, the counting in ``count``,
how many micro-batches pay in ``knee``, and what a bubble that shrank explains in ``closing``.
"""

from pplab.core.batch.closing import BubbleClaim, activations_for, memory_after
from pplab.core.batch.count import (
    Confrontation,
    Confronted,
    Count,
    confront,
    count_micro_batches,
    ideal_bubble,
    least_micro_batches,
    ramp,
)
from pplab.core.batch.knee import (
    GAIN,
    RULES,
    article_rule,
    best_cut,
    ideal_knee,
    knee,
    rules,
)
from pplab.core.batch.nearest import Proposal, proposals
from pplab.core.batch.triangle import KEYS, Batch, BatchError, replicas_of, resolve

__all__ = [
    "GAIN",
    "KEYS",
    "RULES",
    "Batch",
    "BatchError",
    "BubbleClaim",
    "Confrontation",
    "Confronted",
    "Count",
    "Proposal",
    "activations_for",
    "article_rule",
    "best_cut",
    "confront",
    "count_micro_batches",
    "ideal_bubble",
    "ideal_knee",
    "knee",
    "least_micro_batches",
    "memory_after",
    "proposals",
    "ramp",
    "replicas_of",
    "resolve",
    "rules",
]
