"""Backward passes split into B and W: the same gradients as a whole one, for any module."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as fn

import pplab
from pplab.core.ops import Op
from pplab.core.schedules import dualpipev, one_f_one_b, zb_h1
from pplab.runtime.nets.gpt import Block
from pplab.runtime.split_backward import Graph, backward_inputs
from tests.measuring import measured

MS = 1e-3


class TwiceUsed(nn.Module):
    """One weight in three places, with other layers in between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shared, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.other(torch.tanh(self.shared(x))))
        return self.shared(x) * self.shared.weight.sum()


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


class Gated(nn.Module):
    """Parameters that meet each other before they meet the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.g, self.h = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.g * self.h) + self.h


class Unscored(nn.Module):
    """The tied output layer: scores from the embedding's own weights."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, x: Tensor) -> Tensor:
        return fn.linear(x, self.embedding.weight)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return 2 * x @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight = ctx.saved_tensors
        return 2 * grads[0] @ weight.T, 2 * x.flatten(0, -2).T @ grads[0].flatten(0, -2)


class Handwritten(nn.Module):
    """A learner's own autograd function, which computes both gradients at once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x: Tensor) -> Tensor:
        return _Doubled.apply(x, self.weight)


def tied() -> nn.Sequential:
    embedding = nn.Embedding(10, 16)
    return nn.Sequential(embedding, Block(16, 2), Unscored(embedding))


FLOATS: dict[str, Callable[[], nn.Sequential]] = {
    "linear": lambda: nn.Sequential(nn.Linear(16, 16)),
    "transformer": lambda: nn.Sequential(Block(16, 2), Block(16, 2)),
    "used twice": lambda: nn.Sequential(nn.Linear(16, 16), TwiceUsed(16), nn.Linear(16, 16)),
    "recurrent": lambda: nn.Sequential(Recurrent(16), Recurrent(16)),
    "convolution": lambda: nn.Sequential(nn.Conv1d(5, 5, 3), nn.BatchNorm1d(5), nn.Linear(14, 16)),
    "gated": lambda: nn.Sequential(Gated(16), nn.Linear(16, 16), Gated(16)),
    "handwritten": lambda: nn.Sequential(Handwritten(16), Handwritten(16)),
    "no weights": lambda: nn.Sequential(nn.Tanh(), nn.Softplus()),
}
INTEGERS: dict[str, Callable[[], nn.Sequential]] = {
    "embedding": lambda: nn.Sequential(nn.Embedding(10, 16)),
    "embedding and blocks": lambda: nn.Sequential(nn.Embedding(10, 16), Block(16, 2)),
    "tied": tied,
}
NETS = {**FLOATS, **INTEGERS}


class Kept:
    """Something an autograd graph holds; a weak reference tells whether the graph still exists."""


class _Probe(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Kept) -> Tensor:
        ctx.kept = kept
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


@pytest.fixture
def no_gc() -> Iterator[None]:
    """As in a rank: nothing may depend on the collector to be freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("hooked", [False, True], ids=["", "hooked"])
