"""What ``run(partition=...)`` and ``resume=`` make of what they are given, before a run starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pplab
from pplab.core.costs import Costs
from pplab.core.ops import CODE
from pplab.core.partition import Device, Links, PartitionError, devices, partition
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import dualpipev, gpipe, interleaved, one_f_one_b
from pplab.core.timeline import Timeline
from pplab.runtime.checkpoint import Resume, any_cut, inherited, read_about, resume_from
from pplab.runtime.job import Job
from pplab.runtime.models import gpt, own, paced
from pplab.runtime.partition_json import partition_from_json, partition_to_json
from pplab.runtime.partitioned import choose, listed, paced_profile
from pplab.runtime.rebalance import measured_problem, moved_text, moves
from pplab.runtime.record import Run
from pplab.runtime.stage_times import step_of

PACED = paced([0.01, 0.01, 0.01, 0.03], [0.02, 0.02, 0.02, 0.06])


def job(**settings: Any) -> Job:
    plan = settings.pop("plan", one_f_one_b(2, 4))
    shape = {"stages": plan.stages, "micro_batches": plan.micro_batches}
    return Job(**{"model": PACED, "schedule": plan, **shape, **settings})


def finished(plan: pplab.Schedule, bounds: tuple[int, ...], costs: Costs, **about: Any) -> Run:
    """A run that took exactly what the costs say, without running anything."""
    one = plan.simulate(costs)
    steps = [replace(one, step=one.step + s) for s in range(3)]
    columns = {name: np.concatenate([getattr(t, name) for t in steps]) for name in one.columns()}
    timeline = Timeline.of(columns, plan.layout, source="measured: paced", unit="s")
    ran = job(plan=plan, **about)
    return Run(ran, timeline, [3.0, 2.0, 1.0], [1.0] * 3, [], {}, bounds, {}, {}, {})


# -- choosing --------------------------------------------------------------------------------------


def test_a_paced_model_says_itself_what_its_layers_take() -> None:
    profile = paced_profile(job())
    assert profile.times.tolist() == pytest.approx([0.03, 0.03, 0.03, 0.09])
    assert profile.unit == "s" and profile.source == "set: paced"
    assert profile.layers[0].parameters == 64 * 64 + 64
    assert profile.layers[0].output_bytes == 4 * 64 * 4  # 4 samples of 64 float32
    assert len(paced_profile(job(model=paced(), plan=interleaved(2, 4, chunks=2)))) == 4


@pytest.mark.parametrize(
    ("method", "bounds"),
    [
        ("optimal", (0, 3, 4)),
        ("minimax", (0, 3, 4)),
        ("uniform", (0, 2, 4)),
        ("parameters", (0, 2, 4)),
        ("type:paced", (0, 2, 4)),
        ([0, 1, 4], (0, 1, 4)),
    ],
)
def test_every_way_to_cut(method: Any, bounds: tuple[int, ...]) -> None:
    chosen = choose(method, job())
    assert chosen.bounds == bounds
    assert chosen.partition is not None and chosen.partition.problem.schedule == one_f_one_b(2, 4)
    assert chosen.speeds is None and chosen.notes == ()


def test_other_models_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = [], list[str]()

    def profile(model: Any, **settings: Any) -> Profile:
        asked.append((model, settings))
        return Profile.of([1.0] * 9 + [9.0], unit="s")

    monkeypatch.setattr("pplab.runtime.profiling.profile", profile)
    monkeypatch.setattr("pplab.runtime.partitioned._timed", {})
    model = gpt(layers=8, width=24, heads=2)
    one = job(model=model, micro_batch_size=3)
    assert choose([0, 5, 10], one).partition is None  # bounds need no times
    assert choose("optimal", one, said.append).bounds == (0, 9, 10)
    assert choose("Minimax", one, said.append).bounds == (0, 9, 10)
    assert said == [f"times the layers of {model} first"]
    assert asked[0][1]["micro_batch_size"] == 3 and len(asked) == 1
    assert choose([0, 5, 10], one).partition is not None  # but are predicted once they are known
    choose("optimal", one.changed(micro_batch_size=4))
    mine = [own(list, data=len) for _ in range(2)]  # alike, but not the same
    for each in (*mine, *mine):
        choose("optimal", job(model=each))
    assert len(asked) == 4


def test_slices_of_chunked_schedules_and_of_deepspeeds_engines() -> None:
    assert choose("uniform", job(plan=interleaved(2, 4, chunks=2))).bounds == (0, 1, 2, 3, 4)
    stock = {"model": PACED, "stages": 2, "micro_batches": 4}
    assert choose("optimal", Job(engine="deepspeed", **stock)).bounds == (0, 3, 4)
    both = choose("uniform", Job(engine="dualpipev", **stock))
    assert both.partition is not None
    assert both.partition.problem.schedule.layout == dualpipev(2, 4).layout


def test_a_finished_partition_is_kept_or_fitted_to_the_run() -> None:
    made = partition(paced_profile(job()), schedule=one_f_one_b(2, 4))
    assert choose(made, job()).partition is made
    other = choose(made, job(plan=gpipe(2, 8))).partition
    assert other is not None and other.bounds == made.bounds and other.method == "optimal"
    assert other.problem.schedule == gpipe(2, 8) and other.proof == ""  # proven for another


def test_speeds_of_ranks() -> None:
    slow = job(speeds=(1.0, 0.5))
    found = choose("optimal", slow).partition
    assert found is not None and [d.speed for d in found.devices] == [1.0, 0.5]
    made = partition(paced_profile(job()), 2, devices=devices(2, speed=[0.25, 1.0]))
    assert choose(made, job()).speeds == (0.25, 1.0)  # paced ranks take the devices' speeds
    kept = choose(made, slow)  # unless they have their own, which the prediction then follows
    assert kept.speeds == (1.0, 0.5) and kept.partition is not None
    assert [d.speed for d in kept.partition.devices] == [1.0, 0.5]
    computed = partition(Profile.of([1.0] * 10), 2, devices=devices(2, speed=[0.25, 1.0]))
    note = " ".join(choose(computed, job(model=gpt())).notes)
    assert "devices of unlike speed" in note and "do not hold" in note


def test_layers_timed_with_another_batch_size_are_pointed_out() -> None:
    made = partition(paced_profile(job(micro_batch_size=2)), 2)
    assert "2 samples a micro-batch and run with 4" in " ".join(choose(made, job()).notes)


def test_tied_layers_apart_are_pointed_out() -> None:
    tied = job(model=gpt(layers=4, tied=True))
    (note,) = choose([0, 2, 7], tied).notes
    assert note.startswith("layers 0 and 6 share their weights ('bytes') and lie on ranks 0 and 1")
    # both ends of a V are on rank 0
    plan = dualpipev(2, 4)
    assert choose([0, 1, 2, 3, 7], job(model=gpt(layers=4, tied=True), plan=plan)).notes == ()


@pytest.mark.parametrize(
    ("cut", "settings", "says"),
    [
        ("best", {}, "bounds or one of optimal, minimax"),
        ("profile", {}, "'optimal' does time the layers"),
        ("type:Linear", {}, "no layer type matches"),
        (3, {}, "a Partition, bounds or one of"),
        ([], {}, "a Partition, bounds or one of"),
        (["a", "b", "c"], {}, "bounds are whole numbers"),
        ([0, 2, 3, 4], {}, "4 bounds make 3 slices, but 2 are needed"),
        ([0, 2, 5], {}, "the last bound is the number of layers, 4, not 5"),
        ([0, 4, 4], {}, "slice 1 is empty"),
        ([0, 4], {"model": gpt(layers=4), "plan": one_f_one_b(1, 4)}, "number of layers, 6, not 4"),
        (partition([1.0] * 4, 3), {}, "for 3 ranks x 1 chunks, the run has 2 x 1"),
        (partition([1.0] * 5, 2), {}, "of 5 layers, and the model has 4"),
    ],
)
def test_wrong_cuts_are_refused_in_a_sentence(cut: Any, settings: Any, says: str) -> None:
    with pytest.raises(PartitionError, match=says):
        choose(cut, job(**settings))


def test_what_a_run_refuses_before_it_starts() -> None:
    plan = one_f_one_b(2, 4)
    with pytest.raises(ValueError, match="partition and bounds both say"):
        pplab.run(plan, PACED, partition="optimal", bounds=(0, 2, 4))
    for engine in ("plain", "zero"):
        with pytest.raises(ValueError, match="nothing to cut"):
            choose("optimal", Job(PACED, 1, 4, engine=engine))
    with pytest.raises(ValueError, match="up to the hardware"):
        pplab.run(plan, gpt(), speeds=(1, 0.5))
    with pytest.raises(ValueError, match="2 positive numbers"):
        pplab.run(plan, PACED, speeds=(1, 0.5, 1))
    with pytest.raises(ValueError, match="2 positive numbers"):
        pplab.run(plan, PACED, speeds=(1, 0))
    with pytest.raises(ValueError, match="no ranks to give speeds"):
        Job(PACED, 1, 4, engine="plain", speeds=(1.0,))
    with pytest.raises(ValueError, match="no DeepSpeed engine, and so no checkpoint"):
        Job(PACED, 1, 4, engine="plain", checkpoint=True)
    with pytest.raises(ValueError, match="with tensor > 1"):
        job(model=gpt(), tensor=2, checkpoint=True)


def test_jobs_with_speeds_and_a_checkpoint_read_back() -> None:
    one = job(speeds=(1.0, 0.5), checkpoint=True, resume=Resume("/x", "global_step3", 3, 12))
    assert Job.from_json(json.loads(json.dumps(one.as_json()))) == one
    assert one.first_step == 3
    # replicas take turns, and a run that continues reads on: 12 micro-batches were read
    assert [one.changed(replicas=2).batch_number(0, m, r) for m in (0, 1) for r in (0, 1)] == [
        12, 13, 14, 15,
    ]  # fmt: skip
    assert one.batch_number(1, 2) == 12 + 4 + 2
    with pytest.raises(ValueError, match="loader is one of layers, deepspeed"):
        Resume("/x", "tag", 1, 4, loader="pickle")


def test_a_partition_reads_back_from_json() -> None:
    profile = Profile(
        tuple(LayerProfile(f"l{i}", 1.0, 2.0, output_bytes=8, parameters=2) for i in range(6)),
        unit="units",
    )
    made = partition(
        profile,
        devices=(Device(1.0, 1e9, 0, "A100"), Device(0.5, node=1, name="V100")),
        links=Links(0.1, 1e3, across_latency=0.5),
        keep_tied=True,
        overhead=0.01,
        schedule=one_f_one_b(2, 4),
    )
    text = json.dumps(partition_to_json(made), allow_nan=False)  # strict JSON: no Infinity
    assert partition_from_json(json.loads(text)) == made


# -- what was measured -----------------------------------------------------------------------------


def test_measured_times_beside_predicted_ones() -> None:
    plan = one_f_one_b(2, 4)
    run = finished(plan, (0, 2, 4), Costs([0.02, 0.04], [0.04, 0.10], update=0.005, unit="s"))
    assert run.stage_times.total.tolist() == pytest.approx([0.06, 0.14])
    assert np.isnan(run.stage_times.errors).all() and run.stage_times.predicted_step is None
    run = replace(run, partition=choose([0, 2, 4], job()).partition)
    times = run.stage_times
    assert times.errors.tolist() == pytest.approx([0.0, 0.12 / 0.14 - 1])
    text = str(times)
    assert text.splitlines()[2].endswith("-14.3%") and "2-3" in text
    assert repr(times).count("[measured] ") == len(text.splitlines())
    # 0.04 + 0.08 on the slower stage, and the measured update on top
    assert times.predicted_step == pytest.approx(
        plan.simulate(forward=[0.02, 0.04], backward=[0.04, 0.08]).step_time + 0.005
    )


def test_thought_experiments_in_units_are_not_compared_with_seconds() -> None:
    run = finished(one_f_one_b(2, 4), (0, 2, 4), Costs([1e-2] * 2, [2e-2] * 2, unit="s"))
    run = replace(run, partition=partition([1.0] * 4, 2))
    assert not run.stage_times.comparable and "in units, not seconds" in str(run.stage_times)


def test_a_run_corrects_the_layers_or_the_ranks() -> None:
    """The second slice took twice what the profile says: its layers are slow, or its rank is."""
    plan = one_f_one_b(2, 4)
    profile = Profile(tuple(LayerProfile(f"l{i}", 0.01, 0.02) for i in range(4)))
    run = finished(plan, (0, 2, 4), Costs([0.02, 0.04], [0.04, 0.08], unit="s"))
    layers = measured_problem(run, profile)
    assert layers.profile.times.tolist() == pytest.approx([0.03, 0.03, 0.06, 0.06])
    assert [device.speed for device in layers.devices] == [1.0, 1.0]
    ranks = measured_problem(run, profile, "ranks")
    assert ranks.profile is profile
    assert [device.speed for device in ranks.devices] == pytest.approx([1.0, 0.5])
    # a rank that is known to be slow is not held against its layers
    known = replace(run, job=run.job.changed(speeds=(1.0, 0.5)))
    fair = measured_problem(known, profile)
    assert fair.profile.times.tolist() == pytest.approx([0.03] * 4)
    assert [device.speed for device in fair.devices] == [1.0, 0.5]
    with pytest.raises(ValueError, match="3 devices for 2 ranks"):
        measured_problem(run, profile, given=devices(3))


def test_predicting_again_what_was_measured_gives_the_step_that_was_measured() -> None:
    plan = one_f_one_b(3, 6)
    costs = Costs(
        [0.01, 0.03, 0.02],
        [0.02, 0.05, 0.03],
        update=0.004,
        latency=0.001,
        overhead=0.0005,
        unit="s",
    )
    run = finished(plan, (0, 1, 3, 4), costs)
    problem = measured_problem(run, Profile.of([1.0] * 4, unit="s"))
    from pplab.core.partition import Partition

    again = step_of(Partition(problem, run.bounds), run.costs)
    assert again == pytest.approx(run.step_time, rel=0.02)


def test_a_rank_that_waits_for_nobody_may_end_its_update_early() -> None:
    """Under ZeRO-0 rank 1's optimizer step can be over before rank 0's last backward pass is."""
    plan = one_f_one_b(2, 4)
    run = finished(plan, (0, 2, 4), Costs(0.01, 0.02, update=0.001, unit="s"))
    early = (run.timeline.kind == CODE["U"]) & (run.timeline.rank == 1)
    by = np.where(early, 0.015, 0.0)
    timeline = replace(run.timeline, start=run.timeline.start - by, end=run.timeline.end - by)
    costs = replace(run, timeline=timeline).costs
    assert np.asarray(costs.update).tolist() == pytest.approx([0.001, 0.0])


def test_what_moved_is_said_in_words() -> None:
    plan = interleaved(2, 4, chunks=2)
    old, new = (
        partition([1.0] * 6, method=bounds, schedule=plan)
        for bounds in ([0, 1, 2, 3, 6], [0, 2, 3, 4, 6])
    )
    # slices lie on ranks 0, 1, 0, 1
    assert moves(old, new) == [(1, 1, 0), (2, 0, 1), (3, 1, 0)]
    text = moved_text(moves(old, new))
    assert text == "moved layers 1 and 3 from rank 1 to rank 0, layer 2 from rank 0 to rank 1"
    assert moved_text([]) == "no layer moved: the cut was the best already"
    assert listed([1]) == "1" and listed([1, 2, 5]) == "1, 2 and 5"


# -- continuing ------------------------------------------------------------------------------------


def checkpointed(directory: Path, **settings: Any) -> Run:
    plan = settings.pop("plan", one_f_one_b(2, 4))
    run = finished(plan, (0, 3, 4), Costs(0.01, 0.02, unit="s"), checkpoint=True, **settings)
    folder = directory / "checkpoint"
    any_cut(folder, "global_step3").mkdir(parents=True)
    (folder / "latest").write_text("global_step3")
    about = {"format": 1, "tag": "global_step3", "step": 3, "batches": 12}
    (any_cut(folder, "global_step3") / "about.json").write_text(json.dumps(about))
    return replace(run, directory=directory)


def test_a_run_that_continues_has_the_settings_of_the_first(tmp_path: Path) -> None:
    run = checkpointed(tmp_path, lr=0.5, speeds=(1.0, 0.5), keep_parameters=True)
    assert resume_from(run) == Resume(str(tmp_path / "checkpoint"), "global_step3", 3, 12)
    same = inherited(run, None, None, {"steps": 7})
    assert (same["lr"], same["steps"], same["keep_parameters"]) == (0.5, 7, True)
    assert same["schedule"] == one_f_one_b(2, 4) and same["model"] == PACED
    assert same["bounds"] == (0, 3, 4) and same["speeds"] == (1.0, 0.5)
    # another schedule of the same shape keeps the cut, another shape does not
    assert inherited(run, gpipe(2, 8), None, {})["bounds"] == (0, 3, 4)
    wider = inherited(run, gpipe(3, 4), None, {})
    assert "bounds" not in wider and "speeds" not in wider
    chunked = inherited(run, interleaved(2, 4, chunks=2), None, {})
    assert "bounds" not in chunked and chunked["speeds"] == (1.0, 0.5)
    stock = inherited(run, None, None, {"engine": "deepspeed"})
    assert stock["schedule"] is None and stock["stages"] == 2 and "bounds" not in stock


def test_what_cannot_be_continued_is_refused(tmp_path: Path) -> None:
    run = checkpointed(tmp_path)
    without = replace(run, job=run.job.changed(checkpoint=False))
    with pytest.raises(ValueError, match=r"left no checkpoint.*checkpoint=True"):
        pplab.run(resume=without)
    with pytest.raises(ValueError, match="left no checkpoint"):
        pplab.rebalance(without)
    with pytest.raises(ValueError, match="is not the record of a run"):
        pplab.run(resume=tmp_path)
    with pytest.raises(ValueError, match="is gone"):
        pplab.run(resume=replace(run, directory=tmp_path / "elsewhere"))
    for settings, says in (
        ({"model": gpt()}, "cannot be loaded into gpt"),
        ({"seed": 1}, "seed was 0 and cannot become 1: it decides the order"),
        ({"micro_batch_size": 2}, "micro_batch_size was 4 and cannot become 2"),
        ({"optimizer": "SGD"}, "the state of one optimizer"),
        ({"dtype": "bf16"}, "dtype was fp32"),
    ):
        with pytest.raises(ValueError, match=says):
            pplab.run(resume=run, **settings)
    with pytest.raises(ValueError, match="keeps its ranks and chunks"):
        pplab.rebalance(run, plan=interleaved(2, 4, chunks=2))
    with pytest.raises(ValueError, match="blame is one of layers, ranks"):
        pplab.rebalance(run, blame="me")


def test_an_unfinished_checkpoint_is_not_continued(tmp_path: Path) -> None:
    run = checkpointed(tmp_path)
    file = any_cut(tmp_path / "checkpoint", "global_step3") / "about.json"
    assert read_about(tmp_path / "checkpoint")["step"] == 3
    file.write_text(file.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(ValueError, match=r"incomplete.*another version of pplab"):
        resume_from(run)
    file.write_text("{")
    with pytest.raises(ValueError, match="incomplete"):
        resume_from(run)
    file.unlink()
    with pytest.raises(ValueError, match="incomplete"):
        resume_from(run)


def test_own_layers_must_be_given_again_when_the_record_was_read_from_disk(tmp_path: Path) -> None:
    mine = own(list, data=len)
    run = checkpointed(tmp_path, model=replace(mine, payload=None))
    with pytest.raises(ValueError, match="give the model again"):
        inherited(run, None, None, {})
    assert inherited(run, None, mine, {})["model"] is mine
