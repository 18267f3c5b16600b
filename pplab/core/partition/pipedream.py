"""Read a PipeDream profile (``*.graph.txt`` of msr-fiddle/pipedream) as a chain of layers.

Each ``node`` line is an operation: id, description, forward and backward time in milliseconds, size
of its output in bytes (for several outputs a list), bytes of its parameters. Each indented line is
an edge. What is done to make a chain of it, honestly:

- Operations are put into the order of their ids as far as the edges allow (a topological order).
- Nodes called Input are left out: their "time" is that of loading the data (636 ms in alexnet).
- Where the graph branches, a cut of the chain cuts every edge that passes it. ``output_bytes``
  therefore adds up the outputs of all operations before the cut that one behind it still needs; a
  pipeline has to relay them from stage to stage. A part taken out of an output (``__getitem__`` in
  gnmt) counts beside the output it is part of: right after such a node the sum is too high.
- The files do not say what is kept for the backward pass. ``activation_bytes`` is the output of
  the operation, as in PipeDream's own memory estimate: in-place ReLUs are counted twice.
- ``parameters`` are ``parameter_bytes / 4``: the profiles were taken in float32.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pplab.core.profile import LayerProfile, Profile, ProfileError

_NODE = re.compile(
    r"(?P<id>node\d+) -- (?P<text>.*) -- forward_compute_time=(?P<forward>[^,]+), "
    r"backward_compute_time=(?P<backward>[^,]+), activation_size=(?P<output>\[[^\]]*\]|[^,]+), "
    r"parameter_size=(?P<parameters>\S+)"
)
_EDGE = re.compile(r"(node\d+) -- (node\d+)")


@dataclass(frozen=True)
class Node:
    """One operation of the graph: times in ms, sizes in bytes."""

    id: str
    text: str
    forward: float
    backward: float
    output: float
    parameters: float

    @property
    def number(self) -> int:
        """The number in its id, which is the order in which the operations were made."""
        return int(self.id.removeprefix("node"))

    @property
    def kind(self) -> str:
        """Name of the operation, without its arguments."""
        return self.text.split("(")[0].strip()


def read(text: str, *, name: str = "", keep_inputs: bool = False) -> Profile:
    """The profile in the text of a ``*.graph.txt``; times become seconds.

    Raises ProfileError with the line when it cannot be read, or when the edges make a circle.
    """
    nodes, edges = _parse(text)
    inputs = {node for node in nodes if nodes[node].kind.startswith("Input")}
    if keep_inputs:
        inputs = set()
    order = [node for node in _topological(nodes, edges) if node not in inputs]
    place = {node: i for i, node in enumerate(order)}
    last_use = {node: i for i, node in enumerate(order)}
    for a, b in edges:
        if a in place and b in place:
            last_use[a] = max(last_use[a], place[b])
    layers = []
    for i, node in enumerate(order):
        crossing = sum(nodes[n].output for n in order[: i + 1] if last_use[n] > i)
        layers.append(_layer(nodes[node], crossing if i < len(order) - 1 else nodes[node].output))
    return Profile(
        tuple(layers),
        source=f"PipeDream profile {name}".strip(),
        notes=tuple(_notes(nodes, edges, inputs, order, last_use)),
    )


def _layer(node: Node, crossing: float) -> LayerProfile:
    return LayerProfile(
        name=f"{node.id} {node.kind}",
        forward=node.forward / 1e3,
        backward=node.backward / 1e3,
        parameters=int(node.parameters) // 4,
        parameter_bytes=int(node.parameters),
        activation_bytes=int(node.output),
        output_bytes=int(crossing),
        kind=node.kind,
    )


def _parse(text: str) -> tuple[dict[str, Node], list[tuple[str, str]]]:
    nodes: dict[str, Node] = {}
    edges = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if line[0] in "\t ":
            edge = _EDGE.fullmatch(line.strip())
            if not edge or not {edge[1], edge[2]} <= nodes.keys():
                raise ProfileError(f"line {number} is not an edge between known nodes: {line!r}")
            edges.append((edge[1], edge[2]))
            continue
        match = _NODE.match(line)
        if not match:
            raise ProfileError(f"line {number} is not a node of a PipeDream graph: {line!r}")
        try:
            node = Node(
                match["id"],
                match["text"],
                float(match["forward"]),
                float(match["backward"]),
                _bytes(match["output"]),
                _bytes(match["parameters"]),
            )
        except ValueError as error:
            raise ProfileError(f"line {number}: {error}") from error
        nodes[node.id] = node
    return nodes, edges


def _bytes(text: str) -> float:
    return sum(float(part) for part in text.strip("[]").split(";"))


def _topological(nodes: dict[str, Node], edges: Iterable[tuple[str, str]]) -> list[str]:
    """Every node after all it needs; of several that could come next, the smallest number."""
    waits = dict.fromkeys(nodes, 0)
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for a, b in edges:
        waits[b] += 1
        after[a].append(b)
    ready = [(nodes[node].number, node) for node in nodes if not waits[node]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for other in after[node]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (nodes[other].number, other))
    if len(order) < len(nodes):
        stuck = min((nodes[n].number, n) for n in nodes if waits[n])[1]
        raise ProfileError(f"the edges make a circle around {stuck}: no order of execution exists")
    return order


def _notes(
    nodes: dict[str, Node],
    edges: list[tuple[str, str]],
    inputs: set[str],
    order: list[str],
    last_use: dict[str, int],
) -> Iterable[str]:
    if inputs:
        time = sum(nodes[node].forward for node in inputs)
        yield f"left out {len(inputs)} input nodes ({time:.4g} ms of loading data)"
    skips = sum(last_use[node] > i + 1 for i, node in enumerate(order))
    if skips:
        yield (
            f"the graph branches: {skips} of {len(order)} outputs are used later than by the next "
            "operation, so a cut may carry several tensors, and they are relayed between stages"
        )
    yield "activation_bytes is the size of the output, what backward keeps was not recorded"
