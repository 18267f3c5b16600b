"""Cuts on real ranks: what is asked for is run, what is predicted is measured, and a training goes
on after a new cut as if it had never been stopped.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pplab
from pplab.core.partition import devices, partition
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import dualpipev, gpipe, interleaved, one_f_one_b, pipedream
from pplab.runtime.rebalance import Rebalanced
from tests.measuring import measured
from tests.runs.test_truth import SMALL, assert_same

GPT = pplab.models.gpt(**SMALL)  # 6 layers
TIED = pplab.models.gpt(**SMALL, tied=True)  # 7 layers, the first and the last share weights
QUIET: dict[str, Any] = {"quiet": True, "keep_parameters": True}


def start(plan: pplab.Schedule | None, model: Any = GPT, **settings: Any) -> pplab.Run:
    return pplab.run(plan, model, checkpoint=True, **QUIET, **settings)


def recut(run: pplab.Run, bounds: list[int], **settings: Any) -> Rebalanced:
    """Rebalance to a cut of the test's choice, without timing the layers first."""
    layers = [LayerProfile(f"layer {i}", 1e-3, 2e-3) for i in range(run.bounds[-1])]
    return pplab.rebalance(run, bounds, profile=Profile(tuple(layers)), quiet=True, **settings)


@functools.cache
def loop(steps: int = 6, **settings: Any) -> pplab.Run:
    """The plain loop, uninterrupted: one process, no pipeline, no checkpoint."""
    return pplab.run(
        None, GPT, engine="plain", stages=1, micro_batches=4, steps=steps, keep=False, **QUIET,
        **settings,
    )  # fmt: skip


def assert_goes_on(
    before: pplab.Run, after: pplab.Run, whole: pplab.Run, tolerance: float = 1e-5
) -> None:
    """Two runs are one training: `whole`, which was never stopped."""
    assert after.all_losses == [*before.losses, *after.losses]
    assert after.timeline.steps == tuple(range(len(before.losses), len(whole.losses)))
    assert_same(replace(after, losses=after.all_losses), whole, tolerance)


# -- a training goes on with another cut ----------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("make", [gpipe, one_f_one_b], ids=lambda m: m.name)
def test_a_new_cut_in_the_middle_changes_nothing(
    make: ScheduleMaker, zero: int, clean: str
) -> None:
    first = start(make(3, 4), zero=zero)
    again = recut(first, [0, 1, 4, 6])
    assert first.bounds == (0, 2, 3, 6) and again.after.bounds == (0, 1, 4, 6)
    assert again.moved == [(1, 0, 1), (3, 2, 1)]
    assert_goes_on(first, again.after, loop())
    forgetful = [*loop(3).losses, *loop(3).losses]  # what a run that started anew would show
    assert not np.allclose(again.losses, forgetful, rtol=1e-3)


@pytest.mark.parametrize("zero", [0, 1])
def test_tied_layers_keep_their_weights_and_say_where_they_are(zero: int, clean: str) -> None:
    whole = pplab.run(one_f_one_b(3, 4), TIED, steps=6, zero=zero, keep=False, **QUIET)
    first = start(one_f_one_b(3, 4), TIED, zero=zero, partition=[0, 2, 4, 7])
    again = recut(first, [0, 3, 5, 7])
    assert_goes_on(first, again.after, whole)
    assert np.array_equal(again.after.parameters["0.weight"], again.after.parameters["6.weight"])
    assert "layers 0 and 6 share their weights" in " ".join(first.warnings)
    assert "a copy on each" in " ".join(first.warnings)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_ranks_replicas_schedule_and_zero_stage_may_change_too(
    before: int, after: int, clean: str
) -> None:
    """2 ranks and 4 micro-batches become 2 replicas of 3 ranks with 2 micro-batches each."""
    # momentum: a state that must not be lost; Adam's would blow up the last bit of other sums
    momentum = {"optimizer": {"params": {"momentum": 0.9}}}
    settings: dict[str, Any] = {"optimizer": "SGD", "lr": 0.1, "config": momentum}
    whole = pplab.run(gpipe(2, 4), GPT, steps=7, keep=False, **QUIET, **settings)
    first = start(gpipe(2, 4), zero=before, **settings)
    again = pplab.run(
        one_f_one_b(3, 2), resume=first, replicas=2, zero=after, partition=[0, 2, 5, 6], quiet=True
    )
    np.testing.assert_allclose(again.all_losses, whole.losses[:6], rtol=1e-5)
    assert len(again.memory) == 6 and again.job.zero == after
    third = pplab.run(interleaved(2, 4, chunks=2), resume=again, replicas=1, steps=1, quiet=True)
    assert third.bounds == (0, 2, 3, 4, 6) and third.job.first_step == 6
    assert_same(replace(third, losses=third.all_losses), whole)
    plain = pplab.run(gpipe(2, 4), GPT, steps=7, optimizer="SGD", lr=0.1, keep=False, quiet=True)
    assert not np.allclose(plain.losses, whole.losses, rtol=1e-4)  # momentum matters


