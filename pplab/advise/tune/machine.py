"""The machine a job is tuned for: its ranks, their memory, their nodes and links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from pplab.core.partition import Device, Links, devices
from pplab.core.topology import Topology

_UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def in_bytes(value: float | str | None) -> float:
    """Bytes of 16e9, "16GB" (decimal), "16GiB" (binary) or None (endless); ValueError otherwise."""
    if value is None:
        return inf
    if not isinstance(value, str):
        if not value > 0:
            raise ValueError(f"memory is positive (bytes, or a text such as '16GB'), not {value}")
        return float(value)
    found = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([KMGT]?)(i?)B?\s*", value, re.IGNORECASE)
    if not found or not float(found[1]) > 0:
        raise ValueError(f"memory is bytes or a text such as '16GB' or '500MiB', not {value!r}")
    prefix = found[2].upper()
    unit = 1024 ** "KMGT".find(prefix) * 1024 if found[3] and prefix else _UNITS[prefix]
    return float(found[1]) * unit


@dataclass(frozen=True)
class Machine:
    """Ranks in the order of their numbers (as DeepSpeed numbers them, see ``core.topology``).

    ranks: one Device each, with memory, speed and node
    links: what a message costs; None: not known (measured by the probes, or free)
    """

    ranks: tuple[Device, ...]
    links: Links | None = None

    @classmethod
    def of(
        cls,
        ranks: int | Sequence[Device],
        *,
        memory: float | str | None = None,
        links: Links | None = None,
        per_node: int | None = None,
    ) -> Machine:
        """From a number of equal ranks, or from ``pplab.devices(...)``.

        memory: bytes of each rank, for ranks that do not say (see ``in_bytes``).
        """
        cap = in_bytes(memory)
        if isinstance(ranks, int):
            if ranks < 1:
                raise ValueError(f"a machine has at least one rank, not {ranks}")
            own = devices(ranks, per_node=per_node)
        else:
            own = tuple(ranks)
            if not own:
                raise ValueError("a machine has at least one rank: the list of devices is empty")
            if per_node is not None:
                own = tuple(replace(d, node=i // per_node) for i, d in enumerate(own))
        own = tuple(replace(d, memory=min(d.memory, cap)) for d in own)
        return cls(own, links)

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def capped(self) -> bool:
        """Whether some rank's memory is limited."""
        return any(device.memory < inf for device in self.ranks)

    def pipeline(self, topology: Topology) -> tuple[Device, ...]:
        """One Device a stage: the pipeline whose messages cross most nodes, each stage as slow and
        as small as the slowest and smallest of its replicas and parts."""
        stages = []
        for stage in range(topology.pipe):
            mine = self.of_stage(topology, stage)
            speed, memory = min(d.speed for d in mine), min(d.memory for d in mine)
            stages.append(Device(speed, memory, mine[0].node, mine[0].name))
        lines = [[self.ranks[r].node for r in group] for group in topology.groups("pipe")]
        worst = max(lines, key=lambda nodes: sum(a != b for a, b in pairwise(nodes)))
        return tuple(replace(d, node=node) for d, node in zip(stages, worst, strict=True))

    def of_stage(self, topology: Topology, stage: int) -> list[Device]:
        """The devices of all replicas and parts of a stage."""
        world = range(topology.world)
        return [self.ranks[r] for r in world if topology.coordinates(r).pipe == stage]

    def reduction(self, topology: Topology, size: float) -> float:
        """Time of a ring all-reduce of `size` bytes among the replicas of a stage, on the slowest
        link of the ring: 2 (D - 1)/D of it, in 2 (D - 1) messages. 0 where links are not known."""
        many = topology.data
        if many == 1 or self.links is None:
            return 0.0
        rules = [self.links.rule(self.ranks[a], self.ranks[b]) for a, b in topology.links("data")]
        latency, per_byte = max(rule[0] for rule in rules), max(rule[1] for rule in rules)
        return 2 * (many - 1) * latency + 2 * (many - 1) / many * size * per_byte

    def sentence(self) -> str:
        """The machine in words."""
        text = f"{len(self)} rank{'s' * (len(self) > 1)}"
        caps = {device.memory for device in self.ranks}
        if self.capped:
            from pplab.core.memory import size

            names = " to ".join(size(cap) for cap in sorted({min(caps), max(caps)}) if cap < inf)
            text += f" with {names} each"
        speeds = {device.speed for device in self.ranks}
        if len(speeds) > 1:
            text += f", of speeds {', '.join(f'{d.speed:g}' for d in self.ranks)}"
        nodes = len({device.node for device in self.ranks})
        return text + (f", on {nodes} nodes" if nodes > 1 else "")
