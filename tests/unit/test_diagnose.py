"""The diagnosis: parts add up, planted faults are named, savings are those of removal."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pplab
from pplab.advise.diagnose.parts import MEANINGS
from pplab.advise.diagnose.recorded import network_of_timeline
from pplab.core.ops import CODE
from pplab.core.profile import LayerProfile, Profile
from pplab.core.timeline import Timeline
from pplab.view.diagnosis import picture
from tests.unit.diagnosis_networks import computing, diagnosed, network, planted, replicas_of

SCHEDULES = ("1f1b", "gpipe", "zb-h1", "interleaved", "eager-1f1b")


def names() -> list[str]:
    return [name for name in SCHEDULES if name in pplab.schedules.SCHEDULES]


@pytest.mark.parametrize("schedule", names())
def test_a_replay_of_a_simulated_step_is_that_step(schedule: str) -> None:
    net, _ = network(schedule=schedule, replicas=2, steps=3)
    np.testing.assert_allclose(net.replay(), net.end - 2 * net.row * net.recorded[0], rtol=1e-9)
    np.testing.assert_allclose(net.step_times(), net.recorded)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_parts_add_up_to_the_step_whatever_happened(data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, 5))
    M = data.draw(st.integers(1, 6))
    net, timeline = network(stages, M, replicas=data.draw(st.integers(1, 3)), steps=2)
    factor = data.draw(
        st.lists(st.floats(0.2, 5), min_size=len(net.work), max_size=len(net.work))
        if len(net.work) < 40
        else st.just(np.random.default_rng(data.draw(st.integers(0, 99))).uniform(0.2, 5,
                                                                              len(net.work)))
    )  # fmt: skip
    found = diagnosed(net, timeline, lambda n, w: w.__imul__(factor))
    assert [p.name for p in found.parts] == list(MEANINGS)
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.step)
    assert sum(p.share for p in found.parts) == pytest.approx(1)
    assert found["useful"].seconds > 0
    assert all(np.isfinite(p.seconds) for p in found.parts)
    savings = [c.saving for c in found.causes if not c.behind]
    assert savings == sorted(savings, reverse=True)
    json.dumps(found.as_json)


def test_a_balanced_step_has_only_its_shape() -> None:
    timeline = pplab.schedules.one_f_one_b(4, 8).simulate(forward=1, backward=2)
    found = pplab.diagnose(timeline)
    assert found.step == 33 and found["useful"].seconds == 24
    assert found["fill and drain"].seconds == 9
    assert found.causes == () and found.first is None
    assert "No cause" in found.sentence()
    assert found.ideal == 33


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 6), st.integers(4, 8), st.integers(1, 3), st.data())
def test_a_heavy_stage_is_named(stages: int, M: int, replicas: int, data: st.DataObject) -> None:
    net, timeline = network(stages, M, replicas=replicas)
    heavy = data.draw(st.integers(0, stages - 1))
    factor = data.draw(st.floats(1.5, 4))

    def fault(n, work) -> None:
        work[computing(n, piece=heavy)] *= factor

    found = diagnosed(net, timeline, fault)
    # removing it spreads the same work evenly
    even = planted(net, lambda n, w: w.__imul__(
        np.where(computing(n), (stages - 1 + factor) / stages, 1)))  # fmt: skip
    # (little: a heavy first stage hides behind the filling of a short pipeline)
    assume(found.step / even.recorded.mean() > 1.1)
    assert found.first is not None and found.first.name == "imbalance"
    assert found.first.where["stage"] == heavy
    assert found.first.where["ratio"] == pytest.approx(factor, rel=0.02)
    assert found.first.saving == pytest.approx(found.step - even.recorded.mean(), rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 5), st.integers(4, 8), st.integers(2, 4), st.data())
def test_a_slow_worker_is_named_beside_its_twins(
    stages: int, M: int, replicas: int, data: st.DataObject
) -> None:
    net, timeline = network(stages, M, replicas=replicas)
    rank = data.draw(st.integers(0, stages - 1))
    replica = data.draw(st.integers(0, replicas - 1))
    factor = data.draw(st.floats(1.5, 4))

    def fault(n, work) -> None:
        work[computing(n, rank=rank, replica=replica)] *= factor

    found = diagnosed(net, timeline, fault)
    assert found.first is not None and found.first.name == "slow worker"
    assert (found.first.where["rank"], found.first.where["replica"]) == (rank, replica)
    assert found.first.where["ratio"] == pytest.approx(factor, rel=0.02)
    assert found.first.saving == pytest.approx(found.step - net.recorded.mean(), rel=1e-6)
    assert found["imbalance"].share == pytest.approx(0, abs=1e-9)


def test_a_worker_that_is_slow_at_times_is_told_from_a_heavy_stage() -> None:
    net, timeline = network(4, 8, steps=4)

    def fault(n, work) -> None:
        work[computing(n, rank=1) & (n.micro_batch < 3)] *= 2.5

    found = diagnosed(net, timeline, fault)
    assert found.first is not None and found.first.name == "slow worker"
    assert found.first.where["share_of_time"] == pytest.approx(3 / 8)
    assert "at times" in found.first.what and "when it is slow" in found.first.evidence[0]
    assert found.first.saving == pytest.approx(found.step - net.recorded.mean(), rel=1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(3, 5), st.integers(0, 1000))
def test_micro_batches_of_unequal_length_are_named(stages: int, seed: int) -> None:
    net, timeline = network(stages, 8, replicas=2, steps=2)
    length = np.random.default_rng(seed).uniform(0.3, 1.7, (2, 2, 8))
    length[0, 0, :2] = 0.3, 1.7
    length /= length.mean()

    def fault(n, work) -> None:
        rows = computing(n)
        work[rows] *= length[n.row[rows], n.replica[rows], n.micro_batch[rows]]

    found = diagnosed(net, timeline, fault)
    assert found.first is not None and found.first.name == "sequence length"
    assert found.first.saving == pytest.approx(found.step - net.recorded.mean(), rel=1e-6)
    assert found["slow worker"].seconds == 0


@settings(deadline=None, max_examples=15)
@given(st.integers(3, 6), st.data())
def test_a_slow_link_is_named(stages: int, data: st.DataObject) -> None:
    net, timeline = network(stages, 8)
    cut = data.draw(st.integers(0, stages - 2))

    def fault(n, work) -> None:
        rows = n.is_role("FORWARD") & (n.piece == cut)
        rows |= n.is_role("BACKWARD") & (n.piece == cut + 1)
        work[rows] += 1.5

    found = diagnosed(net, timeline, fault)
    assert found.first is not None and found.first.name == "communication"
    assert found.first.where["link"] == (cut, cut + 1)
    assert found.first.saving == pytest.approx(found.step - net.recorded.mean(), rel=1e-6)


def test_messages_that_are_slow_everywhere_are_one_cause() -> None:
    net, timeline = network(4, 8, latency=1.0)
    found = diagnosed(net, timeline, lambda n, w: None)
    assert found.first is not None and "on all links" in found.first.what


def test_a_slow_loader_is_named() -> None:
    timeline = pplab.schedules.one_f_one_b(3, 6).simulate(forward=1, backward=2)
    # a load before every F of rank 0, as an engine records it, of no length
    first = timeline.is_kind("F") & (timeline.rank == 0)
    columns = {name: np.append(c[first], c) for name, c in timeline.columns().items()}
    columns["kind"][: first.sum()] = CODE["L"]
    columns["end"][: first.sum()] = columns["start"][: first.sum()]
    timeline = Timeline.of(columns, timeline.layout, unit=timeline.unit)
    net = network_of_timeline(timeline)

    def fault(n, work) -> None:
        work[n.is_role("L")] = 0.5

    found = diagnosed(net, timeline, fault)
    assert found.first is not None and found.first.name == "data loading"
    assert found.first.where == {"ranks": [0], "each": 0.5}
    assert found.first.saving == pytest.approx(found.step - net.recorded.mean())
    assert found["data loading"].seconds == pytest.approx(found.first.saving)


def test_bounds_turn_into_layers_to_move() -> None:
    timeline = pplab.schedules.one_f_one_b(4, 8).simulate(
        forward=[1, 1, 1, 2], backward=[2, 2, 2, 4]
    )
    found = pplab.diagnose(timeline, bounds=(0, 2, 4, 6, 10))
    assert found.first is not None
    assert "bounds=(0, 3, 6, 8, 10)" in found.first.advice
    moved = pplab.schedules.one_f_one_b(4, 8).simulate(
        forward=[1.5, 1.5, 1, 1], backward=[3, 3, 2, 2]
    )
    assert found.first.saving == pytest.approx(timeline.step_time - moved.step_time)


def test_a_profile_says_which_layer_of_a_stage_is_the_heavy_one() -> None:
    timeline = pplab.schedules.one_f_one_b(2, 4).simulate(forward=[2, 4], backward=[4, 8])
    layers = [LayerProfile(str(i), t, 2 * t) for i, t in enumerate((1, 1, 1, 3))]
    found = pplab.diagnose(timeline, bounds=(0, 2, 4), profile=Profile(tuple(layers)))
    assert found.first is not None and "bounds=(0, 3, 4)" in found.first.advice
    with pytest.raises(ValueError, match="3 layers, the run 4"):
        pplab.diagnose(timeline, bounds=(0, 2, 4), profile=Profile(tuple(layers[:3])))
    with pytest.raises(ValueError, match="needs bounds="):
        pplab.diagnose(timeline, profile=Profile(tuple(layers)))
    with pytest.raises(ValueError, match="rising layer numbers"):
        pplab.diagnose(timeline, bounds=(0, 4))


def test_steps_that_are_not_complete_are_left_out_and_said() -> None:
    whole = replicas_of(pplab.schedules.one_f_one_b(3, 4).simulate(forward=1, backward=2), 1, 2)
    cut = whole.where(~((whole.step == 1) & (whole.rank == 2) & (whole.micro_batch == 3)))
    found = pplab.diagnose(cut)
    assert found.counts["steps"] == 1
    assert found.notes == ("step 1 is left out: no F3 on rank 2 of replica 0",)
    with pytest.raises(ValueError, match="no step is complete: no F3 on rank 2"):
        pplab.diagnose(cut.only(step=1))
    with pytest.raises(ValueError, match="nothing to diagnose"):
        pplab.diagnose(whole.where(np.zeros(len(whole), dtype=bool)))
    with pytest.raises(ValueError, match="takes no time at all"):
        pplab.diagnose(pplab.schedules.one_f_one_b(2, 2).simulate(forward=0, backward=0))


def test_the_first_measured_step_warms_up_and_does_not_count() -> None:
    from dataclasses import replace

    whole = replicas_of(pplab.schedules.one_f_one_b(2, 3).simulate(forward=1, backward=2), 1, 3)
    assert pplab.diagnose(replace(whole, source="measured: paced")).counts["steps"] == 2
    assert pplab.diagnose(whole).counts["steps"] == 3


def test_clocks_that_differ_make_no_circle() -> None:
    timeline = pplab.schedules.one_f_one_b(2, 4).simulate(forward=1, backward=2)
    late = timeline.rank == 1
    shifted = Timeline.of(
        {**timeline.columns(), "start": timeline.start - 0.3 * late,
         "end": timeline.end - 0.3 * late},
        timeline.layout,
    )  # fmt: skip
    found = pplab.diagnose(shifted)
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.step)


def test_everything_is_said_in_words_and_drawn() -> None:
    net, timeline = network(4, 8, replicas=2)
    found = diagnosed(net, timeline, lambda n, w: w.__imul__(
        np.where(computing(n, rank=2, replica=1), 2.0, 1.0)))  # fmt: skip
    text = str(found)
    assert "rank 2 of replica 1 takes 2.0x its due" in text
    assert all(name in text for name in MEANINGS)
    assert "[measured]" not in text
    shown = found._repr_mimebundle_()
    assert shown["text/plain"] == text and "image/png" in shown
    words = {t.get_text() for t in picture(found).texts}
    assert {"slow worker", "useful work / step"} <= words
    assert any("Rank 2 of replica 1" in w for w in words)
    with pytest.raises(KeyError, match="fill and drain"):
        found["bubble"]


def test_the_picture_of_a_step_without_causes() -> None:
    found = pplab.diagnose(pplab.schedules.one_f_one_b(4, 8).simulate(forward=1, backward=2))
    assert any("No cause stands out" in t.get_text() for t in picture(found).texts)


def test_several_faults_at_once_are_all_named() -> None:
    net, timeline = network(4, 8, replicas=3, steps=3)
    rng = np.random.default_rng(5)
    length = rng.uniform(0.5, 1.5, (3, 3, 8))

    def fault(n, work) -> None:
        rows = computing(n)
        work[rows] *= length[n.row[rows], n.replica[rows], n.micro_batch[rows]]
        work[computing(n, piece=3)] *= 1.8
        work[computing(n, rank=1, replica=2)] *= 2.5
        work[n.is_role("FORWARD") & (n.piece == 1)] += 1
        work[n.is_role("BACKWARD") & (n.piece == 2)] += 1

    found = diagnosed(net, timeline, fault)
    named = {cause.name: cause for cause in found.causes}
    assert named.keys() >= {"imbalance", "slow worker", "sequence length", "communication"}
    assert found.first is named["slow worker"] and not found.first.behind
    assert named["imbalance"].where["stage"] == 3
    assert named["imbalance"].behind.startswith("slow worker")  # it hides there
    assert "hidden behind slow worker" in found.text()
    assert named["slow worker"].where["rank"] == 1
    assert named["slow worker"].where["ratio"] == pytest.approx(2.5, rel=0.02)
    assert named["communication"].where["link"] == (1, 2)
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.step)
    assert found["jitter"].share == pytest.approx(0, abs=0.01)