def test_several_slices_a_rank_and_their_cut(clean: str) -> None:
    first = start(interleaved(2, 4, chunks=2), zero=1)
    again = recut(first, [0, 1, 2, 3, 6])
    assert_goes_on(first, again.after, loop())


@pytest.mark.parametrize("engine", ["deepspeed", "dualpipev"])
def test_deepspeeds_own_engines_go_on_too(engine: str, clean: str) -> None:
    settings: dict[str, Any] = {"engine": engine, "stages": 2, "micro_batches": 4}
    first = start(None, **settings)
    slices = 4 if engine == "dualpipev" else 2
    again = recut(first, [0, *range(1, slices), 6])
    assert again.after.job.engine == engine
    assert_goes_on(first, again.after, loop())


def test_weights_that_change_midway_go_on_from_the_newest(clean: str) -> None:
    settings: dict[str, Any] = {"zero": 0, "optimizer": "SGD", "lr": 0.1}
    whole = pplab.run(pipedream(2, 4), GPT, steps=4, keep=False, **QUIET, **settings)
    first = start(pipedream(2, 4), steps=2, **settings)
    assert_goes_on(first, pplab.run(resume=first, quiet=True), whole)


def test_bf16_keeps_its_master_copies(clean: str) -> None:
    for zero in (0, 1):
        settings: dict[str, Any] = {"dtype": "bf16", "zero": zero}
        whole = pplab.run(one_f_one_b(2, 4), GPT, steps=4, keep=False, **QUIET, **settings)
        first = start(one_f_one_b(2, 4), steps=2, **settings)
        # another cut rounds nothing differently: weights and messages are bf16 either way
        assert_goes_on(first, recut(first, [0, 1, 6]).after, whole)


def test_a_learning_rate_schedule_goes_on(clean: str) -> None:
    warmup = {"warmup_min_lr": 0.0, "warmup_max_lr": 0.01, "warmup_num_steps": 6}
    config = {"scheduler": {"type": "WarmupLR", "params": warmup}}
    whole = pplab.run(one_f_one_b(2, 4), GPT, steps=4, config=config, keep=False, **QUIET)
    first = start(one_f_one_b(2, 4), steps=2, config=config)
    assert_goes_on(first, recut(first, [0, 1, 6]).after, whole)


def test_a_record_on_disk_and_both_launchers(clean: str) -> None:
    first = start(one_f_one_b(2, 4), launcher="deepspeed", partition="uniform", model=FOUR)
    assert first.directory is not None
    again = pplab.run(resume=first.directory, partition=[0, 3, 4], launcher="local", quiet=True)
    whole = pplab.run(one_f_one_b(2, 4), FOUR, steps=6, keep=False, **QUIET)
    assert_goes_on(first, again, whole)
    read = pplab.Run.load(again.directory or "")
    assert read.all_losses == again.all_losses and read.partition == again.partition
    assert read.stage_times.rows() == again.stage_times.rows()


def test_the_checkpoint_is_deepspeeds_own_and_its_loader_wants_the_same_cut(clean: str) -> None:
    first = start(one_f_one_b(2, 4))
    assert_goes_on(first, pplab.run(resume=first, loader="deepspeed", quiet=True), loop())
    with pytest.raises(pplab.RunError, match=r"parameter-alignment|size"):
        pplab.run(resume=first, partition=[0, 1, 6], loader="deepspeed", quiet=True)


def test_nothing_in_a_checkpoint_is_executed(clean: str, tmp_path: Path) -> None:
    import pickle

    first = start(one_f_one_b(2, 4), steps=1)
    assert first.directory is not None
    about = first.directory / "checkpoint"
    marker = tmp_path / "executed"
    (file,) = about.glob("any-cut-*/layer-0000.pt")
    evil = f"c__builtin__\nexec\n(Vopen({str(marker)!r}, 'w')\ntR.".encode()
    file.write_bytes(evil)
    with pytest.raises(pplab.RunError, match=r"Weights only"):
        pplab.run(resume=first, quiet=True)
    assert not marker.exists()
    pickle.loads(evil)  # else the file would have proved nothing
    assert marker.exists()


def test_a_checkpoint_of_other_weights_is_refused_by_layer(clean: str) -> None:
    first = start(one_f_one_b(2, 4), steps=1)
    assert first.directory is not None
    record = json.loads((first.directory / "run.json").read_text())
    record["job"]["model"]["settings"]["width"] = 64  # a record that does not tell the truth
    (first.directory / "run.json").write_text(json.dumps(record))
    with pytest.raises(pplab.RunError, match=r"layer \d of the checkpoint does not fit"):
        pplab.run(resume=first.directory, quiet=True)


# -- cuts ------------------------------------------------------------------------------------------

FOUR = pplab.models.paced([0.004, 0.004, 0.004, 0.012], [0.008, 0.008, 0.008, 0.024])


