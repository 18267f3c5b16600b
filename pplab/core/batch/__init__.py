"""The batch triangle as DeepSpeed resolves it, values that work, and what counts as what.

    batch = resolve(train=256, micro=2, replicas=7)
    batch.ok, batch.filled                 # False, ("gas",): 256 is not 2 * 18 * 7
    proposals(batch)                       # the nearest numbers that work
    count_micro_batches(8, stages=4, micro=2, gas=8)   # M = 8, not 16

The triangle itself is in ``triangle``, values that work in ``nearest``, the counting in ``count``.
"""

from pplab.core.batch.count import (
    Confronted,
    Count,
    confront,
    count_micro_batches,
    ideal_bubble,
    least_micro_batches,
    ramp,
)
from pplab.core.batch.nearest import Proposal, proposals
from pplab.core.batch.triangle import KEYS, Batch, BatchError, replicas_of, resolve

__all__ = [
    "KEYS",
    "Batch",
    "BatchError",
    "Confronted",
    "Count",
    "Proposal",
    "confront",
    "count_micro_batches",
    "ideal_bubble",
    "least_micro_batches",
    "proposals",
    "ramp",
    "replicas_of",
    "resolve",
]
