"""A model in pieces computes what it computes undivided; what is found out about it on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as fn

from pplab.runtime.profiling.chain import Chain, Layer, as_inputs
from pplab.runtime.profiling.measure import Times
from pplab.runtime.profiling.meters import ProfilerMeter
from pplab.runtime.profiling.passes import Passes, listed, unnamed
from pplab.runtime.status import Board

X = torch.arange(24.0).reshape(3, 8) / 24


def chain_of(*calls: Any, inputs: Any = X, loss: Any = None, labels: Any = None) -> Chain:
    layers = [
        Layer(i, type(c).__name__, c, c if isinstance(c, nn.Module) else None)
        for i, c in enumerate(calls)
    ]
    return Chain(layers, inputs, loss, labels)


def passes_of(chain: Chain) -> Passes:
    return Passes(chain, Board(1).slot(0), clock=lambda: 0.0)


class Pair(nn.Module):
    """(x, mask, ids) -> the same, x through a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = given
        return (self.linear(x) * rest[0][:, None], *rest)


def first(given: tuple[Tensor, ...]) -> Tensor:
    return given[0]


def frozen(layer: nn.Module) -> nn.Module:
    return layer.requires_grad_(False)


SHARED = nn.Linear(8, 8)
MODELS: dict[str, Callable[[], Chain]] = {
    "plain": lambda: chain_of(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)),
    "loss": lambda: chain_of(
        nn.Linear(8, 8), nn.Linear(8, 8), loss=fn.mse_loss, labels=torch.zeros(3, 8)
    ),
    "ids": lambda: chain_of(nn.Embedding(9, 8), nn.Linear(8, 3), inputs=torch.arange(6)),
    "in place": lambda: chain_of(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8)),
    "in place first": lambda: chain_of(nn.ReLU(inplace=True), nn.Linear(8, 8)),
    "tuple": lambda: chain_of(Pair(), Pair(), first, inputs=(X, torch.ones(3), torch.arange(3))),
    "shared": lambda: chain_of(SHARED, nn.Tanh(), SHARED),
    "frozen front": lambda: chain_of(frozen(nn.Linear(8, 8)), nn.Linear(8, 8)),
    "frozen middle": lambda: chain_of(nn.Linear(8, 8), frozen(nn.Linear(8, 8)), nn.Linear(8, 8)),
    "views": lambda: chain_of(nn.Linear(8, 8), nn.Flatten(0), lambda x: x.view(3, 8).t()),
}


def gradients(chain: Chain) -> list[Tensor | None]:
    found = [None if p.grad is None else p.grad.clone() for p in chain.modules().parameters()]
    for p in chain.modules().parameters():
        p.grad = None
    return found


@pytest.mark.parametrize("name", MODELS)
def test_in_pieces_the_gradients_are_those_of_the_undivided_model(name: str) -> None:
    chain = MODELS[name]()
    passes = passes_of(chain)
    passes.look()
    gradients(chain)
    passes.cut(unnamed)
    pieces = gradients(chain)
    passes.undivided()
    whole = gradients(chain)
    assert any(g is not None for g in whole)
    for one, other in zip(pieces, whole, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_the_sample_is_never_overwritten() -> None:
    x = torch.full((3, 8), -1.0)
    passes = passes_of(chain_of(nn.ReLU(inplace=True), nn.Linear(8, 8), inputs=x))
    passes.look()
    passes.cut(unnamed)
    passes.undivided()
    assert torch.equal(x, torch.full((3, 8), -1.0))


def test_bytes_handed_on_and_kept() -> None:
    chain = chain_of(nn.Linear(8, 16), nn.Tanh(), nn.Flatten(0), nn.Identity())
    found = passes_of(chain).look()
    assert found.outputs == [3 * 16 * 4] * 4
    # the linear layer keeps its input, tanh its output; a view and an identity nothing
    assert found.activations == [3 * 8 * 4, 3 * 16 * 4, 0, 0]
    assert found.notes == []


def test_a_storage_that_two_layers_keep_counts_once_and_buffers_never() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full((3, 8), 2.0))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale

    chain = chain_of(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), Scaled())
    # x of the first layer, tanh's output (the third layer keeps the same); the scale is a buffer
    assert passes_of(chain).look().activations == [96, 96, 0, 0]


def test_what_a_tuple_hands_on_counts_with_its_integers() -> None:
    found = passes_of(MODELS["tuple"]()).look()
    assert found.outputs == [3 * 8 * 4 + 3 * 4 + 3 * 8] * 2 + [3 * 8 * 4]


