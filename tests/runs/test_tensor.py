"""Pipeline x tensor parallel, for real: the same model, whatever the number of parts."""

from __future__ import annotations

import numpy as np
import pytest

import pplab
from pplab import models, schedules

MODEL = models.gpt(layers=4, width=64, heads=4)


def plain(micro_batches: int, **settings):
    return pplab.run(
        None, MODEL, engine="plain", stages=1, micro_batches=micro_batches, steps=2,
        keep_parameters=True, quiet=True, **settings,
    )  # fmt: skip


def close(one, other) -> None:
    np.testing.assert_allclose(other.losses, one.losses, rtol=1e-5)
    assert set(other.parameters) == set(one.parameters)
    for name, value in one.parameters.items():
        np.testing.assert_allclose(other.parameters[name], value, rtol=1e-4, atol=1e-4)


def test_the_sources_example_done_right(clean):
    """8 ranks, 4 stages x 2 tensor parts: what `--pipeline_parallel_size 4
    --model_parallel_size 2` (flags that do not exist) was meant to be."""
    plan = schedules.one_f_one_b(stages=4, micro_batches=4)
    run = pplab.run(plan, MODEL, tensor=2, steps=2, keep_parameters=True, quiet=True)
    close(plain(4), run)
    assert len(run.memory) == 8
    assert (run.timeline.stages, run.timeline.replicas) == (4, (0,))
    assert str(run.job.topology).startswith("8 ranks = 4 stages x 1 replica x 2 tensor parts")


@pytest.mark.parametrize("clipping", [0.0, 0.05])
def test_parts_stages_and_replicas_together(clean, clipping):
    """2 x 2 x 2 ranks. For the norm, DeepSpeed must count a sliced parameter once a part and any
    other once; SGD shows it (Adam would divide the factor out again). ZeRO-1: without it DeepSpeed
    clips by the norm of stage 0 alone, whatever the parts."""
    plan = schedules.gpipe(stages=2, micro_batches=2)
    settings = {"steps": 2, "keep_parameters": True, "quiet": True, "replicas": 2, "zero": 1}
    settings |= {"gradient_clipping": clipping, "optimizer": "SGD", "lr": 0.5}
    apart = pplab.run(plan, MODEL, **settings)
    shared = pplab.run(plan, MODEL, tensor=2, **settings)
    close(apart, shared)


def test_each_part_holds_about_half_and_talks_as_the_theory_says(clean):
    plan = schedules.one_f_one_b(stages=2, micro_batches=4)
    apart = pplab.run(plan, MODEL, steps=2, quiet=True)
    shared = pplab.run(plan, MODEL, steps=2, tensor=2, quiet=True)
    for stage, whole in enumerate(apart.memory):
        parts = shared.memory[2 * stage : 2 * stage + 2]
        assert parts[0]["parameters"] == parts[1]["parameters"]
        assert 0.5 < parts[0]["parameters"] / whole["parameters"] < 0.65
    boundary = 4 * 64 * 64 * 4  # micro-batch x context x width, float32
    told = shared.job.topology.traffic(
        layers=4, parameters=1, boundary=boundary, micro_batches=4
    )["model"]  # fmt: skip
    for memory in shared.memory:
        assert memory["tensor_sums"] == told.messages == 4 * 4 * 2
        assert memory["tensor_sum_bytes"] == told.messages * boundary  # before the ring's 2(n-1)/n


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        (models.paced(), {}, "only the layers of models.gpt"),
        (models.gpt(heads=3, width=48), {}, "cannot share 3 heads"),
        (MODEL, {"tensor": 0}, "tensor must be at least 1"),
    ],
)
def test_what_cannot_be_shared_is_refused(model, settings, says):
    plan = schedules.one_f_one_b(stages=2, micro_batches=4)
    with pytest.raises(ValueError, match=says):
        pplab.run(plan, model, **{"tensor": 2, **settings})
