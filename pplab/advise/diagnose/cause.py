"""One removable cause, and what every question about causes needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pplab.advise.diagnose.factors import Factors
from pplab.advise.diagnose.layers import Cut
from pplab.advise.diagnose.network import Floats, Network


@dataclass(frozen=True)
class Cause:
    """One removable cause.

    name: as in ``MEANINGS`` of ``parts``; saving: seconds a step would be shorter without it;
    share: that as a part of the step; what: the sentence that names it; evidence: numbers, a
    sentence each; advice: what to do; where: ranks, stages or links concerned, for programs;
    behind: what has to be removed first for this one to matter, "" when nothing has to;
    at_most: nobody can remove all of it, so that the saving is an upper bound.
    """

    name: str
    saving: float
    share: float
    what: str
    evidence: tuple[str, ...]
    advice: str
    where: dict[str, Any] = field(default_factory=dict)
    behind: str = ""
    at_most: bool = False
    #: Work and delay of all nodes with the cause removed.
    without: tuple[Floats, Floats] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Facts:
    """What every question about causes needs: the network, its factors, names, the length now."""

    network: Network
    found: Factors
    unit: str
    cut: Cut | None

    @property
    def now(self) -> float:
        """Mean length of the replayed steps."""
        return float(self.network.step_times().mean())

    def time(self, value: float) -> str:
        """A time in words."""
        if self.unit != "s":
            return f"{value:.3g} {self.unit}"
        return f"{value:.2f} s" if abs(value) >= 1 else f"{value * 1e3:.3g} ms"

    def rank_of(self, piece: int) -> int:
        """The rank that holds a slice."""
        return int(self.network.rank[self.network.piece == piece][0])

    def stage(self, piece: int) -> str:
        """A slice in words: the stage, or with several chunks a rank also the rank."""
        if self.network.layout_slices == self.network.ranks:
            return f"stage {piece}"
        return f"slice {piece} (on rank {self.rank_of(piece)})"


def cause_of(
    facts: Facts,
    name: str,
    without: Floats,
    what: str,
    evidence: list[str],
    advice: str,
    *,
    delay: Floats | None = None,
    saving: float | None = None,
    at_most: bool = False,
    **where: Any,
) -> Cause:
    """A cause that is removed when the nodes take `without` (and lose `delay`).

    `saving` is what that saves, where it is not simply the difference to the steps as they are.
    """
    if saving is None:
        saving = facts.now - float(facts.network.step_times(without, delay).mean())
    lost = facts.network.delay if delay is None else delay
    share = saving / facts.now
    told = tuple(evidence)
    return Cause(name, saving, share, what, told, advice, where, "", at_most, (without, lost))


def times(ratio: float) -> str:
    """A ratio in words: ``2.1x``, and ``1.08x`` where one digit would hide it."""
    return f"{ratio:.1f}x" if ratio >= 1.5 else f"{ratio:.2f}x"
