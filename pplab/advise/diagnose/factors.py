"""Which times belong to the stage, which to the worker, and which to the micro-batch.

The time of an operation is taken apart as

    time = stage (kind and slice) x micro-batch (of one step and replica) x worker x the rest

Each factor is read off where only it can be at work: a slow *worker* is slower than the ranks that
hold the same slice in other replicas, or slower than itself at other times; a long *micro-batch* is
long on every slice; what remains for all replicas and times is the *stage*. References are lower
medians, so that one bad rank of two does not spoil them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pplab.advise.diagnose.network import ROLE, Floats, Ints, Network

#: Deviations below this are noise of a healthy machine, not a worker or a micro-batch.
MATTERS = 0.05
#: Quantile of the times of a slice that counts as healthy: more than half of them may be slow.
QUICK = 0.25


@dataclass(frozen=True, eq=False)
class Factors:
    """What the times of F, B and W are made of.

    stage: (3, slices), seconds of F, B, W of a slice in a healthy replica; 0 where there is no W.
    micro: (steps, replicas, micro_batches), how long a micro-batch is; mean 1, and 1 everywhere
    where they hardly differ. worker: (replicas, ranks), how many times its due a rank took; 1 for
    healthy ones. `slow` lists (replica number, rank) of slow workers, worst first. bursts: for
    them, share of their operations that were slow.
    """

    stage: Floats
    micro: Floats
    worker: Floats
    slow: tuple[tuple[int, int], ...]
    bursts: dict[tuple[int, int], float]
    #: Per node: indices into the tables above; -1 for nodes that compute nothing.
    place: tuple[Ints, Ints, Ints, Ints, Ints]

    @property
    def balanced(self) -> Floats:
        """Seconds of F, B and W of an average slice; shape (3,)."""
        return self.stage.mean(axis=1)

    @property
    def load(self) -> Floats:
        """Seconds of a micro-batch by slice, healthy; shape (slices,)."""
        return self.stage.sum(axis=0)

    def times(
        self,
        network: Network,
        *,
        imbalance: bool = True,
        sequences: bool = True,
        worker: bool = True,
        jitter: bool = True,
    ) -> Floats:
        """Work of every node when only some of the factors are at work; shape (N,).

        Without jitter the operations of healthy workers take what their factors say. With jitter
        and without one of the others, the recorded times are divided by that factor. A slow
        worker's recorded times count as worker, jitter included.
        """  # fmt: skip
        kind, step, replica, piece, m = self.place
        on = np.flatnonzero(kind >= 0)
        kind, step, replica, piece, m = (a[on] for a in (kind, step, replica, piece, m))
        stage = self.stage[kind, piece]
        even = self.balanced[kind]
        length = self.micro[step, replica, m] if sequences else np.ones(len(on))
        due = (stage if imbalance else even) * length
        is_slow = self._is_slow(replica, network.rank[on])
        recorded = network.work[on]
        if not sequences:
            recorded = recorded / self.micro[step, replica, m]
        if not imbalance:
            recorded = recorded * np.divide(even, stage, out=np.ones(len(on)), where=stage > 0)
        mine = np.where(is_slow, worker, jitter).astype(bool)
        work = network.work.copy()
        work[on] = np.where(mine, recorded, due)
        return work

    def _is_slow(self, replica: Ints, rank: Ints) -> np.ndarray:
        table = np.zeros(self.worker.shape, dtype=bool)
        for place, number in self.slow:
            table[place, number] = True
        return table[replica, rank]


def lower_median(values: Floats, axis: int) -> Floats:
    """The middle value, of two the smaller one, along an axis; NaN counts as missing."""
    ordered = np.sort(values, axis=axis)  # NaN goes last
    count = np.sum(~np.isnan(values), axis=axis, keepdims=True)
    at = np.maximum(count - 1, 0) // 2
    return np.take_along_axis(ordered, at, axis=axis).squeeze(axis)


def factors(network: Network) -> Factors:
    """Take the times of F, B and W apart."""
    computes = network.is_role("F", "B", "W")
    kind = np.where(computes, network.role, -1)
    assert (ROLE["F"], ROLE["B"], ROLE["W"]) == (0, 1, 2)
    step, replica = network.row, np.searchsorted(network.replicas, network.replica)
    piece, m = network.piece, network.micro_batch
    shape = (
        3, len(network.steps), len(network.replicas), network.layout_slices,
        int(m[computes].max()) + 1,
    )  # fmt: skip
    table = np.full(shape, np.nan)
    on = np.flatnonzero(computes)
    table[kind[on], step[on], replica[on], piece[on], m[on]] = network.work[on]
    # a backward pass that was not split took all its time in B
    table[ROLE["W"]] = np.where(np.isnan(table[ROLE["W"]]), table[ROLE["B"]] * 0, table[ROLE["W"]])
    rank_of = np.zeros(network.layout_slices, dtype=np.int64)
    rank_of[piece[on]] = network.rank[on]

    with np.errstate(invalid="ignore", divide="ignore"):
        whole = table.sum(axis=0)  # (steps, replicas, slices, M)
        # What a slice takes when nothing is wrong, up to a factor that all slices share: low among
        # its own times (it may be slow at times) and, of its replicas, the lower middle one
        relative = whole / _healthy(whole)
        micro = _micro_batches(relative)
        rest = relative / micro[:, :, None, :]  # what neither slice nor micro-batch explains
        rest /= _healthy(rest)  # replicas had other micro-batches, which is out of the way now
        worker, bursts = _workers(rest, rank_of, network.ranks)
        # Now that the slow workers are known: means over the healthy ones
        due = table / micro[None, :, :, None, :]
        sick = np.asarray(worker[:, rank_of] > 1)  # (replicas, slices)
        alone: np.ndarray = np.all(sick, axis=0)
        well = np.where((sick & ~alone)[None, None, :, :, None], np.nan, due)
        # a slow worker without a healthy twin is compared with itself at its better times
        fine = np.asarray(rest <= 1 + MATTERS)
        well = np.where(alone[None, None, None, :, None] & ~fine[None], np.nan, well)
        stage = np.nanmean(np.moveaxis(well, 3, 1).reshape(3, shape[3], -1), axis=-1)
    order = np.argsort(-worker, axis=None)
    slow = [
        (int(i), int(j)) for i, j in zip(*np.unravel_index(order, worker.shape), strict=True)
        if worker[i, j] > 1
    ]  # fmt: skip
    # the scale of the micro-batches goes to the stages, so that their mean is 1
    scale = float(np.mean(micro))
    return Factors(
        stage=stage * scale,
        micro=micro / scale,
        worker=worker,
        slow=tuple(slow),
        bursts={place: bursts[place] for place in slow},
        place=(kind, step, replica, piece, m),
    )


def _healthy(values: Floats) -> Floats:
    """A healthy value of each slice; (1, 1, slices, 1) of (steps, replicas, slices, M)."""
    _, replicas, slices, _ = values.shape
    flat = np.moveaxis(values, 0, 2).reshape(replicas, slices, -1)
    return lower_median(np.nanquantile(flat, QUICK, axis=-1), axis=0)[None, None, :, None]


def _micro_batches(relative: Floats) -> Floats:
    """How long each micro-batch is, from what all slices say; (steps, replicas, M).

    All 1 when they hardly differ, or when there is but one slice to ask and so no witness.
    """
    steps, replicas, slices, M = relative.shape
    said = lower_median(np.swapaxes(relative, 2, 3), axis=3)  # (steps, replicas, M)
    spread = np.std(said) / np.mean(said)
    if slices < 2 or not spread > MATTERS:
        return np.ones((steps, replicas, M))
    return said


def _workers(
    rest: Floats, rank_of: Ints, ranks: int
) -> tuple[Floats, dict[tuple[int, int], float]]:
    """How many times its due each rank took, 1 for the healthy; and how much of the time."""
    _, replicas, _, _ = rest.shape
    mean, often = np.ones((replicas, ranks)), {}
    for replica in range(replicas):
        for rank in range(ranks):
            mine = rest[:, replica, rank_of == rank]
            mean[replica, rank] = np.nanmean(mine)
            often[replica, rank] = float(np.nanmean(mine > 1 + 2 * MATTERS))
    usual = float(np.median(mean))
    # of many ranks that all jitter, only one that stands out is a slow worker
    slow = (mean > usual * (1 + MATTERS)) & (mean > 1 + MATTERS)
    return np.where(slow, mean, 1.0), often
