"""One micro-batch forward and backward through a chain of layers: in pieces, or at once.

In pieces, every boundary is what it is at a cut between two stages: the tensors arrive as leaves of
a graph of their own and leave a gradient behind. They need a gradient where the undivided model
would give them one, so nothing is computed backward that nobody asks for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pplab.runtime.activations import SavedBytes
from pplab.runtime.profiling.chain import Chain, Layer
from pplab.runtime.status import Slot


@dataclass
class Found:
    """What a first pass in pieces finds out, by layer (bytes), and sentences about it."""

    activations: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Saved(SavedBytes):
    """What autograd keeps; buffers of a module do not count, as they stay for good."""

    def __enter__(self) -> Saved:
        super().__enter__()
        self._weights |= {b.untyped_storage().data_ptr() for b in self.module.buffers()}
        return self


class Passes:
    """The ways through a chain. `status` is told what runs, so that a failure names its layer."""

    def __init__(self, chain: Chain, status: Slot, clock: Callable[[], float]) -> None:
        self.chain, self.status, self.clock = chain, status, clock
        self.ones: list[Tensor] = []
        #: Numbers of layers that hand on something that needs a gradient and gets none.
        self.unused: dict[int, None] = {}

    # -- in pieces --------------------------------------------------------------------------------

    def cut(self, named: Callable[[str], Any]) -> None:
        """Forward layer by layer, backward layer by layer, each inside ``named("F3")``."""
        arrived, left = [], []
        given = fresh(self.chain.inputs)
        for layer in self.chain.layers:
            given = self._arrive(layer, given)
            arrived.append(given)
            self.status.say(f"runs the forward pass of {layer}")
            entered = whole_copy(given) if layer.in_place else given
            with named(f"F{layer.number}"):
                made = self._forward(layer, entered)
            left.append(made)
            given = made
        for layer in reversed(self.chain.layers):
            starts, grads = self._starts(layer, left, arrived)
            left[layer.number] = None
            if not starts:
                continue
            self.status.say(f"runs the backward pass of {layer}")
            with named(f"B{layer.number}"):
                torch.autograd.backward(starts, grads)
            if layer.number + 1 < len(arrived):
                arrived[layer.number + 1] = None

    def _arrive(self, layer: Layer, made: Any) -> Any:
        """What a layer hands on, as the next one receives it."""
        if layer.number == 0:
            return made
        return on_each(made, lambda t: t.detach().requires_grad_(t.requires_grad))

    def _forward(self, layer: Layer, given: Any) -> Any:
        made = layer.call(given)
        if layer.number == len(self.chain.layers) - 1 and self.chain.loss is not None:
            made = self.chain.loss(made, self.chain.labels)
        return made

    def _starts(
        self, layer: Layer, left: list[Any], arrived: list[Any]
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Where a layer's backward pass starts, and with which gradients."""
        made = tensors(left[layer.number])
        if layer.number == len(left) - 1:
            starts = [t for t in made if t.requires_grad]
            return starts, self._first_grads(starts)
        grads = [t.grad for t in tensors(arrived[layer.number + 1])]
        if any(t.requires_grad and g is None for t, g in zip(made, grads, strict=True)):
            self.unused[layer.number] = None
        pairs = [(t, g) for t, g in zip(made, grads, strict=True) if g is not None]
        return [t for t, _ in pairs], [g for _, g in pairs]

    def _first_grads(self, starts: list[Tensor]) -> list[Tensor | None]:
        """None for a loss; without one, a gradient of ones, made once."""
        if self.chain.loss is not None:
            return [None] * len(starts)
        if len(self.ones) != len(starts):
            self.ones = [torch.ones_like(t) for t in starts]
        return list(self.ones)

    # -- at once ----------------------------------------------------------------------------------

    def undivided(self) -> tuple[float, float]:
        """Seconds of F and of B of all layers in one graph."""
        given = fresh(self.chain.inputs)
        begin = self.clock()
        for layer in self.chain.layers:
            self.status.say(f"runs the forward pass of {layer}, the model undivided")
            given = self._forward(layer, given)
        middle = self.clock()
        starts = [t for t in tensors(given) if t.requires_grad]
        grads = self._first_grads(starts)
        self.status.say("runs the backward pass of the undivided model")
        turn = self.clock()
        if starts:
            torch.autograd.backward(starts, grads)
        return middle - begin, self.clock() - turn

    # -- the first passes -------------------------------------------------------------------------

    def look(self) -> Found:
        """Passes that look closely: what each layer hands on and whether it overwrites its input,
        what autograd keeps, what gets a gradient."""
        found = Found()
        given, last = fresh(self.chain.inputs), len(self.chain.layers) - 1
        for layer in self.chain.layers:
            self.status.say(f"runs the forward pass of {layer}, for the first time")
            given = whole_copy(self._arrive(layer, given))
            before = [t._version for t in tensors(given)]
            made = layer.call(given)
            layer.in_place = [t._version for t in tensors(given)] != before
            if layer.number < last or self.chain.loss is None:
                check_handed_on(layer, made)
            found.outputs.append(sum(t.numel() * t.element_size() for t in tensors(made)))
            if layer.number == last and self.chain.loss is not None:
                self.status.say("runs the loss, for the first time")
                made = self.chain.loss(made, self.chain.labels)
                if not isinstance(made, Tensor) or made.numel() != 1:
                    raise ValueError("the loss must be a single number: a tensor with one element")
            given = made
        found.activations = self._activations()
        self.cut(unnamed)
        found.notes = self._remarks()
        return found

    def _activations(self) -> list[int]:
        """Bytes that autograd keeps of each layer; storage that two keep counts for the first."""
        count = Saved(self.chain.modules())
        kept = []
        given, graphs = fresh(self.chain.inputs), []
        for layer in self.chain.layers:
            self.status.say(f"runs the forward pass of {layer}, to count what it keeps")
            given = self._arrive(layer, given)
            entered = whole_copy(given) if layer.in_place else given
            before = count.saved.alive
            with count:
                given = self._forward(layer, entered)
            kept.append(count.saved.alive - before)
            graphs.append(given)  # alive, so that everything stays counted
        self._needs_grad = [any(t.requires_grad for t in tensors(made)) for made in graphs]
        return kept

    def _remarks(self) -> list[str]:
        notes = []
        in_place = [str(layer) for layer in self.chain.layers if layer.in_place and layer.number]
        if in_place:
            it = "it" if len(in_place) == 1 else "any of them"
            notes.append(
                f"{listed(in_place)} overwrite{'s' * (len(in_place) == 1)} the input: a stage "
                f"cannot begin with {it}, because what arrives there needs a gradient"
            )
        idle = [str(la) for la, needs in zip(self.chain.layers, self._needs_grad, strict=True)
                if not needs]  # fmt: skip
        if idle:
            notes.append(
                f"no backward pass in {listed(idle)}: nothing there or before is trained, and "
                "DeepSpeed wants something to train in every stage"
            )
        unused = [str(self.chain.layers[i]) for i in sorted(self.unused)]
        if unused:
            notes.append(
                f"something that {listed(unused)} hand{'s' * (len(unused) == 1)} on never reaches "
                "the end: a cut there would fail, as every float that travels must get a gradient"
            )
        return notes