def test_remarks_name_the_layers() -> None:
    def unused(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2

    (note,) = passes_of(MODELS["in place"]()).look().notes
    assert note.startswith("layer 1 (ReLU) overwrites the input: a stage cannot begin with it")
    (note,) = passes_of(MODELS["frozen front"]()).look().notes
    assert note.startswith("no backward pass in layer 0 (Linear): nothing there or before is trai")
    (note,) = passes_of(chain_of(nn.Linear(8, 8), unused, first)).look().notes
    assert note.startswith("something that layer 1 (function) hands on never reaches the end")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda x: {"x": x}, r"layer 1 \(function\) hands on dict; between pipeline layers"),
        (lambda x: [x], "hands on list"),
        (lambda x: None, "hands on NoneType"),
        (lambda x: (x, 3), "hands on a tuple that holds int"),
        (lambda x: (), "hands on an empty tuple"),
    ],
)
def test_what_cannot_travel_is_refused_with_the_layer(made: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        passes_of(chain_of(nn.Linear(8, 8), made, nn.Linear(8, 8))).look()


def test_a_loss_that_is_no_number() -> None:
    chain = chain_of(nn.Linear(8, 8), loss=lambda y, t: y, labels=X)
    with pytest.raises(ValueError, match="the loss must be a single number"):
        passes_of(chain).look()


def test_the_last_layer_may_make_anything_for_its_loss() -> None:
    chain = chain_of(
        nn.Linear(8, 8), lambda x: {"y": x}, loss=lambda y, t: fn.mse_loss(y["y"], t), labels=X
    )
    passes = passes_of(chain)
    passes.look()
    passes.cut(unnamed)
    assert all(g is not None for g in gradients(chain))


def test_the_profiler_times_every_layer_and_counts_its_operations() -> None:
    chain = MODELS["plain"]()
    passes = passes_of(chain)
    passes.look()
    meter = ProfilerMeter()
    for _ in range(3):
        passes.cut(meter.range)
    repeats, counts = meter.close()
    assert len(repeats) == 3
    names = {f"{kind}{i}" for kind in "FB" for i in range(3)}
    assert all(set(one) == names and min(one.values()) > 0 for one in repeats)
    assert set(counts) == names
    assert counts["F0"] > counts["F1"] > 1  # a linear layer is more operations than a tanh


def times(pieces: list[list[float]], whole: float, counts: list[float]) -> Times:
    found = Times(len(counts))
    found.pieces["F"] = [np.array(row) for row in pieces]
    found.whole["F"] = [whole] * 3
    found.counts["F"] = np.array(counts)
    return found


def test_what_cutting_adds_is_taken_off_by_operation() -> None:
    found = times([[10.0, 20.0]] * 3, 24.0, [1, 2])
    assert found.extra("F") == pytest.approx(6)
    assert found.corrected("F") == pytest.approx(np.array([[8.0, 16.0]] * 3))
    found = times([[10.0, 20.0]] * 3, 24.0, [3, 0])
    assert found.corrected("F") == pytest.approx(np.array([[4.0, 20.0]] * 3))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-6, 1), st.integers(1, 500)), min_size=1, max_size=9),
    st.floats(0.05, 2),
)
def test_the_layers_add_up_to_the_undivided_model(layers: Any, share: float) -> None:
    row, counts = zip(*layers, strict=True)
    found = times([list(row)] * 3, share * sum(row), list(counts)).corrected("F")
    assert found.sum(axis=1) == pytest.approx(min(1.0, share) * sum(row))
    assert (found > 0).all()


def test_no_layer_gives_up_everything_and_the_sum_is_the_whole() -> None:
    found = times([[1.0, 1.0, 10.0]] * 3, 6.0, [10, 10, 10]).corrected("F")
    assert found.sum(axis=1) == pytest.approx(6)
    assert (found[0] > 0).all()


def test_an_undivided_model_that_was_slower_takes_nothing_off() -> None:
    found = times([[10.0, 20.0]] * 3, 31.0, [1, 2])
    assert found.extra("F") == 0
    assert found.corrected("F") == pytest.approx(np.array([[10.0, 20.0]] * 3))


def test_samples_in_the_forms_a_learner_writes() -> None:
    assert as_inputs([[1, 2], [3, 4]], "fp32").dtype == torch.int64
    assert as_inputs(np.ones((2, 3)), "bf16").dtype == torch.bfloat16
    assert as_inputs(lambda: torch.ones(2), "fp32").shape == (2,)
    one, two = as_inputs(([1.0], [2]), "fp32")
    assert (one.dtype, two.dtype) == (torch.float32, torch.int64)
    for wrong in ("abc", [[1], [1, 2]], None):
        with pytest.raises(TypeError, match="the sample is not numbers that make a tensor"):
            as_inputs(wrong, "fp32")


def test_names_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdef")) == "a, b, c and 3 more"
