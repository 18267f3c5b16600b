"""What only a machine with CUDA GPUs can show. Run by ``make gpu-check``; else skipped."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import pplab
from pplab.core.ops import Op
from pplab.core.schedules import gpipe, one_f_one_b

SMALL = {"layers": 4, "width": 64, "heads": 4, "context": 32}


def gpus() -> int:
    """GPUs that torch sees, asked of a run on the CPU (this process does not import torch)."""
    about = pplab.run(
        one_f_one_b(1, 1), pplab.models.paced(1e-3, 1e-3), steps=1, quiet=True, keep=False,
        device="cpu",
    ).placement  # fmt: skip
    return about["cuda_devices"]


@pytest.fixture(scope="module")
def count() -> int:
    found = gpus() if pplab.hardware().gpus else 0
    if not found:
        pytest.skip("torch sees no CUDA GPU on this machine")
    return found


def run(plan: pplab.Schedule | None, layers: int = 4, **settings) -> pplab.Run:
    model = pplab.models.gpt(**{**SMALL, "layers": layers})
    return pplab.run(plan, model, quiet=True, keep=False, **settings)


@pytest.mark.gpu
@pytest.mark.parametrize("make", [gpipe, one_f_one_b], ids=lambda m: m.name)
@pytest.mark.parametrize("zero", [0, 1])
def test_one_gpu_and_several_ranks_are_staged_and_labelled(make, zero, count, clean) -> None:
    layers = max(4, count)  # with embedding and head enough for a stage more than there are GPUs
    done = run(make(count + 1, 4), layers, device="cuda", zero=zero, keep_parameters=True)
    assert done.placement["backend"] == "gloo" and done.placement["staged"]
    assert "staged through the CPU" in done.timeline.source
    plain = run(
        None, layers, engine="plain", stages=1, micro_batches=4, device="cuda",
        keep_parameters=True,
    )  # fmt: skip
    np.testing.assert_allclose(done.losses, plain.losses, rtol=1e-4)
    for name, value in plain.parameters.items():
        np.testing.assert_allclose(done.parameters[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_a_gpu_per_rank_uses_nccl(count: int, clean: str) -> None:
    stages = min(count, 4)
    done = run(one_f_one_b(stages, 8))
    assert done.placement == {**done.placement, "backend": "nccl", "staged": False}
    plain = run(None, engine="plain", stages=1, micro_batches=8, device="cuda")
    np.testing.assert_allclose(done.losses, plain.losses, rtol=1e-4)


@pytest.mark.gpu
def test_spans_come_from_cuda_events_in_the_order_of_the_plan(count: int, clean: str) -> None:
    plan = one_f_one_b(2, 6)
    done = run(plan, device="cuda", steps=4)
    for rank in range(2):
        spans = [s for s in done.timeline.only(step=2, kinds="FB") if s.rank == rank]
        assert [s.op for s in spans] == list(plan.ops[rank])
        assert all(a.end <= b.start + 1e-5 for a, b in pairwise(spans))
        assert all(s.end > s.start for s in spans)
    ends = {(s.rank, s.op): s.end for s in done.timeline.only(step=2, kinds="F")}
    starts = {(s.rank, s.op): s.start for s in done.timeline.only(step=2, kinds="F")}
    for m in range(6):  # 0.2 ms: the error of aligning two ranks' events
        assert ends[0, Op("F", m)] < starts[1, Op("F", m)] + 2e-4


@pytest.mark.gpu
def test_memory_peaks_per_rank_fall_along_the_pipeline(count: int, clean: str) -> None:
    done = run(one_f_one_b(2, 8), device="cuda")
    assert all(m["peak_allocated"] > m["parameters"] for m in done.memory)


@pytest.mark.gpu
def test_the_cpu_can_be_asked_for_on_a_machine_with_gpus(count: int, clean: str) -> None:
    done = run(one_f_one_b(2, 4), device="cpu")
    assert done.placement["device"] == "cpu" and done.placement["backend"] == "gloo"


@pytest.mark.gpu
def test_what_a_gpu_is_not_for_stays_on_the_cpu(count: int, clean: str) -> None:
    plan = one_f_one_b(count + 1, 4)
    paced = pplab.run(plan, pplab.models.paced(2e-3, 4e-3), quiet=True, keep=False)
    assert paced.placement["device"] == "cpu"
    shared = run(None, engine="zero", replicas=count + 1, zero=3, micro_batches=2)
    assert shared.placement["device"] == "cpu"


@pytest.mark.gpu
def test_paced_layers_wait_for_their_input_on_a_gpu_too(count: int, clean: str) -> None:
    model = pplab.models.paced(5e-3, 10e-3)
    done = pplab.run(one_f_one_b(2, 4), model, device="cuda", quiet=True, keep=False)
    for kind, seconds in (("F", 5e-3), ("B", 10e-3)):
        spans = done.timeline.typical.only(kinds=kind)
        assert len(spans) and all(seconds * 0.95 < s.end - s.start for s in spans)


@pytest.mark.gpu
def test_dualpipev_on_a_gpu(count: int, clean: str) -> None:
    plain = run(None, engine="plain", stages=1, micro_batches=4, device="cuda")
    folded = run(None, engine="dualpipev", stages=2, micro_batches=4, device="cuda")
    np.testing.assert_allclose(folded.losses, plain.losses, rtol=1e-4)


@pytest.mark.gpu
def test_stock_deepspeed_and_bf16_on_a_gpu(count: int, clean: str) -> None:
    stock = run(None, engine="deepspeed", stages=2, micro_batches=4, device="cuda")
    ours = run(one_f_one_b(2, 4), device="cuda")
    np.testing.assert_allclose(stock.losses, ours.losses, rtol=1e-4)
    half = run(one_f_one_b(2, 4), device="cuda", dtype="bf16")
    np.testing.assert_allclose(half.losses, ours.losses, rtol=0.05)


def test_asking_for_a_gpu_that_is_not_there_says_so(clean: str) -> None:
    if pplab.hardware().gpus:
        pytest.skip("this machine has a GPU")
    with pytest.raises(pplab.RunError, match="device='cuda' was asked for, but torch sees no"):
        run(one_f_one_b(2, 4), device="cuda")
