"""Which rank does what, and which ranks talk to each other: pipeline x data x tensor parallel.

A rank has three coordinates: its pipeline stage, its replica (data parallel) and its part of every
layer (tensor parallel, which DeepSpeed calls "model"). The ranks are numbered with one axis running
fastest. DeepSpeed's own orders (``runtime/pipe/topology.py``; a test compares):

    PipeDataParallelTopology        pipe, data           neighbours in number are replicas
    PipeModelDataParallelTopology   pipe, data, model    neighbours in number share a layer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

from pplab.core.words import aligned

AXES = ("pipe", "data", "model")
#: Slowest axis first, as DeepSpeed numbers its ranks.
DEEPSPEED_ORDER = AXES
#: What two ranks are that differ by one along an axis.
NEIGHBOURS = {
    "pipe": "stages of one pipeline",
    "data": "replicas of one stage",
    "model": "parts of one stage",
}


class Coordinates(NamedTuple):
    """Where a rank is: its stage, its replica, its part of each layer."""

    pipe: int
    data: int
    model: int


class Traffic(NamedTuple):
    """What one rank sends along an axis in one step: number of messages, and bytes."""

    messages: int
    bytes: float


@dataclass(frozen=True)
class Topology:
    """A numbering of pipe x data x model ranks.

    order: the axes, the slowest first; ranks_per_node: ranks 0, 1, ... fill the nodes one after the
    other (None: all on one). Raises ValueError for sizes below 1, or an order that is none.
    """

    pipe: int
    data: int = 1
    model: int = 1
    order: tuple[str, ...] = DEEPSPEED_ORDER
    ranks_per_node: int | None = None

    def __post_init__(self) -> None:
        for axis in AXES:
            if getattr(self, axis) < 1:
                raise ValueError(f"{axis} must be at least 1, not {getattr(self, axis)}")
        if sorted(self.order) != sorted(AXES):
            raise ValueError(f"order names {', '.join(AXES)}, each once, not {self.order}")
        if self.ranks_per_node is not None and self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node must be at least 1, not {self.ranks_per_node}")

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.pipe * self.data * self.model

    @property
    def nodes(self) -> int:
        """How many nodes they fill."""
        return -(-self.world // self.ranks_per_node) if self.ranks_per_node else 1

    def coordinates(self, rank: int) -> Coordinates:
        """Where a rank is; raises ValueError for a number that is none."""
        if not 0 <= rank < self.world:
            raise ValueError(f"ranks are numbered 0 to {self.world - 1}, not {rank}")
        found = {}
        for axis in reversed(self.order):
            rank, found[axis] = divmod(rank, getattr(self, axis))
        return Coordinates(**found)

    def rank(self, pipe: int, data: int = 0, model: int = 0) -> int:
        """The number of the rank at these coordinates."""
        at, number = {"pipe": pipe, "data": data, "model": model}, 0
        for axis in self.order:
            if not 0 <= at[axis] < getattr(self, axis):
                raise ValueError(f"{axis} goes from 0 to {getattr(self, axis) - 1}, not {at[axis]}")
            number = number * getattr(self, axis) + at[axis]
        return number

    def node(self, rank: int) -> int:
        """The node that holds a rank."""
        return rank // self.ranks_per_node if self.ranks_per_node else 0

    def groups(self, axis: str) -> list[tuple[int, ...]]:
        """The ranks that differ along one axis only, and so talk along it: a tuple a group.

        pipe: the stages of one pipeline, which pass activations and gradients on; data: the copies
        of one stage, which add up gradients; model: the parts of one stage, which add up the
        output of every layer. Groups of one rank are groups too.
        """
        if axis not in AXES:
            raise ValueError(f"an axis is one of {', '.join(AXES)}, not {axis!r}")
        others = [name for name in AXES if name != axis]
        found = []
        for place in product(*(range(getattr(self, name)) for name in others)):
            fixed = dict(zip(others, place, strict=True))
            line = (self.rank(**{axis: i, **fixed}) for i in range(getattr(self, axis)))
            found.append(tuple(line))
        return sorted(found)

    def crossings(self, axis: str) -> int:
        """How many neighbours of an axis' groups lie on different nodes: its slow links."""
        return sum(self.node(a) != self.node(b) for a, b in self.links(axis))

    def links(self, axis: str) -> Iterator[tuple[int, int]]:
        """The pairs of neighbours in the groups of an axis (a ring, where there are three)."""
        for group in self.groups(axis):
            yield from pairwise(group)
            if axis != "pipe" and len(group) > 2:
                yield group[-1], group[0]

    def traffic(
        self,
        *,
        layers: int,
        parameters: float,
        boundary: float,
        micro_batches: int,
        gradient_bytes: int = 4,
    ) -> dict[str, Traffic]:
        """What a rank in the middle sends in a step, by axis.

        layers: of the whole model; parameters: of the whole model, a number; boundary: bytes of the
        tensor between two layers, of one micro-batch; gradient_bytes: of one gradient. Ring
        all-reduces send 2 (n - 1)/n of what they add up. Tensor parallel: four all-reduces a layer
        and micro-batch (Shoeybi et al. 2019, "f" and "g", twice forward and twice backward).
        """
        share = {axis: 2 * (size - 1) / size for axis in AXES if (size := getattr(self, axis))}
        sends = 2 * micro_batches if self.pipe > 1 else 0
        sums = 4 * micro_batches * layers // self.pipe if self.model > 1 else 0
        held = parameters / (self.pipe * self.model) * gradient_bytes
        return {
            "pipe": Traffic(sends, sends * boundary),
            "data": Traffic(int(self.data > 1), share["data"] * held),
            "model": Traffic(sums, sums * share["model"] * boundary),
        }

    # -- words ------------------------------------------------------------------------------------

    def sentence(self) -> str:
        """What a picture of it shows."""
        text = (
            f"{self.world} ranks = {self.pipe} stages x {self.data} replica"
            f"{'s' * (self.data != 1)} x {self.model} tensor part{'s' * (self.model != 1)}"
        )
        fastest = next((axis for axis in reversed(self.order) if getattr(self, axis) > 1), None)
        if fastest:
            text += f", numbered so that neighbours are {NEIGHBOURS[fastest]}"
        if self.nodes > 1:
            crossed = ", ".join(f"{axis} {self.crossings(axis)}" for axis in AXES)
            text += f"; {self.nodes} nodes of {self.ranks_per_node}, links between nodes: {crossed}"
        return text

    def table(self) -> list[list[str]]:
        """Head and rows as text: what each rank is, and whom it talks to."""
        rows = [["rank", "node", "stage", "replica", "part", "next", "replicas of it", "its parts"]]
        mates = {
            axis: {rank: group for group in self.groups(axis) for rank in group} for axis in AXES
        }
        for rank in range(self.world):
            at = self.coordinates(rank)
            after = self.rank(*at._replace(pipe=at.pipe + 1)) if at.pipe + 1 < self.pipe else "-"
            rows.append(
                [
                    *map(str, (rank, self.node(rank), at.pipe, at.data, at.model, after)),
                    _others(mates["data"][rank], rank),
                    _others(mates["model"][rank], rank),
                ]
            )
        return rows

    def __str__(self) -> str:
        return f"{self.sentence()}.\n{aligned(self.table(), left=())}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        from pplab.view.topology import topology_bundle  # a display is the one reason to look up

        return topology_bundle(self)


def _others(group: Sequence[int], rank: int) -> str:
    return ", ".join(str(other) for other in group if other != rank) or "-"
