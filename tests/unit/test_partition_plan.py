"""A partition: what it predicts, and how it says it."""

import json

import numpy as np
import pytest

from pplab.core.partition import Links, PartitionError, compare, devices, partition
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import gpipe

COSTS = [65, 50, 15, 55, 30, 75, 15, 15]


def test_the_example_of_the_article():
    equal, best = compare(COSTS, 3, ("uniform", "minimax"))
    assert equal.bounds == (0, 3, 6, 8) and equal.max_load == 160
    assert best.bounds == (0, 2, 5, 8) and best.max_load == 115
    assert equal.loads.tolist() == [130, 160, 30]
    assert best.imbalance == pytest.approx(115 / (320 / 3) - 1)


def test_predictions_are_the_simulators():
    for schedule in (gpipe, None):
        options = {"schedule": schedule} if schedule else {}
        plan = partition(COSTS, 3, "minimax", links=Links(latency=2.0), micro_batches=6, **options)
        timeline = plan.problem.schedule.simulate(plan.costs)
        assert plan.timeline == timeline
        assert plan.step == timeline.step_time
        assert plan.bubble == timeline.bubble
        assert plan.timeline.source == "simulated" and plan.timeline.unit == "units"


def test_moving_a_cut():
    plan = partition(COSTS, 3, "minimax")
    moved = plan.moved(1, 3)
    assert moved.bounds == (0, 3, 5, 8) and moved.method == "bounds" and moved.proof == ""
    assert moved.step > plan.step
    assert [layer.name for layer in moved.layers_of(1)] == ["layer 3", "layer 4"]
    with pytest.raises(PartitionError, match="empty"):
        plan.moved(1, 5)
    with pytest.raises(IndexError, match="1 to 2"):
        plan.moved(3, 5)


def test_a_summary_is_plain():
    summary = partition(COSTS, 3, "minimax").summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["bounds"] == [0, 2, 5, 8] and summary["max_load"] == 115


def test_the_gain_of_the_article_depends_on_the_micro_batches():
    """Claim 2.18: 160 -> 115 in the largest stage is not 160/115 in the step."""
    for micro_batches, gain in ((8, 0.18), (16, 0.28), (32, 0.33)):
        lopsided = partition([160, 110, 75], 3, [0, 1, 2, 3], micro_batches=micro_batches).step
        equal = partition([115] * 3, 3, [0, 1, 2, 3], micro_batches=micro_batches).step
        assert lopsided / equal - 1 == pytest.approx(gain, abs=0.005)


def test_sentences():
    text = str(partition(COSTS, 3, "minimax"))
    assert text.startswith("8 layers on 3 stages, minimax: cut at 2, 5; the slowest rank is 0")
    assert "115 units, 8% above the mean; 1F1B with 8 micro-batches: step" in text
    assert text.endswith("(the largest stage is the least possible)")
    layers = [LayerProfile(f"{i}", 0.001, 0.002, parameters=10**8) for i in range(4)]
    plan = partition(Profile(layers), 2, [0, 1, 4], devices=devices(2, memory=[2e9, 4e9]))
    assert not plan.fits and plan.overfull == (1,)
    assert "9 ms" in str(plan) and "rank 1 needs 4.8 GB and has 4 GB" in str(plan)
    assert "cut at no place" in str(partition([1, 2], 1))
    assert "Partition [0, 2]" in repr(partition([1, 2], 1))


def test_stages_may_come_from_schedule_or_devices():
    assert partition([1, 2, 3], schedule=gpipe(stages=2, micro_batches=4)).problem.ranks == 2
    assert partition([1, 2, 3], devices=devices(3)).problem.ranks == 3


def test_one_layer_a_stage_and_one_stage():
    assert partition([1, 2, 3], 3).bounds == (0, 1, 2, 3)
    plan = partition([1, 2, 3], 1, micro_batches=4)
    assert plan.bounds == (0, 3) and plan.step == 24 and plan.bubble == 0


def test_costs_of_nothing():
    plan = partition([0, 0, 0], 2)
    assert plan.step == 0 and plan.imbalance == 0 and plan.bubble == 0


def test_embedding_alone_does_not_help():
    """Claim 2.35: embedding of 1.8 layer-units in front of 24 equal layers on 4 stages."""
    costs = [1.8] + [1.0] * 24
    before = partition(costs, 4, [0, 7, 13, 19, 25], micro_batches=8)
    advice = partition(costs, 4, [0, 2, 10, 18, 25], micro_batches=8)
    best = partition(costs, 4, micro_batches=8)
    assert before.loads == pytest.approx([7.8, 6, 6, 6])
    assert advice.loads == pytest.approx([2.8, 8, 8, 7])
    assert before.step / advice.step - 1 == pytest.approx(-0.072, abs=0.001)
    assert before.step / best.step - 1 >= 0.030 - 5e-4
    assert np.all(best.loads <= 7.0 + 1e-9)
