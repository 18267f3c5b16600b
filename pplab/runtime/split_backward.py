"""A backward pass in two halves: B, the input gradient, and W, the weight gradients, later.

Zero-bubble schedules (Qi et al., arXiv 2401.10241) send the input gradient of a stage on at once
and compute its weight gradients when there is nothing better to do. How to split the backward pass
of a module one knows nothing about? Three ways were weighed:

- ``autograd.grad`` for the inputs, then ``backward`` for the weights: right, but the second pass
  walks through all layers again, so B + W costs half a backward pass more than B alone did before.
- layers with their own autograd functions that put the weight gradient off: no waste, but only for
  layers written that way; a learner's own module would not split.
- cutting the autograd graph where weights join it, as ``torch.distributed.pipelining`` does. This
  is what is done here; it works for any module, and nothing runs twice.

The graph of a stage is a *trunk*, every node on a way from its outputs to its inputs, with *sides*
that lead to parameters only. B runs the trunk and notes the gradients that arrive at every
*junction*, a trunk node with a side (a linear layer, a layer norm). autograd tells a node which of
its inputs need a gradient, so it computes nothing for its side yet. W starts again at the junctions
with the gradients noted, and asks for the parameters: each junction now computes its side alone.

Parameters used more than once join several junctions into one group, which runs as one pass. The
trunk between them is then walked a second time; its nodes are *clamped*: whatever arrives there is
replaced by what was noted, so nothing is counted twice.

The price is memory. Between B and W a micro-batch keeps all it kept before B but what lies behind
its last weight, and not only what its weight gradients need (the paper counts 32 of 34 + 5as/h
bytes a token): autograd frees what a node saved all at once or not at all. Everything is freed when
the ``WeightWork`` of W is dropped. A learner's own autograd function that computes both gradients
at once runs in B and again in W; the built-in ones do not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Grads = tuple[Tensor | None, ...]


class Phase:
    """Which part of a backward pass runs now: "whole", "input" (B) or "weight" (W).

    Read by layers whose time is set (``nets.paced``). `began`: when it did (``perf_counter``).
    """

    name = "whole"
    began = 0.0

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """The part that runs inside the ``with`` block."""
        self.name, self.began = name, time.perf_counter()
        try:
            yield
        finally:
            self.name = "whole"


PHASE = Phase()


@dataclass
class Start:
    """A node from which W starts, with the gradients that arrived there; `clamped`: in B too."""

    node: Node
    grads: Grads
    clamped: bool = True


@dataclass
class Group:
    """Starts whose sides share parameters, and the leaves (parameters) they lead to."""

    starts: list[Start] = field(default_factory=list)
    leaves: dict[int, Tensor] = field(default_factory=dict)


class WeightWork:
    """What is left of a backward pass after B: weight gradients that nobody waits for."""

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups

    def run(self) -> None:
        """Add the weight gradients to ``.grad``, as a whole backward pass would. Runs once."""
        with PHASE.named("weight"):
            for group in self._groups:
                _run(group)
        self._groups = []


def backward_inputs(
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor],
    inputs: Sequence[Tensor],
    first: Sequence[GradientEdge] = (),
) -> WeightWork:
    """B: add to ``inputs[i].grad`` and return what is left for W.

    outputs, grads: tensors of the stage and the gradients of the loss with respect to them (same
    shapes). inputs: leaves; those that require no gradient are passed over. first: for a stage
    without such inputs (integers come in), what its first layer puts out: the trunk ends there,
    and the whole backward pass of that layer is left to W.
    """
    asked = [t for t in inputs if t.requires_grad]
    ends = [get_gradient_edge(t) for t in asked]
    if not asked:
        ends = list(first)
    pairs = [(t, g) for t, g in zip(outputs, grads, strict=True) if t.requires_grad]
    roots = [get_gradient_edge(t) for t, _ in pairs]
    graph = Graph({end.node for end in ends}, [root.node for root in roots])
    found: dict[Node, Grads] = {}
    handles = [node.register_prehook(_note(found, node)) for node in graph.junctions]
    try:
        with PHASE.named("input"):
            on_trunk = [i for i, root in enumerate(roots) if graph.trunk[root.node]]
            if ends and on_trunk:
                results: Grads = torch.autograd.grad(
                    [pairs[i][0] for i in on_trunk],
                    ends,
                    [pairs[i][1] for i in on_trunk],
                    retain_graph=True,
                    allow_unused=True,
                )
            else:
                results = (None,) * len(ends)
    finally:
        for handle in handles:
            handle.remove()
    for tensor, grad in zip(asked, results, strict=False):
        if grad is not None:
            tensor.grad = grad if tensor.grad is None else tensor.grad + grad
    starts = [Start(node, found[node]) for node in graph.junctions if node in found]
    if not asked:
        starts += [
            Start(end.node, _at(end.output_nr, grad))
            for end, grad in zip(ends, results, strict=True)
            if grad is not None
        ]
    for root, (_, grad) in zip(roots, pairs, strict=True):
        if not graph.trunk[root.node]:
            starts.append(Start(root.node, _at(root.output_nr, grad), clamped=False))
    return WeightWork(_grouped(starts, graph))


class Graph:
    """The autograd graph behind some outputs, told apart into trunk and sides.

    trunk[node]: a way leads from it to one of `ends`. junctions: trunk nodes with a side, last
    layer first. The ends themselves belong to the trunk, what lies behind them to its sides.
    leaves[node]: the leaves (parameters) its sides lead to, by identity.
    """

    def __init__(self, ends: set[Node], roots: list[Node]) -> None:
        self.trunk: dict[Node, bool] = {}
        self.leaves: dict[Node, dict[int, Tensor]] = {}
        self.junctions: list[Node] = []
        trunk, leaves = self.trunk, self.leaves
        for node, children in _children_first([*roots, *ends]):
            trunk[node] = node in ends or any(trunk[child] for child in children)
            if not children:  # AccumulateGrad, which writes the gradient of a leaf, has one
                leaf = getattr(node, "variable", None)
                leaves[node] = {} if leaf is None else {id(leaf): leaf}
                continue
            sides = [leaves[child] for child in children if not trunk[child]]
            leaves[node] = sides[0] if len(sides) == 1 else _union(sides)
            if leaves[node] and trunk[node] and node not in ends:
                self.junctions.append(node)
        self.junctions.reverse()


def _union(parts: list[dict[int, Tensor]]) -> dict[int, Tensor]:
    return {key: leaf for part in parts for key, leaf in part.items()}


def _children_first(roots: list[Node]) -> Iterator[tuple[Node, list[Node]]]:
    """Every node reachable from `roots` and its children, each after all those it leads to."""
    seen: set[Node] = set()
    stack: list[tuple[Node, list[Node] | None]] = [(root, None) for root in reversed(roots)]
    while stack:
        node, children = stack.pop()
        if children is not None:
            yield node, children
        elif node not in seen:
            seen.add(node)
            children = [child for child, _ in node.next_functions if child is not None]
            stack.append((node, children))
            stack += [(child, None) for child in children if child not in seen]


def _grouped(starts: list[Start], graph: Graph) -> list[Group]:
    """Starts that share a leaf belong together; the others stand alone."""
    groups: list[Group] = []
    for start in starts:
        merged = Group([start], dict(graph.leaves[start.node]))
        apart = []
        for group in groups:
            if merged.leaves.keys().isdisjoint(group.leaves):
                apart.append(group)
            else:
                merged.starts = group.starts + merged.starts
                merged.leaves.update(group.leaves)
        groups = [*apart, merged]
    return groups


def _run(group: Group) -> None:
    """The weight gradients of one group, added to ``.grad`` of its leaves."""
    if not group.leaves:
        return
    edges, grads, handles = [], [], []
    for start in group.starts:
        if start.clamped:  # also keeps tensor hooks from acting a second time
            handles.append(start.node.register_prehook(_replace(start.grads)))
        for number, grad in enumerate(start.grads):
            if grad is not None:
                edges.append(GradientEdge(start.node, number))
                grads.append(grad)
    try:
        # retain_graph: a group that walks the trunk may pass junctions of groups still to come
        torch.autograd.backward(edges, grads, inputs=list(group.leaves.values()), retain_graph=True)
    finally:
        for handle in handles:
            handle.remove()


def _note(found: dict[Node, Grads], node: Node) -> Any:
    def hook(grads: Grads) -> None:
        found[node] = grads

    return hook


def _replace(grads: Grads) -> Any:
    return lambda arrived: (*grads, *arrived[len(grads) :])


def _at(number: int, grad: Tensor) -> Grads:
    return (*(None,) * number, grad)
