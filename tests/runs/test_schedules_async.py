"""PipeDream and PipeDream-2BW for real: gradients of the right, older weights.

Two references, both in one process: ``pplab/runtime/stale.py``, which knows any schedule, and the
loop written out below, which knows only how old PipeDream's gradients are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pplab
from pplab.core.schedules import one_f_one_b, pipedream, pipedream_2bw, zb_h1
from pplab.core.schedules.weights import versions_held
from pplab.runtime.weight_versions import groups, last_uses
from tests.measuring import measured

SMALL = {"layers": 6, "width": 32, "heads": 2, "context": 16}  # 8 layers
GPT = pplab.models.gpt(**SMALL)
TOLERANCE = 1e-5

#: Updates in the middle, W's, chunks: nothing published, all valid.
OWN = {
    "W before U": pplab.Schedule.of(
        [
            "F0 F1 B0 F2 W0 U0 B1 B2 W1 U1 W2 U2",
            "F0 B0 W0 U0 F1 B1 F2 W1 B2 U1 W2 U2",
        ]
    ),
    "chunks": pplab.Schedule.of(
        ["F0 F0.1 B0.1 F1 B0 U0 F1.1 B1.1 F2 B1 U1 F2.1 B2.1 B2 U2"], chunks=2
    ),
    "U at different times": pplab.Schedule.of(
        ["F0 F1 F2 B0 U0 B1 B2 U", "F0 B0 F1 B1 U1 F2 B2 U2"]
    ),
}
PLANS = {
    **{f"PipeDream {P}": pipedream(P, 2 * P + 2) for P in (1, 2, 3, 4)},
    **{f"2BW {P}": pipedream_2bw(P, 3 * P + 1) for P in (1, 2, 4)},
    "2BW, larger groups": pipedream_2bw(3, 14, group=4),
    **OWN,
}


def stream(plan: pplab.Schedule, **settings: Any) -> pplab.Run:
    settings = {"keep_parameters": True, "quiet": True, "keep": False, "zero": 0, **settings}
    return pplab.run(plan, settings.pop("model", GPT), **settings)


def assert_same(run: pplab.Run, other: pplab.Run) -> None:
    np.testing.assert_allclose(run.micro_losses, other.micro_losses, rtol=TOLERANCE)
    np.testing.assert_allclose(run.losses, other.losses, rtol=TOLERANCE)
    assert run.parameters.keys() == other.parameters.keys()
    for name, value in other.parameters.items():
        np.testing.assert_allclose(
            run.parameters[name], value, rtol=TOLERANCE, atol=TOLERANCE * 0.1, err_msg=name
        )


@pytest.mark.parametrize("name", PLANS)
def test_equals_the_emulation_of_the_same_staleness(name: str, clean: str) -> None:
    plan = PLANS[name]
    settings: dict[str, Any] = {"optimizer": "SGD", "lr": 0.1, "steps": 2}
    run = stream(plan, **settings)
    assert_same(run, stream(plan, engine="plain", **settings))
    for rank, ops in enumerate(plan.ops):
        spans = run.timeline.only(step=1, kinds="FBWU")
        mine = [span.op for span in spans if span.rank == rank]
        assert [op.kind for op in mine] == [op.kind for op in ops]
        assert [op for op in mine if op.kind != "U"] == [op for op in ops if op.kind != "U"]
    # the memory of the versions, measured
    assert tuple(m["weight_versions_held"] for m in run.memory) == versions_held(plan)
    for memory in run.memory:
        assert memory["weight_versions"] == memory["weight_versions_held"] * memory["parameters"]


@pytest.mark.parametrize("name", ["PipeDream 4", "2BW 2"])
def test_equals_the_emulation_with_adam_too(name: str, clean: str) -> None:
    run = stream(PLANS[name])
    assert_same(run, stream(PLANS[name], engine="plain"))
    fresh = pplab.run(
        None, GPT, engine="plain", stages=1, micro_batches=PLANS[name].micro_batches, quiet=True,
        keep=False,
    )  # fmt: skip
    assert abs(run.losses[1] - fresh.losses[1]) > 1e-3 * fresh.losses[1]  # staleness does matter


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_pipedream_equals_a_loop_written_out_by_hand(stages: int, clean: str) -> None:
    """Stage s computes the gradient of micro-batch m on the weights after max(0, m - (P-1-s))
    updates of its own, and updates right after each; plain SGD, tanh layers, squared error."""
    import torch

    def layers() -> list[Any]:
        from torch import nn

        return [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)]

    def batch(index: int) -> Any:
        import torch

        generator = torch.Generator().manual_seed(index)
        x = torch.randn(5, 4, generator=generator)
        return x, x.flip(1)

    model, M, lr = pplab.models.own(layers, data=batch), 7, 0.5
    start = pplab.run(
        None, model, engine="plain", stages=1, micro_batches=1, steps=1, lr=0.0, optimizer="SGD",
        keep_parameters=True, quiet=True, keep=False,
    )  # fmt: skip
    run = stream(pipedream(stages, M), model=model, steps=1, lr=lr, optimizer="SGD")
    home = np.searchsorted(run.bounds, range(3), side="right") - 1
    history = [
        [(start.parameters[f"{i}.0.weight"], start.parameters[f"{i}.0.bias"])] for i in range(3)
    ]
    losses = []
    for m in range(M):
        x, target = batch(m)
        used = []
        for i in range(3):
            age = max(0, m - (stages - 1 - home[i]))
            weight, bias = (torch.tensor(value, requires_grad=True) for value in history[i][age])
            x = torch.tanh(x @ weight.T + bias)
            used += [weight, bias]
        loss = ((x - target) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        for i in range(3):
            newest = history[i][-1]
            grads = used[2 * i].grad, used[2 * i + 1].grad
            history[i].append(
                tuple(value - lr * grad.numpy() for value, grad in zip(newest, grads, strict=True))
            )
    np.testing.assert_allclose(run.micro_losses[0], losses, rtol=TOLERANCE)
    for i in range(3):
        for name, value in zip(("weight", "bias"), history[i][-1], strict=True):
            got = run.parameters[f"{i}.0.{name}"]
            np.testing.assert_allclose(got, value, rtol=TOLERANCE, atol=1e-6)


def test_pipedream_needs_p_versions_on_rank_0_and_2bw_two(clean: str) -> None:
    def versions(plan: pplab.Schedule) -> list[int]:
        return [memory["weight_versions_held"] for memory in stream(plan, steps=1).memory]

    assert versions(pipedream(4, 8)) == [4, 3, 2, 1]
    assert versions(pipedream_2bw(4, 12)) == [2, 2, 2, 1]
    assert "weight_versions" not in stream(one_f_one_b(4, 4), steps=1).memory[0]


def test_replicas_average_before_each_update(clean: str) -> None:
    """Two replicas take turns at the samples; one pipeline gets each pair as one micro-batch."""

    def layers() -> list[Any]:
        from torch import nn

        return [nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 2)]

    def single(index: int) -> Any:
        import torch

        generator = torch.Generator().manual_seed(index)
        x = torch.randn(5, 6, generator=generator)
        return x, x[:, :2]

    def pair(index: int) -> Any:
        import torch

        pairs = zip(single(2 * index), single(2 * index + 1), strict=True)
        return tuple(torch.cat(both) for both in pairs)

    settings: dict[str, Any] = {"optimizer": "SGD", "lr": 0.3}
    two = stream(
        pipedream(2, 5), model=pplab.models.own(layers, data=single), replicas=2, **settings
    )
    one = stream(pipedream(2, 5), model=pplab.models.own(layers, data=pair), **settings)
    np.testing.assert_allclose(two.losses, one.losses, rtol=TOLERANCE)
    for name, value in one.parameters.items():
        np.testing.assert_allclose(two.parameters[name], value, rtol=1e-4, atol=1e-6)


@measured
def test_no_flush_no_bubble_in_the_steady_state(clean: str) -> None:
    """24 micro-batches in one stream take less time than in three steps that flush."""
    model = pplab.models.paced(6e-3, 12e-3)
    settings: dict[str, Any] = {"quiet": True, "keep": False, "zero": 0}
    flushed = pplab.run(one_f_one_b(4, 8), model, steps=4, **settings)
    streamed = pplab.run(pipedream(4, 24), model, steps=2, **settings)
    assert streamed.step_time < 0.9 * 3 * flushed.step_time
    predicted = streamed.simulate()
    assert 0.8 < predicted.step_time / streamed.step_time < 1.2
    assert (np.asarray(streamed.costs.update) > 0).all()


def test_loss_curves_are_comparable(clean: str) -> None:
    """The same 96 micro-batches, in order, through a schedule that flushes and two that do not."""
    settings: dict[str, Any] = {"lr": 2e-3, "keep_parameters": False}
    curves = {
        "1F1B": stream(one_f_one_b(2, 4), steps=24, **settings),
        "PipeDream": stream(pipedream(2, 96), steps=1, **settings),
        "2BW": stream(pipedream_2bw(2, 96, group=4), steps=1, **settings),
    }
    for name, run in curves.items():
        losses = np.array(run.micro_losses).ravel()
        assert losses.shape == (96,)
        assert losses[-12:].mean() < losses[:12].mean() - 0.1, name
    first = [np.array(run.micro_losses).ravel()[0] for run in curves.values()]
    np.testing.assert_allclose(first, first[0], rtol=TOLERANCE)  # the same data, the same weights


@pytest.mark.parametrize(
    "settings, because",
    [
        ({"zero": 1}, "run it with zero=0"),
        ({"config": {"zero_optimization": {"stage": 1}}}, "run it with zero=0"),
        ({"dtype": "bf16"}, "run it with dtype='fp32'"),
        ({"gradient_clipping": 1.0}, "run it with gradient_clipping=0"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_way_out(
    settings: dict[str, Any], because: str
) -> None:
    with pytest.raises(ValueError, match=because) as caught:
        stream(pipedream(2, 4), **settings)
    assert "PipeDream updates the weights while micro-batches are in flight" in str(caught.value)


def test_tied_layers_on_two_ranks_are_refused_and_on_one_they_work(clean: str) -> None:
    tied = pplab.models.gpt(**SMALL, tied=True)
    with pytest.raises(pplab.RunError, match="'bytes' are on ranks 0, 1, which PipeDream updates"):
        stream(pipedream(2, 4), model=tied)
    settings: dict[str, Any] = {"model": tied, "optimizer": "SGD", "lr": 0.1}
    alone = pipedream(1, 4)
    assert_same(stream(alone, **settings), stream(alone, engine="plain", **settings))


def test_which_update_applies_which_micro_batch() -> None:
    assert groups(pipedream(2, 3).ops[0]) == {0: 0, 1: 1, 2: 2}
    assert groups(pipedream_2bw(2, 5).ops[0]) == {0: 1, 1: 1, 2: 3, 3: 3, 4: 4}
    assert groups(pplab.Schedule.of(["F0 F1 F2 B0 U0 B1 B2 U"]).ops[0]) == {0: 0, 1: 2, 2: 2}
    uses = last_uses(zb_h1(2, 2).ops[0])
    assert [str(op) for op in uses.values()] == ["W0", "W1"]