def test_a_method_is_run_predicted_and_measured(clean: str) -> None:
    plan = one_f_one_b(2, 4)
    run = pplab.run(plan, FOUR, partition="optimal", quiet=True, keep=False)
    assert run.bounds == (0, 3, 4) and run.partition is not None
    assert run.partition.problem.schedule is plan or run.partition.problem.schedule == plan
    np.testing.assert_allclose(run.partition.loads, [0.036, 0.036])
    times = run.stage_times
    assert np.all(times.total >= run.partition.loads)  # paced layers never take less
    assert times.total.tolist() == [row["measured"] for row in times.rows()]
    assert "predicted" in str(times) and "0-2" in str(times)
    uniform = pplab.run(plan, FOUR, quiet=True, keep=False)
    assert uniform.partition is None and uniform.stage_times.predicted_step is None
    assert uniform.stage_times.total.max() >= 0.048  # against 36 ms a micro-batch


@measured
def test_a_better_cut_is_found_from_the_measurement_and_told(clean: str) -> None:
    first = start(one_f_one_b(2, 4), FOUR)
    again = pplab.rebalance(first, quiet=True)
    assert again.after.bounds == (0, 3, 4) and again.after.partition == again.new
    assert again.predicted_gain > 1.05
    assert again.measured_gain == first.step_time / again.after.step_time
    sentence = str(again)
    assert sentence.startswith("moved layer 2 from rank 1 to rank 0; step ")
    assert "times as fast (predicted" in sentence
    assert sentence.endswith("the losses go on from step 3 (measured: paced)")
    assert repr(again).startswith("[measured] ")
    # the best cut stays, and says so; the chain of losses grows
    still = pplab.rebalance(again.after, steps=2, quiet=True)
    assert still.after.bounds == (0, 3, 4) and len(still.losses) == 8
    assert str(still).startswith("no layer moved")


@measured
def test_slow_ranks_are_emulated_found_out_and_cut_for(clean: str) -> None:
    """Ranks 2 and 3 of half the speed: two old GPUs beside two new ones."""
    model = pplab.models.paced([0.005] * 6, [0.010] * 6)
    plan = one_f_one_b(4, 4)
    cluster = devices(4, speed=[1.0, 1.0, 0.5, 0.5], names=["A100", "A100", "V100", "V100"])
    # nobody told the profile: the slices on ranks 2 and 3 are found to take twice the time
    first = start(plan, model, partition=[0, 1, 2, 4, 6], speeds=(1, 1, 0.5, 0.5))
    times = first.stage_times.total / np.diff(first.bounds)
    assert times[2:].min() >= 0.030 and times.min() >= 0.015
    assert first.timeline.source == "measured: paced, ranks of speed 1, 1, 0.5, 0.5"
    again = pplab.rebalance(first, blame="ranks", quiet=True)
    found = np.array([device.speed for device in again.new.devices])
    assert np.all(found <= [1, 1, 0.5, 0.5])  # paced ranks are never faster, noise is slower
    assert found[:2].min() > found[2:].max()
    assert again.after.bounds[2] >= 4  # the fast ranks had 2 of the 6 layers
    assert again.after.job.speeds == (1, 1, 0.5, 0.5)
    # a cut made for such devices brings their speeds along; in free order the slow ones may move
    best = partition(
        Profile(tuple(LayerProfile(f"l{i}", 0.005, 0.010) for i in range(6))),
        schedule=plan, devices=cluster[::-1], free_order=True,
    )  # fmt: skip
    run = pplab.run(plan, model, partition=best, steps=1, quiet=True, keep=False)
    assert run.job.speeds == tuple(device.speed for device in best.devices)
    assert run.partition == best and run.stage_times.errors.max() < 0.01


def test_devices_own_dualpipev_and_its_slices(clean: str) -> None:
    model = pplab.models.paced(0.001, 0.002, layers=6)
    run = pplab.run(
        None, model, engine="dualpipev", stages=2, micro_batches=4, partition="uniform",
        quiet=True, keep=False,
    )  # fmt: skip
    assert run.bounds == (0, 2, 4, 5, 6) and run.stage_times.total.shape == (4,)
    own = pplab.run(
        dualpipev(2, 4), model, partition=[0, 1, 2, 3, 6], steps=1, quiet=True, keep=False
    )
    assert own.bounds == (0, 1, 2, 3, 6)
    np.testing.assert_allclose(own.losses[0], run.losses[0], rtol=1e-5)


def test_deepspeeds_methods_cut_as_deepspeed_does(clean: str) -> None:
    """The head is heavy: equal parameters are not equal numbers of layers."""
    from deepspeed.runtime.utils import partition_balanced

    model = pplab.models.gpt(**SMALL, head=8, tied=True)
    run = pplab.run(one_f_one_b(2, 4), model, partition="parameters", steps=1, **QUIET)
    sizes = [0] * 7  # each of the tied layers counts its weights
    for name, value in run.parameters.items():
        sizes[int(name.split(".")[0])] += value.size
    assert list(run.bounds) == partition_balanced(sizes, 2)
    assert run.bounds != (0, 4, 7)
    again = pplab.run(one_f_one_b(2, 4), model, partition="type:BLOCK", steps=1, quiet=True)
    assert list(again.bounds) == partition_balanced([0, 1, 1, 1, 1, 0, 0], 2)
