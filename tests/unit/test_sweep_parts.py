"""Sweeps: order, predictions, knee, what happens when a run fails or is interrupted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

import pplab
from pplab import Sweep, Sweeps, models, schedules
from pplab.core.costs import Costs
from pplab.runtime.failure import RunError
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from tests.unit.sweeps import KEPT, costs_of, fake, fake_run

__all__ = ["fake"]  # a fixture
Fake = Callable[..., list[Job]]
PACED = models.paced()


def swept(**options: object) -> Sweep:
    return pplab.sweep("1f1b", PACED, quiet=True, **options)


def test_one_run_predicts_the_others(fake: Fake) -> None:
    ran = fake()
    sweep = swept()
    assert [job.micro_batches for job in ran] == [8, 1, 2, 4, 16, 32], "what predicts goes first"
    assert sweep.costs_from == "the run with M = 8"
    assert [p.micro_batches for p in sweep.points] == [1, 2, 4, 8, 16, 32]
    assert sweep.error < 1e-9, "runs made of the same costs are predicted exactly"
    assert {p.micro_batches for p in sweep.curve} == set(range(1, 33))
    assert sweep[8].samples == 32 and sweep[8].throughput == pytest.approx(
        32 / schedules.one_f_one_b(4, 8).simulate(costs_of(ran[0])).step_time
    )
    with pytest.raises(KeyError, match="no point with 3 micro-batches"):
        sweep[3]


def test_the_knee_is_where_doubling_stops_paying(fake: Fake) -> None:
    fake()
    sweep = swept()
    assert 14 <= sweep.knee <= 16, "14 without messages and optimizer"
    told = {p.micro_batches: p.throughput for p in sweep.curve}
    assert told[2 * sweep.knee] / told[sweep.knee] < 1.1
    assert told[2 * sweep.knee - 2] / told[sweep.knee - 1] >= 1.1
    assert sweep.measured_knee == 16
    assert sweep.limit == pytest.approx(4 / (0.005 + 0.010), rel=0.15)
    assert all(p.throughput < sweep.limit for p in sweep.points)
    assert swept(gain=0.5).knee == 2


def test_memory_is_flat_under_1f1b_and_grows_under_gpipe(fake: Fake) -> None:
    fake()
    both = pplab.sweep([schedules.gpipe, "1f1b"], PACED, quiet=True)
    assert isinstance(both, Sweeps)
    each = 4 * KEPT
    assert [p.peak for p in both["GPipe"].points] == [m * each for m in (1, 2, 4, 8, 16, 32)]
    assert [p.peak for p in both["1F1B"].points] == [min(m, 4) * each for m in (1, 2, 4, 8, 16, 32)]
    assert both["1F1B"][32].memory == (4 * each, 3 * each, 2 * each, each)
    for sweep in both:
        for point in sweep.points:
            assert sweep.predicted(point.micro_batches).memory == pytest.approx(point.memory)
    with pytest.raises(KeyError, match=r"no sweep of 'ZB-H1'; there are GPipe, 1F1B"):
        both["ZB-H1"]


def test_a_fixed_batch_needs_two_runs_and_has_a_maximum(fake: Fake) -> None:
    ran = fake()
    sweep = swept(global_batch=64, micro_batches=(4, 8, 16, 32, 64))
    assert [job.micro_batches for job in ran[:2]] == [4, 64]
    assert sweep.costs_from == "the runs with M = 4 and 64"
    assert {p.micro_batches * p.micro_batch_size for p in sweep.points} == {64}
    assert sweep.error < 1e-9, "costs on a straight line are predicted exactly"
    assert sweep.best.micro_batches == sweep.predicted_best.micro_batches == 16
    assert sweep.best.micro_batches == pytest.approx(pplab.batch.best_cut(4, 64, 1, 1), rel=0.2)
    working = [p.utilisation for p in sweep.points]
    assert working == sorted(working), "the fullest pipeline is not the fastest"
    assert sweep.limit is None


def test_a_cap_chooses_among_the_points(fake: Fake) -> None:
    fake()
    sweep = swept(global_batch=64, micro_batches=(4, 8, 16, 32, 64))
    assert [p.peak for p in sweep.points] == [4 * s * KEPT for s in (16, 8, 4, 2, 1)]
    capped = sweep.under(10_000)
    assert capped.best.micro_batches == 32 and not capped.fits(sweep[16])
    assert sweep.under(100).best is None
    assert "(over the cap)" in capped.table[1][-1] and "(over" not in capped.table[-1][-1]


def test_a_model_may_depend_on_the_micro_batch_size(fake: Fake) -> None:
    ran = fake()
    pplab.sweep(
        "1f1b", lambda b: models.paced(b, b), quiet=True, global_batch=8, micro_batches=(4, 8)
    )
    assert [job.model.settings["forward"] for job in ran] == [2, 1]


def test_replicas_share_the_batch_and_the_fullest_rank_counts(fake: Fake) -> None:
    ran = fake()
    sweep = swept(stages=2, replicas=2, global_batch=32, micro_batches=(2, 4, 8))
    assert [job.micro_batch_size for job in ran] == [8, 2, 4]
    assert {p.samples for p in sweep.points} == {32}
    assert len(sweep.points[0].memory) == 2 and "2 replicas of 2 stages" in sweep.sentence()


def test_given_costs_predict_before_anything_runs(fake: Fake) -> None:
    fake()
    states = []
    sweep = swept(
        costs=Costs(forward=0.005, backward=0.010, unit="s"), micro_batches=(2, 4),
        on_point=lambda sweep, point: states.append((len(sweep.points), len(sweep.curve))),
    )  # fmt: skip
    assert sweep.costs_from == "the costs given" and states == [(1, 3), (2, 3)]
    assert 0 < sweep.error < 0.3


def test_an_interrupt_keeps_the_points_there_are(fake: Fake) -> None:
    def make(job: Job) -> Run:
        if job.micro_batches == 4:
            raise KeyboardInterrupt
        return fake_run(job)

    fake(make)
    sweep = swept()
    assert sweep.stopped and [p.micro_batches for p in sweep.points] == [1, 2, 8]
    assert sweep.missing() == "Stopped before M = 4, 16, 32."
    assert "Stopped before M = 4" in str(sweep)


def test_a_failed_run_leaves_its_reason(fake: Fake) -> None:
    def make(job: Job) -> Run:
        if job.micro_batches >= 16:
            raise RunError("rank 0 failed: out of memory\nlog: ...")
        return fake_run(job)

    fake(make)
    sweep = swept()
    assert sweep.problems == dict.fromkeys((16, 32), "rank 0 failed: out of memory")
    assert not sweep.stopped and "M = 16 failed: rank 0 failed: out of memory" in sweep.missing()
    fake(lambda job: make(job.changed(micro_batches=16, schedule=None)))
    with pytest.raises(RunError, match="out of memory"):
        swept()


def test_another_run_stands_in_for_a_reference_that_failed(fake: Fake) -> None:
    def make(job: Job) -> Run:
        if job.micro_batches == 8:
            raise RunError("no")
        return fake_run(job)

    fake(make)
    sweep = swept()
    assert sweep.costs_from == "the run with M = 1" and sweep.curve and sweep.error < 0.05


def test_of_repeated_runs_the_fastest_counts(fake: Fake) -> None:
    pace = iter([3.0, 5.0, 1.5, 1.5, 2.0, 2.0])
    ran = fake(lambda job: fake_run(job, slower=next(pace)))
    sweep = swept(micro_batches=(4, 8), repeats=3)
    assert [job.micro_batches for job in ran] == [8, 4, 8, 4, 8, 4], "they take turns"
    one = fake_run(ran[1], slower=1.5), fake_run(ran[0], slower=1.5)
    assert [p.step_time for p in sweep.points] == pytest.approx([r.step_time for r in one])
    assert sweep.error < 1e-9, "and it is the one that predicts"


def test_uncounted_memory_is_said_and_not_invented(fake: Fake) -> None:
    fake(lambda job: fake_run(job, counted=False))
    sweep = swept(micro_batches=(4, 8))
    assert sweep.points[0].memory == () and math.isnan(sweep.points[0].peak)
    assert sweep.table[1][-1] == "not counted" and sweep.under(1).best is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"micro_batches": ()}, "whole numbers from 1 on"),
        ({"micro_batches": (0, 1)}, "whole numbers from 1 on"),
        ({"global_batch": 10}, "cannot be cut into 4 equal micro-batches; use some of 1, 2, 5, 10"),
        ({"global_batch": 9, "replicas": 2}, "2 replicas cannot share a batch of 9"),
        ({"measure_on": 3}, "measure_on=3 is not among"),
        ({"measure_on": (1, 2)}, "measure_on names one run"),
        ({"repeats": 0}, "repeats=1 or more"),
        ({"zero": 1, "dtype": "fp8"}, "dtype is one of"),
        ({"gain": 2.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    fake: Fake, options: dict, sentence: str
) -> None:
    ran = fake()
    with pytest.raises(ValueError, match=sentence):
        swept(**options)
    assert ran == []


def test_a_schedule_that_is_none_is_refused(fake: Fake) -> None:
    ran = fake()
    with pytest.raises(ValueError, match="'1f2b' is not a schedule to sweep"):
        pplab.sweep("1f2b", PACED, quiet=True)
    with pytest.raises(ValueError, match="at least one schedule"):
        pplab.sweep([], PACED, quiet=True)
    with pytest.raises(ValueError, match="multiple of"):
        pplab.sweep("interleaved", PACED, micro_batches=(4, 6), quiet=True)
    assert ran == []


def test_a_schedule_of_multiples_is_swept(fake: Fake) -> None:
    fake()
    sweep = pplab.sweep("interleaved", PACED, micro_batches=(4, 8, 16), quiet=True)
    assert {p.micro_batches for p in sweep.curve} == {4, 8, 12, 16}
    assert sweep.knee is not None and sweep.knee % 4 == 0 and sweep.error < 1e-9


def test_a_sweep_reads_back(fake: Fake, tmp_path) -> None:
    fake()
    sweep = swept(cap=5000.0)
    again = Sweep.load(sweep.save(tmp_path / "sweep.json"))
    assert again == sweep and str(again) == str(sweep)
    data = json.loads((tmp_path / "sweep.json").read_text())
    with pytest.raises(ValueError, match="another version"):
        Sweep.from_json({**data, "format": 99})


def test_sweeps_that_differ_cannot_share_a_picture(fake: Fake) -> None:
    fake()
    with pytest.raises(ValueError, match="stages is 2 and 4"):
        Sweeps([swept(micro_batches=(4,)), swept(micro_batches=(4,), stages=2)])


def test_the_sentence_says_what_the_picture_shows(fake: Fake) -> None:
    fake()
    text = str(swept())
    assert text.startswith(
        "[measured] paced, 1F1B, 4 stages, micro-batches of 4 samples: from M = 1 to 32 "
        "throughput goes from "
    )
    assert "simulated from the run with M = 8, off by at most 0.0%" in text
    assert all(line.startswith("[measured] ") for line in text.splitlines())
    assert "Knee at M = " in text and "keeps 4.0 kB at first and 16.0 kB at last" in text
