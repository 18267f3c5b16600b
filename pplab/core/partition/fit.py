"""When nothing fits: say so, and say which cap binds."""

from __future__ import annotations

from math import isfinite

import numpy as np

from pplab.core.partition.cuts import PartitionError
from pplab.core.partition.dynamic import least_worst, memory_needs
from pplab.core.partition.problem import Problem


class DoesNotFit(PartitionError):
    """No cut keeps the rules.

    `rank` is the one whose cap binds in the cut that overfills memory least, `need` and `cap` its
    bytes there, `bounds` that cut; None when memory is not the reason. `proven` is False when the
    search gave up without a proof (several chunks a rank, too many cuts to try).
    """

    def __init__(
        self,
        reason: str,
        sentence: str,
        *,
        rank: int | None = None,
        need: float = 0.0,
        cap: float = 0.0,
        bounds: tuple[int, ...] | None = None,
        proven: bool = True,
    ) -> None:
        super().__init__(reason, sentence)
        self.rank, self.need, self.cap = rank, need, cap
        self.bounds, self.proven = bounds, proven


def gigabytes(size: float) -> str:
    """Bytes in words: GB (10^9), MB or bytes."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def explain(
    problem: Problem, best: tuple[int, ...] | None = None, proven: bool = True
) -> DoesNotFit:
    """Why no cut keeps the rules. `best`: the cut that breaks them least, where it is known."""
    tied = _tied_apart(problem)
    if tied:
        return tied
    if best is None or problem.slices == problem.ranks:
        found = least_worst(memory_needs(problem), problem.slices, problem.layers)
        best = found[1] if found else best
    if best is None:
        raise ValueError("the rules can be kept")
    need = problem.memory(np.array([best]))[:, 0]
    rank = int(np.argmax(need / problem.caps))
    if need[rank] <= problem.caps[rank]:
        text = f"no cut was found that keeps tied layers on one rank and fits (nearest: {best})"
        return DoesNotFit("tied-apart", text, bounds=best, proven=proven)
    static = _static_of(problem, best, rank)
    device = problem.devices[rank]
    name = f"rank {rank}" + (f" ({device.name})" if device.name else "")
    head = "nothing fits" if proven else "no cut was found that fits (searched, not proven)"
    held = problem.in_flight[rank].sum(axis=1).max()
    text = (
        f"{head}: even the cut that overfills memory least, {list(best)}, needs "
        f"{gigabytes(need[rank])} on {name}, which has {gigabytes(device.memory)}: "
        f"{gigabytes(static)} of parameters, gradients and optimizer state, and "
        f"{gigabytes(need[rank] - static)} of activations ({held} in flight at its peak); "
        + _advice(static > device.memory)
    )
    return DoesNotFit(
        "memory",
        text,
        rank=rank,
        need=float(need[rank]),
        cap=float(device.memory),
        bounds=best,
        proven=proven,
    )


def _advice(static_binds: bool) -> str:
    if static_binds:
        return "its parameters alone exceed the cap: more stages, ZeRO-1 or offloading help"
    return "a smaller micro-batch, activation checkpointing or more stages help"


def _static_of(problem: Problem, bounds: tuple[int, ...], rank: int) -> float:
    activations = np.diff(problem.byte_sums[1][list(bounds)])
    mine = problem.schedule.layout.table()[rank]
    held = float((problem.in_flight[rank] @ activations[mine]).max())
    return float(problem.memory(np.array([bounds]))[rank, 0]) - held


def _tied_apart(problem: Problem) -> DoesNotFit | None:
    """With one slice a rank, tied layers kept together may leave too few places to cut."""
    places = int(problem.may_cut[1:-1].sum())
    if places >= problem.slices - 1:
        return None
    key, numbers = max(problem.profile.tied.items(), key=lambda item: item[1][-1] - item[1][0])
    names = [problem.profile.layers[i].name for i in numbers]
    text = (
        f"{' and '.join(names)} share weights ({key!r}); keeping them on one rank leaves "
        f"{places} places to cut, and {problem.slices} stages need {problem.slices - 1}. "
        "DeepSpeed keeps a copy on each stage instead and adds up the gradients (keep_tied=False); "
        "a schedule in a V has the first and the last layers on one rank anyway"
    )
    return DoesNotFit("tied-apart", text)


def check_single_layers(problem: Problem) -> None:
    """Raises DoesNotFit when one layer alone is too large for every device."""
    if not problem.capped:
        return
    worst = int(np.argmax(problem.static))
    cap = float(problem.caps.max())
    if isfinite(cap) and problem.static[worst] > cap:
        name = problem.profile.layers[worst].name
        text = (
            f"nothing fits: layer {name!r} alone needs {gigabytes(problem.static[worst])} for "
            f"parameters, gradients and optimizer state, and no device has more than "
            f"{gigabytes(cap)}: split it (tensor parallelism) or share its state (ZeRO-1)"
        )
        raise DoesNotFit("layer-too-large", text, need=float(problem.static[worst]), cap=cap)
