"""Who waited for whom, and how long: for tooltips, arrows and the thin lines at a bar's foot.

All arrays have one entry per row of the timeline; the times are in its unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pplab.core.ops import CODE
from pplab.core.timeline import Timeline, useful


@dataclass(frozen=True, eq=False)
class Waits:
    """Producers, gaps and waits of a timeline of any number of steps and replicas."""

    timeline: Timeline

    @cached_property
    def producers(self) -> NDArray[np.int64]:
        """Row that produces the input of each row, -1 for none.

        That is F of the slice before for an F, B of the slice after for a B, of the same
        micro-batch, step and replica.
        """
        t, layout = self.timeline, self.timeline.layout
        found = np.full(len(t), -1)
        rows = np.flatnonzero(t.is_kind("FB") & (t.micro_batch >= 0) & (t.chunk < layout.chunks))
        if not len(rows):
            return found
        forward = t.kind[rows] == CODE["F"]
        piece = layout.table()[t.rank[rows], t.chunk[rows]]
        # One number per (step, replica, kind, micro-batch, slice), slices -1 and P*v left free.
        group = (t.step[rows].astype(np.int64) * (1 + t.replica.max()) + t.replica[rows]) * 2
        name = ((group + forward) * t.micro_batches + t.micro_batch[rows]) * (layout.slices + 2)
        names, wanted = name + piece + 1, name + piece + np.where(forward, 0, 2)
        order = np.argsort(names)
        place = np.minimum(np.searchsorted(names[order], wanted), len(rows) - 1)
        hit = names[order][place] == wanted
        found[rows[hit]] = rows[order][place[hit]]
        return found

    @cached_property
    def following(self) -> NDArray[np.int64]:
        """Useful row at or after each row on the same rank in the same step, -1 for none."""
        t = self.timeline
        work = np.flatnonzero(useful(t))
        following = np.append(work, -1)[np.searchsorted(work, np.arange(len(t)))]
        same = np.all(self._place[:, following] == self._place, axis=0)
        return np.where(same, following, -1)

    @property
    def _place(self) -> NDArray[Any]:
        t = self.timeline
        return np.stack([t.step, t.replica, t.rank])

    @cached_property
    def gaps(self) -> NDArray[np.float64]:
        """Idle time of the rank right before each useful row, 0 for other rows.

        It runs from the end of the useful row before it, or from the beginning of the step.
        """
        t = self.timeline
        gaps = np.zeros(len(t))
        work = np.flatnonzero(useful(t))
        if not len(work):
            return gaps
        place, start = self._place[:, work], t.start[work]
        steps, number = np.unique(place[0], return_inverse=True)
        begins = np.full(len(steps), np.inf)
        np.minimum.at(begins, number, start)
        first = np.append(True, np.any(place[:, 1:] != place[:, :-1], axis=0))
        free = np.where(first, begins[number], np.roll(t.end[work], 1))
        gaps[work] = np.maximum(start - free, 0.0)
        return gaps

    @cached_property
    def waits(self) -> NDArray[np.float64]:
        """Part of `gaps` spent waiting for a message of another rank.

        Recorded runs say so themselves (kind R). Elsewhere a gap counts when the message could not
        have been there when the rank became free: its producer ended, plus the shortest time any
        message took, later than that.
        """
        t, gaps = self.timeline, self.gaps
        waits = np.zeros(len(t))
        recorded = np.flatnonzero((t.kind == CODE["R"]) & (self.following >= 0))
        if len(recorded):
            np.add.at(waits, self.following[recorded], (t.end - t.start)[recorded])
            return np.minimum(waits, gaps)
        rows = np.flatnonzero(self.producers >= 0)
        rows = rows[t.rank[self.producers[rows]] != t.rank[rows]]
        if not len(rows):
            return waits
        ready = t.end[self.producers[rows]]
        message = max(0.0, float(np.min(t.start[rows] - ready)))
        late = ready + message > t.start[rows] - gaps[rows] + 1e-9 * float(np.ptp(t.end))
        waits[rows] = np.where(late, gaps[rows], 0.0)
        return waits
