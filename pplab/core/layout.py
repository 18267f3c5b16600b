"""Where the pieces of the model live: which rank runs which slice of the layer list.

A model is cut into ``stages * chunks`` slices (virtual stages), in the order of its layers. Two
placements are in use: ``loop`` deals the slices round and round (slice v on rank v mod P, the
interleaved schedule of Megatron-LM, arXiv 2104.04473), ``v`` walks down the ranks and back up
(DualPipeV, ZB-V). With one chunk a rank both are the same: slice s on rank s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PLACEMENTS = ("loop", "v")


@dataclass(frozen=True)
class Layout:
    """`stages` ranks of one pipeline, each with `chunks` slices of the model each."""

    stages: int
    chunks: int = 1
    placement: str = "loop"

    def __post_init__(self) -> None:
        if self.stages < 1:
            raise ValueError(f"a pipeline needs at least one stage, not {self.stages}")
        if self.chunks < 1:
            raise ValueError(f"a rank needs at least one chunk, not {self.chunks}")
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement is one of {', '.join(PLACEMENTS)}, not {self.placement!r}")
        if self.placement == "v" and self.chunks > 2:
            raise ValueError("a V has two legs: placement 'v' takes at most 2 chunks a rank")

    @property
    def slices(self) -> int:
        """How many slices the model is cut into."""
        return self.stages * self.chunks

    def slice_of(self, rank: int, chunk: int) -> int:
        """Position in the model (0 = first layers) of a chunk of a rank."""
        if self.placement == "v" and chunk == 1:
            return 2 * self.stages - 1 - rank
        return chunk * self.stages + rank

    def place_of(self, piece: int) -> tuple[int, int]:
        """(rank, chunk) that runs slice `piece`."""
        chunk, position = divmod(piece, self.stages)
        if self.placement == "v" and chunk == 1:
            return self.stages - 1 - position, chunk
        return position, chunk

    def table(self) -> NDArray[np.int64]:
        """Slice number by [rank, chunk]."""
        return np.array(
            [[self.slice_of(r, c) for c in range(self.chunks)] for r in range(self.stages)]
        )
