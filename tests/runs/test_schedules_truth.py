"""Every synchronous schedule on real ranks computes what the plain single-process loop computes.

Chunks, wrap-around messages, hand-over inside a rank, split backward passes: whatever the order,
losses and parameters are those of ``pplab/runtime/plain.py`` to 1e-5 (in fact, bit for bit), and
the recorded timeline has the operations of the plan in its order.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest

import pplab
from pplab.core.layout import Layout
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import dualpipev, eager_1f1b, interleaved, zb_h1, zb_h2
from tests.unit.core_strategies import random_schedule

SMALL = {"layers": 6, "width": 32, "heads": 2, "context": 16}  # 8 layers
TOLERANCE = 1e-5  # relative, float32


@functools.cache
def reference(micro_batches: int, options: tuple[tuple[str, Any], ...] = (), **settings: Any):
    settings = {"steps": 2, **settings}
    return pplab.run(
        None, pplab.models.gpt(**SMALL, **dict(options)), engine="plain", stages=1,
        micro_batches=micro_batches, keep_parameters=True, quiet=True, keep=False, **settings,
    )  # fmt: skip


def pipeline(plan: pplab.Schedule, options: dict[str, Any] | None = None, **settings: Any):
    model = pplab.models.gpt(**SMALL, **(options or {}))
    settings = {"steps": 2, **settings}
    return pplab.run(plan, model, keep_parameters=True, quiet=True, keep=False, **settings)


def assert_same(run: pplab.Run, plain: pplab.Run, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(run.losses, plain.losses, rtol=tolerance)
    np.testing.assert_allclose(run.micro_losses, plain.micro_losses, rtol=tolerance)
    assert run.parameters.keys() == plain.parameters.keys()
    for name, value in plain.parameters.items():
        np.testing.assert_allclose(
            run.parameters[name], value, rtol=tolerance, atol=tolerance * 0.1, err_msg=name
        )


def assert_in_order(run: pplab.Run) -> None:
    """The recorded F, B and W of every step are those of the plan, in its order."""
    plan = run.job.schedule
    assert plan is not None and run.timeline.layout == plan.layout
    for step in run.timeline.steps:
        spans = run.timeline.only(step=step, kinds="FBW")
        for rank, ops in enumerate(plan.ops):
            wanted = [op for op in ops if op.kind != "U"]
            assert [span.op for span in spans if span.rank == rank] == wanted


def micro_batches(make: ScheduleMaker, stages: int) -> int:
    return 2 * stages if make in (dualpipev, interleaved) else 4


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "make", [interleaved, zb_h1, zb_h2, dualpipev, eager_1f1b], ids=lambda m: m.name
)
def test_losses_and_parameters_equal_the_plain_loop(
    make: ScheduleMaker, stages: int, zero: int, clean: str
) -> None:
    M = micro_batches(make, stages)
    run = pipeline(make(stages, M), zero=zero)
    assert_same(run, reference(M))
    assert_in_order(run)


@pytest.mark.parametrize("stages, chunks", [(2, 4), (2, 3), (1, 5)])
def test_more_than_two_chunks_a_rank(stages: int, chunks: int, clean: str) -> None:
    run = pipeline(interleaved(stages, 4, chunks=chunks))
    assert_same(run, reference(4))
    assert_in_order(run)
    assert len(run.bounds) == stages * chunks + 1


@pytest.mark.parametrize("seed", range(12))
def test_any_valid_schedule_equals_the_plain_loop(seed: int, clean: str) -> None:
    """Drawn operation by operation, in every layout, with some backward passes split."""
    pick = random.Random(seed)
    placement = ("loop", "v")[seed % 2]
    layout = Layout(1 + seed // 2 % 4, pick.randint(1, 2), placement)
    M = pick.randint(1, 5)
    plan = random_schedule(layout, M, seed)
    # SGD: gradients are added up in another order, and Adam would blow up the last bit of that
    settings: dict[str, Any] = {"optimizer": "SGD", "lr": 0.1}
    run = pipeline(plan, zero=pick.randint(0, 1), **settings)
    assert_same(run, reference(M, **settings))
    assert_in_order(run)


@pytest.mark.parametrize("make", [interleaved, zb_h1, dualpipev], ids=lambda m: m.name)
@pytest.mark.parametrize("option", ["tied", "positions"])
def test_tied_layers_and_tuples_between_slices(
    make: ScheduleMaker, option: str, clean: str
) -> None:
    # SGD: Adam divides by the size of the gradient and so blows up the last bit of a tied sum
    settings: dict[str, Any] = {"optimizer": "SGD", "lr": 0.1}
    run = pipeline(make(3, 6), {option: True}, **settings)
    assert_same(run, reference(6, ((option, True),), **settings))


@pytest.mark.parametrize("make", [interleaved, zb_h1, dualpipev], ids=lambda m: m.name)
def test_replicas_equal_one_pipeline_with_their_samples(make: ScheduleMaker, clean: str) -> None:
    run = pipeline(make(2, 4), replicas=2, optimizer="SGD", lr=0.1)
    plain = reference(8, optimizer="SGD", lr=0.1)
    np.testing.assert_allclose(run.losses, plain.losses, rtol=TOLERANCE)
    for name, value in plain.parameters.items():
        np.testing.assert_allclose(run.parameters[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("make", [zb_h1, dualpipev], ids=lambda m: m.name)
def test_in_bf16_a_split_backward_pass_is_the_whole_one(
    make: ScheduleMaker, zero: int, clean: str
) -> None:
    """DeepSpeed's bf16 optimizer adds up fp32 gradients after each whole backward pass; W's must
    get there too (facts.md: left alone they are lost without a word)."""
    split = make(2, 4)
    whole = pplab.Schedule.of(
        [[op for op in ops if op.kind != "W"] for ops in split.ops], 4,
        chunks=split.chunks, placement=split.layout.placement,
    )  # fmt: skip
    runs = [pipeline(plan, dtype="bf16", zero=zero) for plan in (split, whole)]
    assert runs[0].losses == runs[1].losses
    for name, value in runs[1].parameters.items():
        np.testing.assert_array_equal(runs[0].parameters[name], value)


def test_clipping_equals_the_plain_loop_under_zero_1(clean: str) -> None:
    settings: dict[str, Any] = {"gradient_clipping": 0.05, "optimizer": "SGD", "lr": 0.5}
    assert_same(pipeline(zb_h1(3, 6), zero=1, **settings), reference(6, **settings), 1e-4)


def test_recomputing_activations_works_with_chunks_but_not_with_w(clean: str) -> None:
    run = pipeline(interleaved(2, 4), activation_checkpoint_interval=1)
    assert_same(run, reference(4))
    with pytest.raises(ValueError, match="each half would have to compute the activations again"):
        pipeline(zb_h1(2, 4), activation_checkpoint_interval=1)


def test_explicit_bounds_cut_every_slice(clean: str) -> None:
    run = pipeline(interleaved(2, 4), bounds=(0, 1, 2, 5, 8))
    assert run.bounds == (0, 1, 2, 5, 8)
    assert_same(run, reference(4))
    with pytest.raises(ValueError, match="bounds are 5 rising layer numbers"):
        pipeline(interleaved(2, 4), bounds=(0, 4, 8))
    with pytest.raises(pplab.RunError, match="8 layers cannot fill 12 slices"):
        pipeline(interleaved(4, 4, chunks=3))


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_deepspeeds_own_dualpipev_is_recorded_and_runs_our_order(stages: int, clean: str) -> None:
    M = 2 * stages
    run = pplab.run(
        None, pplab.models.gpt(**SMALL), engine="dualpipev", stages=stages, micro_batches=M,
        keep_parameters=True, quiet=True, keep=False, steps=2,
    )  # fmt: skip
    np.testing.assert_allclose(run.losses, reference(M).losses, rtol=TOLERANCE)
    for name, value in reference(M).parameters.items():
        np.testing.assert_allclose(run.parameters[name], value, rtol=1e-5, atol=1e-6)
    ours = dualpipev(stages, M)
    assert run.timeline.layout == ours.layout and len(run.bounds) == 2 * stages + 1
    assert run.timeline.schedule == "DeepSpeed's DualPipeV"
    spans = run.timeline.only(step=1, kinds="FB")
    for rank, ops in enumerate(ours.ops):
        whole = [op for op in ops if op.kind in "FB"]  # it keeps W inside B
        assert [span.op for span in spans if span.rank == rank] == whole


def test_dualpipev_needs_two_micro_batches_a_rank() -> None:
    with pytest.raises(ValueError, match="at least 8, not 4"):
        pplab.run(None, engine="dualpipev", stages=4, micro_batches=4)
