"""A pipeline run computes what a plain single-process PyTorch loop computes.

The plain loop is ``pplab/runtime/plain.py``: the layers in a row, the mean of the micro-batch
losses, one optimizer step. `gradient_clipping` is 0 (DeepSpeed's default became 1.0).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import pplab
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import gpipe, one_f_one_b

SMALL = {"layers": 4, "width": 32, "heads": 2, "context": 16}
TOLERANCE = 1e-5  # relative, float32


@functools.cache
def reference(options: tuple[tuple[str, Any], ...] = (), **settings: Any) -> pplab.Run:
    model = pplab.models.gpt(**SMALL, **dict(options))
    return pplab.run(
        None, model, engine="plain", stages=1, micro_batches=4, keep_parameters=True, quiet=True,
        keep=False, **settings,
    )  # fmt: skip


def assert_same(run: pplab.Run, plain: pplab.Run, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(run.losses, plain.losses, rtol=tolerance)
    assert run.parameters.keys() == plain.parameters.keys()
    for name, value in plain.parameters.items():
        np.testing.assert_allclose(
            run.parameters[name], value, rtol=tolerance, atol=tolerance * 0.1, err_msg=name
        )


def pipeline(plan: pplab.Schedule, options: dict[str, Any] | None = None, **settings: Any):
    model = pplab.models.gpt(**SMALL, **(options or {}))
    return pplab.run(plan, model, keep_parameters=True, quiet=True, keep=False, **settings)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("make", [gpipe, one_f_one_b], ids=lambda m: m.name)
def test_losses_and_parameters_equal_the_plain_loop(
    make: ScheduleMaker, stages: int, zero: int, clean: str
) -> None:
    assert_same(pipeline(make(stages, 4), zero=zero), reference())


def test_the_reference_learns_and_depends_on_the_seed() -> None:
    plain, other = reference(), reference(seed=1)
    assert plain.losses[-1] < plain.losses[0]
    assert plain.losses != other.losses


def test_stock_deepspeed_equals_the_plain_loop_too(clean: str) -> None:
    model = pplab.models.gpt(**SMALL)
    stock = pplab.run(
        None, model, engine="deepspeed", stages=2, micro_batches=4, keep_parameters=True,
        quiet=True, keep=False,
    )  # fmt: skip
    assert_same(stock, reference())


@pytest.mark.parametrize("option", ["tied", "positions"])
def test_tied_layers_and_tuples_between_stages(option: str, clean: str) -> None:
    # SGD: Adam divides by the size of the gradient and so blows up the last bit of a tied sum
    settings = {"optimizer": "SGD", "lr": 0.1}
    run = pipeline(one_f_one_b(3, 4), {option: True}, **settings)
    assert_same(run, reference(((option, True),), **settings))


def test_replicas_equal_one_pipeline_with_their_samples(clean: str) -> None:
    # two replicas take turns at the micro-batches, so 2 x 2 of them are the plain loop's 4
    run = pipeline(one_f_one_b(2, 2), replicas=2, optimizer="SGD", lr=0.1)
    assert_same(run, reference(optimizer="SGD", lr=0.1))


def test_recomputing_activations_changes_nothing(clean: str) -> None:
    run = pipeline(one_f_one_b(2, 4), activation_checkpoint_interval=1)
    assert_same(run, reference())


@pytest.mark.parametrize("zero", [0, 1])
def test_bf16_learns_like_fp32(zero: int, clean: str) -> None:
    run = pipeline(one_f_one_b(2, 4), dtype="bf16", zero=zero)
    np.testing.assert_allclose(run.losses, reference().losses, rtol=0.02)
    assert run.losses[-1] < run.losses[0]


def test_clipping_equals_the_plain_loop_under_zero_1(clean: str) -> None:
    settings = {"gradient_clipping": 0.05, "optimizer": "SGD", "lr": 0.5}
    run = pipeline(one_f_one_b(3, 4), zero=1, **settings)
    plain = reference(**settings)
    assert_same(run, plain, 1e-4)
    assert plain.losses != reference(optimizer="SGD", lr=0.5).losses  # it did clip


def test_a_wrong_schedule_order_would_be_seen() -> None:
    """The comparison can fail: another seed differs by far more than the tolerance."""
    with pytest.raises(AssertionError):
        assert_same(reference(seed=1), reference())
