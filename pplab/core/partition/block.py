"""The block partition of Bárány and Grinberg, which torchgpipe uses to balance a model.

"Block partitions of sequences", arXiv 1308.2452: every sequence of numbers in [0, 1] can be cut
into k blocks whose sums differ by at most 1, and a simple procedure finds such a cut: take a
largest block; as long as it exceeds the smallest one by more than 1, let the smallest block nearest
to it take one element from its neighbour on that side; start over when the largest block itself
gave an element. torchgpipe (``balance/blockpartition.py``) scales the costs to [0, 1] first, by
subtracting the smallest and dividing by the range, and starts from blocks of n // k elements.

So the promise is about the *difference* of the sums, in units of the most expensive layer, and
after subtracting the smallest cost: neither is the slowest stage. Written here from the paper's
description, with sums kept up to date where torchgpipe adds each block up anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pplab.core.partition.cuts import check_costs, check_parts, prefix_sums

#: The proof that the procedure ends needs exact sums; with rounded ones this much is forgiven.
ROUNDING = 1e-9


def block_partition(costs: ArrayLike, parts: int) -> tuple[int, ...]:
    """Bounds of the block partition of costs of shape (n,); a block may end up empty.

    Raises PartitionError when there are fewer layers than parts or a cost is not valid.
    """
    array = check_costs(costs)
    n = len(array)
    check_parts(n, parts)
    lowest, span = array.min(), np.ptp(array)
    prefix = prefix_sums((array - lowest) / span if span else np.zeros(n))
    ends = np.append(n // parts * np.arange(1, parts), n)
    sums = np.diff(prefix[ends], prepend=0.0)
    blocks = np.arange(parts)
    largest = int(np.argmax(sums))
    while True:
        least = sums.min()
        if sums[largest] <= least + 1 + ROUNDING:
            return (0, *(int(end) for end in ends))
        minimal = blocks[sums == least]
        smallest = int(minimal[np.argmin(np.abs(minimal - largest))])
        if smallest > largest:
            giver, cut = smallest - 1, smallest - 1
            ends[cut] -= 1
        else:
            giver, cut = smallest + 1, smallest
            ends[cut] += 1
        for block in (cut, cut + 1):
            sums[block] = prefix[ends[block]] - (prefix[ends[block - 1]] if block else 0.0)
        if giver == largest:
            largest = int(np.argmax(sums))