def check_handed_on(layer: Layer, made: Any) -> None:
    """A pipeline layer hands on a tensor or a tuple of tensors; anything else is refused."""
    parts = made if isinstance(made, tuple) else (made,)
    wrong = [type(part).__name__ for part in parts if not isinstance(part, Tensor)]
    if wrong:
        kind = f"a tuple that holds {wrong[0]}" if isinstance(made, tuple) else wrong[0]
        raise TypeError(
            f"{layer} hands on {kind}; between pipeline layers travels a tensor, or a tuple of "
            "tensors"
        )
    if not parts:
        raise TypeError(f"{layer} hands on an empty tuple")


def listed(names: list[str]) -> str:
    """Names in a sentence; many are cut."""
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def tensors(value: Any) -> list[Tensor]:
    """The tensors of what a layer takes or makes, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for t in value if isinstance(t, Tensor)]
    return []


def on_each(value: Any, act: Callable[[Tensor], Tensor]) -> Any:
    """`act` on a tensor, or on each of a tuple."""
    return tuple(map(act, value)) if isinstance(value, tuple) else act(value)


def fresh(inputs: Any) -> Any:
    """A copy of the micro-batch: a layer may overwrite it."""
    return on_each(inputs, lambda t: t.detach().clone())


def whole_copy(given: Any) -> Any:
    """Copies that are no leaves, so that a layer may overwrite them."""
    return on_each(given, lambda t: t.clone())


def unnamed(_: str) -> Any:
    """For passes that nobody times."""
    return contextlib.nullcontext()