@pytest.mark.parametrize("name", NETS)
def test_both_halves_are_the_whole(name: str, hooked: bool, no_gc: None) -> None:
    torch.manual_seed(0)
    net = NETS[name]()
    whole = copy.deepcopy(net)
    ints = name in INTEGERS
    given = torch.randint(0, 10, (3, 5)) if ints else torch.randn(3, 5, 16)
    inputs = [given.clone().requires_grad_(not ints) for _ in range(2)]
    kept = Kept()
    alive = weakref.ref(kept)

    def run(layers: nn.Sequential, x: Tensor, kept: Kept) -> tuple[Tensor, Any]:
        x = x if ints else x.clone()
        first = None
        for layer in layers:
            x = layer(x)
            if hooked:  # a tensor hook acts once on a gradient, not once more in W
                x.register_hook(lambda grad: grad * 0.5)
            first = first or get_gradient_edge(x)
        return _Probe.apply(x, kept), first

    torch.manual_seed(1)
    y, _ = run(whole, inputs[0], kept)
    grad = torch.randn_like(y)
    y.backward(grad)
    y, first = run(net, inputs[1], kept)
    work = backward_inputs([y], [grad], [inputs[1]], [first] if ints else ())
    assert all(p.grad is None for p in net.parameters())
    if not ints:
        assert torch.equal(inputs[1].grad, inputs[0].grad)
    del y, first, kept
    work.run()
    for mine, theirs in zip(net.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    del work
    assert alive() is None  # W has freed what B kept


def test_w_adds_to_the_gradients_that_are_there() -> None:
    net, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    for _ in range(2):
        backward_inputs([y := net(x * 1)], [torch.ones_like(y)], [x]).run()
    expected = 2 * torch.ones(4, 2) @ x.detach()
    torch.testing.assert_close(net.weight.grad, expected)


def test_several_outputs_and_frozen_weights() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].weight.requires_grad_(False)
    whole = copy.deepcopy(net)
    given = torch.randn(2, 4)

    def both(layers: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        middle = layers[0](x * 1)
        return middle, layers[1](middle), layers[1].bias * 3  # the last one never meets the input

    a, b = (given.clone().requires_grad_() for _ in range(2))
    outputs = both(whole, a)
    torch.autograd.backward(outputs, [torch.ones_like(y) for y in outputs])
    outputs = both(net, b)
    backward_inputs(outputs, [torch.ones_like(y) for y in outputs], [b]).run()
    assert torch.equal(a.grad, b.grad)
    for mine, theirs in zip(net.parameters(), whole.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)


def test_no_kernel_runs_twice() -> None:
    """B and W together launch the matrix products of a whole backward pass, not one more."""
    net, x = nn.Sequential(Block(16, 2), Block(16, 2)), torch.randn(2, 5, 16, requires_grad=True)

    def products(run: Callable[[Tensor], Any]) -> int:
        y = net(x * 1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            run(y)
        return sum(e.count for e in profile.key_averages() if e.key in ("aten::mm", "aten::addmm"))

    whole = products(lambda y: y.backward(torch.ones_like(y)))
    halves = products(lambda y: backward_inputs([y], [torch.ones_like(y)], [x]).run())
    assert halves == whole > 0


def test_junctions_are_where_weights_join() -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), torch.randn(2, 4)
    x.requires_grad_()
    y = net(x)
    graph = Graph({get_gradient_edge(x).node}, [get_gradient_edge(y).node])
    assert [node.name() for node in graph.junctions] == ["AddmmBackward0", "AddmmBackward0"]
    assert graph.junctions[0] is y.grad_fn  # last layer first
    names = {id(p): name for name, p in net.named_parameters()}
    found = [sorted(names[key] for key in graph.leaves[node]) for node in graph.junctions]
    assert found == [["2.bias", "2.weight"], ["0.bias", "0.weight"]]


# -- in real runs ---------------------------------------------------------------------------------


@measured
def test_paced_layers_take_their_time_for_f_b_and_w(clean: str) -> None:
    model = pplab.models.paced(4 * MS, 9 * MS, weight=3 * MS)
    run = pplab.run(zb_h1(2, 4), model, quiet=True, keep=False, steps=4)
    work = run.timeline.only(kinds="FBW")
    lasts = work.end - work.start
    for kind, seconds in (("F", 4 * MS), ("B", 6 * MS), ("W", 3 * MS)):
        assert lasts[work.is_kind(kind)].min() >= seconds
        assert np.median(lasts[work.is_kind(kind)]) < seconds + 2 * MS
    np.testing.assert_allclose(run.costs.backward, 9 * MS, rtol=0.3)  # B + W
    np.testing.assert_allclose(run.costs.weight, 3 * MS, rtol=0.3)


@measured
def test_costs_of_a_run_without_w_leave_its_part_open(clean: str) -> None:
    model = pplab.models.paced(2 * MS, 4 * MS)
    run = pplab.run(one_f_one_b(2, 4), model, quiet=True, keep=False)
    assert run.costs.weight is None
    assert zb_h1(2, 4).simulate(run.costs).step_time < run.simulate().step_time


def test_several_paced_layers_in_one_w(clean: str) -> None:
    model = pplab.models.paced(MS, [4 * MS] * 4, weight=[MS, 3 * MS, MS, 3 * MS])
    run = pplab.run(zb_h1(2, 2), model, quiet=True, keep=False)
    work = run.timeline.only(kinds="W")
    assert (work.end - work.start).min() >= 4 * MS


def test_paced_times_are_checked() -> None:
    with pytest.raises(ValueError, match="cannot exceed"):
        pplab.models.paced(MS, 2 * MS, weight=3 * MS)
    with pytest.raises(ValueError, match="disagree about the number of layers"):
        pplab.models.paced(MS, [MS, MS], weight=[MS])
    with pytest.raises(ValueError, match="cannot be negative"):
        pplab.models.paced(MS, 2 * MS, weight=-MS)


def counting_layers() -> list[Any]:
    """Layers that print how many of their forward passes autograd holds, at every new high."""
    import torch
    from torch import nn

    class Held:
        alive = most = 0

        def __init__(self) -> None:
            Held.alive += 1
            if Held.alive > Held.most:
                Held.most = Held.alive
                print(f"holds {Held.most}", flush=True)

        def __del__(self) -> None:
            Held.alive -= 1

    class Hold(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.held = Held()
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0]

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.after(Hold.apply(self.before(x)))

    return [Counted() for _ in range(8)]


def vectors(index: int) -> Any:
    import torch

    return torch.ones(4, 8) * index, torch.ones(4, 8)


@pytest.mark.parametrize(
    "plan", [one_f_one_b(4, 8), zb_h1(4, 8), dualpipev(4, 8)], ids=lambda plan: plan.name
)
def test_ranks_hold_as_many_activations_as_the_plan_says(plan: pplab.Schedule, clean: str) -> None:
    """What autograd really holds on each rank, two layers a stage (or one a chunk), against
    activations in flight: from F to the end of B, or of W where the backward pass is split."""
    run = pplab.run(plan, pplab.models.own(counting_layers, data=vectors), quiet=True)
    layers = 8 // plan.layout.slices
    for rank, peak in enumerate(plan.simulate().measures.peak_in_flight()):
        lines = [x for x in run.logs[f"rank-{rank}"].splitlines() if x.startswith("holds")]
        assert lines[-1] == f"holds {layers * peak}"


def test_a_layer_that_fails_in_a_chunk_is_named_with_its_chunk(clean: str) -> None:
    def layers() -> list[Any]:
        from torch import nn

        class Bad(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.calls = nn.Linear(8, 8), 0

            def forward(self, x: Any) -> Any:
                self.calls += 1
                if self.calls == 3:
                    raise ValueError("the third one is rotten")
                return self.linear(x)

        return [nn.Linear(8, 8), nn.Linear(8, 8), Bad(), nn.Linear(8, 8)]

    with pytest.raises(pplab.RunError) as caught:
        pplab.run(dualpipev(2, 4), pplab.models.own(layers, data=vectors), quiet=True)
    first = str(caught.value).splitlines()[0]
    wanted = Op("F", 2, 1)
    assert first == f"rank 1 failed while running {wanted}: ValueError: the third one is rotten"


def test_a_float_that_never_reaches_the_loss_is_named(clean: str) -> None:
    def layers() -> list[Any]:
        from torch import nn

        class Pair(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(8, 8)

            def forward(self, x: Any) -> Any:
                return self.linear(x), self.linear(x)

        class First(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(8, 8)

            def forward(self, x: Any) -> Any:
                return self.linear(x[0])

        return [Pair(), First()]

    with pytest.raises(pplab.RunError, match="every floating-point tensor that is passed on must"):
        pplab.run(zb_h1(2, 2), pplab.models.own(layers, data=vectors), quiet=True)
