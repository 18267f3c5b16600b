"""The tuner without processes: sizes, candidates, who is out and why, ranks by brute force."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pplab
from pplab import LayerProfile, Links, Tuning, models
from pplab.advise.tune.candidates import PREFERRED, Candidate, Space, divisors
from pplab.advise.tune.machine import Machine, in_bytes
from pplab.advise.tune.rank import ALIKE, KINDS
from pplab.advise.tune.sizes import Sizes
from pplab.cli import main
from pplab.core.costs import Costs
from pplab.core.profile import Profile
from pplab.core.schedules import SCHEDULES
from pplab.runtime.hardware import hardware

MB = 1_000_000
SHAPE = (0.5, 1, 1, 2, 1, 1)  # work of the layers of the made-up model


def profile(samples: int, shape: tuple[float, ...] = SHAPE) -> Profile:
    """A fixed part and a part a sample; 2 MB of parameters and 1 MB kept a sample and layer."""
    seconds = 0.001 + 0.002 * samples
    return Profile(
        tuple(
            LayerProfile(
                f"layer {i}",
                seconds * work,
                2 * seconds * work,
                parameters=MB // 2,
                parameter_bytes=2 * MB,
                activation_bytes=samples * MB,
                output_bytes=samples * MB // 10,
            )
            for i, work in enumerate(shape)
        ),
        samples=samples,
    )


PROFILES = [profile(1), profile(8)]


def by_size(samples: int) -> models.Model:
    """The same times on paced layers."""
    seconds = 0.001 + 0.002 * samples
    return models.paced([seconds * w for w in SHAPE], [2 * seconds * w for w in SHAPE])


def tuned(ranks: object = 4, **options: object) -> Tuning:
    options = {"batch": 16, "quiet": True, "weight_share": 0.5, **options}
    return pplab.tune(PROFILES, ranks, **options)


# -- sizes ----------------------------------------------------------------------------------------


def test_times_between_measured_sizes_are_on_a_straight_line_and_none_are_beyond() -> None:
    sizes = Sizes.of([profile(8), profile(1), profile(4)])
    assert sizes.measured == (1, 4, 8)
    assert np.allclose(sizes.at(3).times, profile(3).times)
    assert sizes.at(3).layers[0].activation_bytes == 3 * MB and sizes.at(3).samples == 3
    fixed, slope = sizes.line
    assert np.allclose(fixed, 0.003 * np.array(SHAPE))
    assert np.allclose(slope, 0.006 * np.array(SHAPE)) and sizes.residual < 1e-9
    with pytest.raises(ValueError, match="measured with 1 to 8 samples only"):
        sizes.at(16)


def test_a_curve_shows_in_the_residual_and_is_followed_at_the_measured_sizes() -> None:
    crooked = replace(profile(4), layers=tuple(
        replace(layer, forward=layer.forward * 1.5) for layer in profile(4).layers
    ))  # fmt: skip
    sizes = Sizes.of([profile(1), crooked, profile(8)])
    assert sizes.residual > 0.03
    assert sizes.at(4) is sizes.profiles[1]
    assert sizes.at(2).forward[0] == pytest.approx(
        profile(1).forward[0] + (crooked.forward[0] - profile(1).forward[0]) / 3
    )


def test_profiles_that_do_not_go_together_are_refused() -> None:
    other = profile(4, (1, 1))
    for profiles, text in (
        ([], "at least one"),
        ([profile(2), other], "not of one model"),
        ([profile(2), profile(2)], "same micro-batch size"),
        ([profile(2), replace(profile(4), unit="units")], "different units"),
        ([profile(2), replace(profile(4), samples=0)], "must say its samples"),
        (replace(profile(4), samples=0), "does not say"),
    ):
        with pytest.raises(ValueError, match=text):
            Sizes.of(profiles)
    assert Sizes.of(replace(profile(4), samples=0), size=4).measured == (4,)


@pytest.mark.parametrize(
    ("text", "value"),
    [("16GB", 16e9), ("500 MiB", 500 * 2**20), ("2GiB", 2**31), ("1e6", 1e6), (5e8, 5e8),
     ("80g", 80e9), ("12KiB", 12 * 1024)],
)  # fmt: skip
def test_memory_is_read_in_the_usual_ways(text: str | float, value: float) -> None:
    assert in_bytes(text) == value


@pytest.mark.parametrize("text", ["", "16 apples", "GB", "-3GB", 0, -1.0, "0"])
def test_other_memory_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="memory is"):
        in_bytes(text)


# -- candidates -----------------------------------------------------------------------------------


def every(ranks: int, batch: int, all_ranks: bool) -> Iterator[tuple[int, int, int, int]]:
    """(stages, replicas, size, micro-batches) found by trying everything."""
    for stages in range(1, ranks + 1):
        for replicas in range(1, ranks + 1):
            used = stages * replicas
            if used > ranks or (all_ranks and used != ranks):
                continue
            for size in range(1, 9):
                for many in range(1, batch + 1):
                    if size * many * replicas == batch and batch % size == 0:
                        yield stages, replicas, size, many


@given(ranks=st.integers(1, 8), batch=st.integers(1, 48), all_ranks=st.booleans())
def test_candidates_are_all_that_make_the_batch(ranks: int, batch: int, all_ranks: bool) -> None:
    space = Space(ranks, batch, divisors(batch, 8), all_ranks=all_ranks, schedules=("1f1b",))
    found = [
        (c.stages, c.replicas, c.micro_batch_size, c.micro_batches)
        for c in space.candidates()
        if c.zero == 0
    ]
    assert len(set(found)) == len(found)
    assert set(found) == set(every(ranks, batch, all_ranks))


def test_nothing_is_divided_among_one_replica_and_one_stage_has_no_order() -> None:
    found = list(Space(4, 16, (4,)).candidates())
    assert {c.zero for c in found if c.replicas == 1} == {0}
    assert {c.zero for c in found if c.replicas > 1} == {0, 1}
    assert {c.schedule for c in found if c.stages == 1} == {"1f1b"}
    assert {c.schedule for c in found if c.stages == 4} == set(PREFERRED)
    assert all(c.batch == 16 and c.world == 4 for c in found)
    text = str(Candidate(2, 2, 1, 4, 2, "1f1b", 1, 1))
    assert (
        text == "2 stages x 2 replicas, 1F1B, 2 micro-batches of 4, ZeRO-1, recomputing every layer"
    )


# -- ranks against brute force --------------------------------------------------------------------


def brute(stages: int, replicas: int, batch: int, latency: float) -> Iterator[float]:
    """Steps of all cuts, schedules and sizes of a shape, straight from the simulator."""
    for size in divisors(batch, 8):
        if (batch // replicas) % size:
            continue
        layers = Sizes.of(PROFILES).at(size)
        for name in PREFERRED if stages > 1 else ("1f1b",):
            try:
                plan = SCHEDULES[name](stages, batch // replicas // size).check()
            except ValueError:
                continue
            slices = plan.layout.slices
            for inner in combinations(range(1, len(layers)), slices - 1):
                bounds = (0, *inner, len(layers))
                forward, backward = (
                    [values[a:b].sum() for a, b in pairwise(bounds)]
                    for values in (layers.forward, layers.backward)
                )
                costs = Costs(forward=forward, backward=backward, latency=latency, unit="s")
                yield plan.simulate(costs).step_time


@pytest.mark.parametrize("latency", [0.0, 0.004])
def test_no_way_to_run_it_is_faster_than_the_first_plan(latency: float) -> None:
    found = tuned(links=Links(latency=latency), stages=(2, 4), zero=(0,))
    ends = {2: 2 * latency, 4: 0.0}  # a ring of two replicas: two messages
    least = min(
        step + ends[stages]
        for stages, replicas in ((4, 1), (2, 2))
        for step in brute(stages, replicas, 16, latency)
    )
    assert least * (1 - 1e-9) <= found.first.step <= least * (1 + ALIKE)
    for plan in found.plans:
        ideal = plan.schedule.simulate(plan.priced.costs)
        assert plan.priced.pipeline + plan.priced.ends == pytest.approx(ideal.step_time)
    steps = [plan.step for plan in found.plans]
    assert steps == sorted(steps)


@given(
    shape=st.lists(st.floats(0.2, 5), min_size=5, max_size=6),
    stages=st.integers(2, 3),
    batch=st.sampled_from((4, 8, 12)),
)
@settings(deadline=None, max_examples=25)
def test_the_first_plan_is_best_for_any_model(shape: list[float], stages: int, batch: int) -> None:
    profiles = [profile(1, tuple(shape)), profile(4, tuple(shape))]
    found = pplab.tune(
        profiles, stages, batch=batch, stages=(stages,), schedules=("1f1b", "gpipe"), quiet=True
    )
    least = np.inf
    for size in divisors(batch, 4):
        layers = Sizes.of(profiles).at(size)
        for inner in combinations(range(1, len(layers)), stages - 1):
            cut = pplab.partition(
                layers, stages, [0, *inner, len(layers)], micro_batches=batch // size
            )
            least = min(least, cut.step)
    assert least * (1 - 1e-9) <= found.first.step <= least * (1 + ALIKE)


def test_the_bubble_and_the_parts_of_a_step_add_up() -> None:
    for plan in tuned(links=Links(latency=0.001, bandwidth=1e9)).plans:
        priced = plan.priced
        assert priced.work + priced.idle + priced.ends == pytest.approx(plan.step)
        timeline = plan.schedule.simulate(replace(priced.costs, update=0.0))
        idle = timeline.bubble * timeline.step_time + priced.ends
        assert plan.bubble == pytest.approx(idle / plan.step, abs=1e-9)


# -- every plan can be run ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"memory": "40MB"}, {"dtype": "bf16"}, {"all_ranks": False, "ranks": 3}, {"per_node": 2}],
)
def test_every_plan_is_accepted_by_a_job_and_by_the_checker(options: dict[str, object]) -> None:
    found = tuned(**options)
    for plan in found.plans:
        job, what = plan.job(), plan.what
        assert job.samples_per_step == 16 and job.world == what.world
        assert job.deepspeed_config() == plan.deepspeed_config()
        report, whole = (
            pplab.check(plan.deepspeed_config(), ranks=what.world, stages=what.stages),
            plan.check(),
        )
        few = {"few-micro-batches"} if what.micro_batches < what.stages else set()
        assert report.rules("error", "wrong", "risky") == few, "and only for what is true"
        own = set() if what.stages == 1 or what.schedule == "1f1b" else {"schedule-not-shipped"}
        assert whole.rules("error", "wrong") == set()
        assert whole.rules("risky") <= few | own, [str(finding) for finding in whole.findings]
        assert report.resolved["train_batch_size"] == 16


def test_all_candidates_are_accounted_for() -> None:
    for options in ({}, {"memory": "30MB"}, {"schedules": ("1f1b", "pipedream"), "zero": (0, 2)}):
        found = tuned(**options)
        assert len(found.plans) + len(found.out) == found.looked
        whats = [*(plan.what for plan in found.plans), *(one.what for one in found.out)]
        assert len(set(whats)) == found.looked
        assert all(one.kind in KINDS and one.why for one in found.out)
        assert all(plan.reason for plan in found.plans)
        assert str(found.looked) in found.counts()


# -- what is out, and why -------------------------------------------------------------------------


def test_memory_caps_are_kept_and_said() -> None:
    free, tight = tuned(), tuned(memory="30MB")
    assert max(plan.memory.peak for plan in free.plans) > 30 * MB
    assert all(rank.peak <= 30 * MB for plan in tight.plans for rank in plan.memory.ranks)
    too_large = tight.left_out("memory")
    assert too_large and all(one.need > one.cap == 30 * MB for one in too_large)
    assert "Nearest to fitting" in tight.binding() and not free.binding()
    assert tight.first.step >= free.first.step
    with pytest.raises(ValueError, match=r"no plan for a batch of 16 .* do not fit into memory"):
        tuned(memory="1MB")


def test_recomputation_is_for_plans_that_do_not_fit_without_it() -> None:
    found = tuned(memory="30MB")
    again = [plan for plan in found.plans if plan.what.recompute]
    assert again, "with so little memory some plan must compute again"
    too_large = {one.what for one in found.left_out("memory")}
    for plan in again:
        assert replace(plan.what, recompute=0) in too_large
        profile_ = plan.partition.problem.profile
        base = Sizes.of(PROFILES).at(plan.what.micro_batch_size)
        assert np.allclose(profile_.backward, base.backward + base.forward)
        assert plan.job_settings["activation_checkpoint_interval"] == 1
    assert any("Recomputation is taken to add F to B" in note for note in found.notes)
    assert not any(plan.what.recompute for plan in tuned().plans), "no cap asks for it"


def test_what_cannot_be_is_out_with_its_reason() -> None:
    found = tuned(schedules=("1f1b", "interleaved", "dualpipev", "pipedream"), zero=(0, 1, 2))
    kinds = {kind: found.left_out(kind) for kind in ("asynchronous", "zero", "schedule", "layers")}
    assert all("stale" in one.why for one in kinds["asynchronous"])
    assert {one.what.schedule for one in kinds["asynchronous"]} == {"pipedream"}
    assert all("refuses ZeRO-2" in one.why for one in kinds["zero"])
    assert any("no multiple of 4" in one.why for one in kinds["schedule"])
    assert any("6 layers cannot fill 8 slices" in one.why for one in kinds["layers"])
    assert not any(plan.what.zero > 1 for plan in found.plans)


def test_splitting_backward_passes_needs_to_be_measured() -> None:
    found = pplab.tune(PROFILES, 4, batch=16, quiet=True)
    split = {one.what.schedule for one in found.left_out("unmeasured")}
    assert split == {"zb-h1", "zb-h2", "dualpipev"}
    assert {plan.what.schedule for plan in tuned().plans} & split
    uneven = tuned(weight_share=0.3, stages=(4,), schedules=("zb-h1",)).first
    assert uneven.step != pytest.approx(tuned(stages=(4,), schedules=("zb-h1",)).first.step)


def test_plans_of_a_shape_buy_time_with_memory_or_are_left_out() -> None:
    found = tuned()
    for plan in found.plans:
        key = (plan.what.stages, plan.what.replicas, plan.what.micro_batch_size)
        for other in found.plans:
            same = (other.what.stages, other.what.replicas, other.what.micro_batch_size) == key
            if same and other is not plan and other.step <= plan.step:
                assert other.memory.peak > plan.memory.peak
    gpipe = next(one for one in found.left_out("alike") if one.what.schedule == "gpipe")
    assert "faster than" in gpipe.why and "no less memory" in gpipe.why


def test_computed_ranks_do_not_share_cores() -> None:
    found = pplab.tune(PROFILES, 4, batch=16, cores=2, all_ranks=False, quiet=True)
    assert {plan.what.world for plan in found.plans} == {1, 2}
    assert all(one.what.world > 2 for one in found.left_out("cores"))
    with pytest.raises(ValueError, match=r"more ranks than can compute at once.*fewer ranks"):
        pplab.tune(PROFILES, 4, batch=16, cores=2, quiet=True)


def test_plans_for_more_cores_than_there_are_are_not_run_here() -> None:
    many = 4 * hardware().cores
    model = models.gpt(layers=4, width=32, heads=2)
    options = {"batch": 2 * many, "cores": many, "model": model, "quiet": True}
    found = pplab.tune(PROFILES, many, **options)
    assert found.plans and not found.known.probes
    for wish in ({"probe": True}, {"verify": 1}):
        with pytest.raises(ValueError, match="another machine"):
            pplab.tune(PROFILES, many, **options, **wish)


def test_paced_ranks_need_no_cores_but_keep_their_micro_batch_size() -> None:
    ranks = 4 * hardware().cores
    found = pplab.tune(models.paced(layers=2 * ranks), ranks, batch=64, probe=False, quiet=True)
    assert {plan.what.micro_batch_size for plan in found.plans} == {4}
    assert not found.left_out("cores")
    with pytest.raises(ValueError, match="larger ones would look free"):
        pplab.tune(models.paced(layers=8), 4, micro_batch_sizes=(2, 4), quiet=True)
    with pytest.raises(ValueError, match="how many paced layers"):
        pplab.tune(models.paced(), 4, probe=False, quiet=True)
    free = pplab.tune(by_size, 4, batch=16, probe=False, quiet=True)
    assert len({plan.what.micro_batch_size for plan in free.plans}) > 1
    again = pplab.tune(by_size, 4, batch=16, probe=False, recompute=(0, 1), quiet=True)
    assert all(one.what.recompute for one in again.left_out("unmeasured"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"zero_stage": 1}, "neither an argument of tune nor a field"),
        ({"micro_batches": 4}, "micro_batches is what is tuned: say batch"),
        ({"schedules": ("1f2b",)}, "not a schedule to tune over"),
        ({"batch": 0}, "at least one sample"),
        ({"ranks": 0}, "at least one rank"),
        ({"ranks": []}, "at least one rank"),
        ({"batch": 7, "micro_batch_sizes": (2,)}, "no number of replicas and no micro-batch size"),
        ({"verify": 2}, "say what to run"),
        ({"probe": True}, "only a model can be probed"),
        ({"weight_share": 2.0}, "between 0 and 1"),
        ({"micro_batch_sizes": (0,)}, "numbers from 1 on"),
        ({"recompute": (-1,)}, "number of layers"),
        ({"verify": 1, "repeats": 0}, "repeats at least 1"),
    ],
)
def test_requests_that_make_no_sense_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tuned(**options)


# -- the machine ----------------------------------------------------------------------------------


def test_stages_of_a_node_stay_together_or_messages_cost_more() -> None:
    slow = Links(latency=0.0, bandwidth=1e12, across_latency=0.02)
    near = tuned(links=slow, stages=(2,), schedules=("1f1b",), zero=(0,))
    far = tuned(links=slow, stages=(2,), schedules=("1f1b",), zero=(0,), per_node=2)
    same = next(p for p in near.plans if p.what == far.first.what)
    assert far.first.step > same.step + 2 * 0.02, "both stages of a pipeline on different nodes"
    reduced = Machine.of(4, links=slow, per_node=1).reduction(far.first.what.topology, 1e6)
    assert reduced == pytest.approx(2 * 0.02 + 1e6 / 1e12)


def test_devices_of_unlike_speed_and_memory_are_the_worst_of_their_stage() -> None:
    ranks = pplab.devices(4, speed=[1, 2, 2, 2], memory=[8e9, 16e9, 16e9, 4e9])
    machine = Machine.of(ranks, memory="10GB")
    stages = machine.pipeline(Candidate(2, 2, 1, 1, 1).topology)
    assert [(d.speed, d.memory) for d in stages] == [(1, 8e9), (2, 4e9)]
    assert "of speeds 1, 2, 2, 2" in machine.sentence()
    loads = tuned(ranks, stages=(2,), schedules=("1f1b",)).first.partition.loads
    even = tuned(stages=(2,), schedules=("1f1b",)).first.partition
    assert even.problem.speed[0] == 1 and max(loads) < max(even.loads)


# -- the command ----------------------------------------------------------------------------------


def test_the_command_reads_a_profile_and_writes_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PROFILES[1].save(tmp_path / "profile.json")
    words = ["tune", str(tmp_path / "profile.json"), "--ranks", "4", "--batch", "32"]
    out, config = tmp_path / "tuning.json", tmp_path / "ds.json"
    assert main([*words, "--memory", "200MB", "--out", str(out), "--config", str(config)]) == 0
    told, data = capsys.readouterr(), json.loads(out.read_text())
    assert told.out.startswith("Batch of 32 on 4 ranks with 200 MB each") and "wrote" in told.err
    assert {plan["micro_batch_size"] for plan in data["plans"]} == {8}
    assert json.loads(config.read_text())["train_micro_batch_size_per_gpu"] == 8
    assert main([*words, "--stages", "2", "--json"]) == 0
    assert {plan["stages"] for plan in json.loads(capsys.readouterr().out)["plans"]} == {2}
    assert main([*words, "--verify", "2"]) == 2
    assert "say what to run" in capsys.readouterr().err
    assert main([*words, "--memory", "lots"]) == 2
    assert "memory is bytes or a text" in capsys.readouterr().err


def test_tuning_imports_no_torch() -> None:
    code = "import sys, pplab; pplab.tune; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
