"""The step time of many cuts at once: the simulator's rule on arrays of candidates.

Searching for a cut asks for thousands of step times of one schedule. The order of operations is the
same for all of them, so the waves of ``core.graph`` are walked once, with one column a candidate:

    start = max(end of the previous operation + overhead, end of the producer + message time)

This is ``core.simulate`` for many costs at once; both give the same numbers to the last bit
(tested).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pplab.core.ops import CODE

if TYPE_CHECKING:
    from pplab.core.schedule import Schedule

Floats = NDArray[np.float64]

#: Candidates times operations held at once: small enough to stay near the cache (4 MB an array).
BATCH = 500_000


class Stepper:
    """Step times of one schedule. Raises ScheduleError when the schedule cannot run."""

    def __init__(self, schedule: Schedule, overhead: float = 0.0) -> None:
        graph = schedule.graph
        self.schedule = schedule
        self.overhead = overhead
        order = graph.order
        kind, piece = graph.kind[order], graph.piece[order]
        slices = schedule.layout.slices
        # Rows of the table of durations: F, whole B, W, B without W; then U, which takes no time.
        row = np.where(kind == CODE["U"], 4, np.where(graph.split[order], 3, kind))
        self._cell = row * slices + np.where(row == 4, 0, piece)
        self._cut = graph.cut[order]
        self._first = graph.before[order] < 0
        before, needs = graph.in_wave_order
        self._waves = [
            (slice(a, b), before[a:b], needs[a:b])
            for a, b in zip(graph.waves[:-1].tolist(), graph.waves[1:].tolist(), strict=True)
        ]

    def steps(
        self, forward: Floats, backward: Floats, messages: Floats, weight: Floats | None = None
    ) -> Floats:
        """First start to last end of a step, by candidate; shape (K,).

        forward, backward: time of each slice, shape (slices, K); backward is the whole of it
        messages: time of a message across each cut, shape (slices - 1, K)
        weight:   part of backward that W takes where it is split off; default half
        """
        per_batch = max(1, BATCH // max(1, len(self._cell)))
        found = []
        for a in range(0, forward.shape[1], per_batch):
            part = slice(a, a + per_batch)
            w = backward[:, part] / 2 if weight is None else weight[:, part]
            _, end = self._times(forward[:, part], backward[:, part], messages[:, part], w)
            found.append(end[:-1].max(axis=0, initial=0.0))
        return np.concatenate(found) if found else np.empty(0)

    def _times(
        self, forward: Floats, backward: Floats, messages: Floats, weight: Floats
    ) -> tuple[Floats, Floats]:
        """Starts (N, K) and ends (N + 1, K) in wave order; the last end is "nothing before"."""
        table = np.stack([forward, backward, weight, backward - weight, np.zeros_like(forward)])
        lasts = table.reshape(-1, forward.shape[1])[self._cell]
        delay = np.concatenate([messages, np.zeros((1, forward.shape[1]))])[self._cut]
        start = np.empty_like(lasts)
        end = np.zeros((len(lasts) + 1, forward.shape[1]))
        lost = np.where(self._first, 0.0, self.overhead)[:, None]
        for rows, before, needs in self._waves:
            own = end[before]
            if self.overhead:
                own += lost[rows]
            arrived = end[needs]
            arrived += delay[rows]
            begin = np.maximum(own, arrived, out=start[rows])
            np.add(begin, lasts[rows], out=end[rows])
        return start, end
