"""What the checks of the labs measure. Runs are stand-ins here; labs/source makes them for real."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pplab.core.breakdown import Breakdown, Part
from pplab.core.costs import Costs
from pplab.core.ops import CODE, B, F, W
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedule import schedule
from pplab.core.schedules import (
    dualpipev,
    gpipe,
    interleaved,
    one_f_one_b,
    pipedream,
    zb_h1,
    zb_h2,
)
from pplab.core.timeline import Timeline
from pplab.runtime.failure import RunError
from pplab.teach import lab as lab_module
from pplab.teach.lab import open_lab
from pplab.teach.labs import lab_1, lab_2, lab_3, lab_4, lab_5, lab_6
from tests.unit.lab_cases import opened, somewhere
from tests.unit.test_teach_misconceptions import case

__all__ = ["somewhere"]  # a fixture
pytestmark = pytest.mark.usefixtures("somewhere")


def verdict(number, name, answer):
    return opened(number).check(name, answer)


def test_lab_1_measures_its_cases():
    a = case("A").timeline
    assert verdict(1, "q1", a.bubble).ok
    assert (
        verdict(1, "q1", 27.3).state == "wrong" and "between 0 and 1" in verdict(1, "q1", 27).reason
    )
    assert verdict(1, "q2", 0).ok
    assert "victim" in verdict(1, "q2", 1).reason
    assert verdict(1, "q3", 33).ok, "equal stages: (M+P-1)(F+B)"
    assert "as it is" in verdict(1, "q3", 40.5).reason
    assert verdict(1, "q4", 1.0).ok
    assert verdict(1, "own", (a, a.bubble, 0)).ok
    assert (
        verdict(1, "own", (a, a.measures.bubble_overhead, 0)).misconception == "overhead-is-bubble"
    )


@pytest.mark.parametrize("like", [1, 2, 3])
def test_any_of_the_other_ranks_is_a_good_example_on_a_busy_machine(like):
    """Other ranks that differ, and a step so long that the known mistake comes near the truth."""
    costs = {"forward": [1.55, 1.0, 1.03, 1.12], "backward": [3.1, 2.0, 2.06, 2.24]}
    lab = opened(1)
    b = case("B")
    b.costs, b.step_time = Costs(**costs), 47.0
    lab.cases["B"] = lambda: b
    f, w = costs["forward"][like], costs["backward"][like]
    even = one_f_one_b(4, 8).simulate(forward=f, backward=w).step_time
    assert lab.check("q3", even).ok
    assert not lab.check("q3", 0.9 * 33).ok and not lab.check("q3", 47).ok
    excess = costs["forward"][0] - f + costs["backward"][0] - w
    assert lab.check("q3", 47 - 8 * excess).misconception == "excess-lost-in-full"


def test_an_even_step_may_be_simulated_with_all_that_was_measured():
    """Messages that take long, as where the ranks wait for a processor."""
    lab = opened(1)
    b = case("B")
    b.costs = Costs([1.5, 1, 1, 1], [3, 2, 2, 2], update=0.1, latency=0.2, overhead=0.05)
    b.step_time = one_f_one_b(4, 8).simulate(b.costs).step_time
    lab.cases["B"] = lambda: b
    even = Costs(1, 2, update=0.1, latency=0.2, overhead=0.05)
    in_full = one_f_one_b(4, 8).simulate(even).step_time
    assert in_full > 1.05 * 33 and lab.check("q3", in_full).ok and lab.check("q3", 33).ok
    assert lab.check("q3", b.step_time - 12).misconception == "excess-lost-in-full"


def late(plan, by, **costs):
    """A step whose ranks wait in receives, at first for a rank 0 that begins so much later."""
    t = plan.simulate(**costs).shifted(by)
    waits = []
    for rank in range(t.stages):
        mine = t.rank == rank
        ends = [0.0 if rank else by, *t.end[mine]]
        begins = [*t.start[mine], t.end.max()]
        waits += [(rank, a, b) for a, b in zip(ends, begins, strict=True) if b > a]
    ranks, starts, ends = zip(*waits, strict=True)
    same = {"kind": CODE["R"], "micro_batch": 0, "chunk": 0}
    rows = {name: np.full(len(waits), value) for name, value in same.items()}
    rows |= {"rank": ranks, "start": starts, "end": ends}
    columns = t.columns()
    both = {name: np.concatenate([columns[name], row]) for name, row in rows.items()}
    return Timeline.of(both, t.layout, unit=t.unit)


def by_hand(step):
    """(looks busy, bubble) of spans over the length of all spans, and the length of the useful."""
    spans = list(step)
    work = [span for span in spans if span.op.kind in "FBU"]
    looks, useful = (sum(span.end - span.start for span in some) for some in (spans, work))
    areas = [
        step.stages * (max(span.end for span in some) - min(span.start for span in some))
        for some in (spans, work)
    ]
    return [(looks / area, 1 - useful / area) for area in areas]


def test_a_step_may_begin_with_the_first_wait_or_the_first_work():
    """On a busy machine rank 0 is late at times, and the others wait for it before the step."""
    step = late(one_f_one_b(4, 8), 3, forward=1, backward=2)
    other_ways = by_hand(step)
    assert other_ways[0][1] > 1.1 * step.bubble and other_ways[1][1] == pytest.approx(step.bubble)
    timeline = SimpleNamespace(typical=step)
    for number, name, key in ((1, "q1", "A"), (6, "q1", "job")):
        lab = opened(number)
        lab.cases[key] = lambda: SimpleNamespace(timeline=timeline)
        for _, bubble in other_ways:
            spread = lab_6.spread(step)
            assert lab.check(name, bubble if number == 1 else (bubble, spread)).ok
    lab = opened(1)
    lab.cases["A"] = lambda: SimpleNamespace(timeline=timeline)
    for _, bubble in other_ways:
        assert lab.check("q1", bubble / (1 - bubble)).misconception == "overhead-is-bubble"
        assert "useful share" in lab.check("q1", 1 - bubble).reason
        assert lab.check("own", (step, bubble, 0)).ok
        assert not lab.check("own", (step, 1.5 * bubble, 0)).ok


def test_what_looks_busy_may_be_added_up_or_joined():
    """Waits for a rank 0 that is late count in full, or only what lies within the step."""
    step = late(one_f_one_b(4, 8), 4, forward=1, backward=2)
    lab = opened(1)
    lab.cases["D"] = lambda: SimpleNamespace(timeline=SimpleNamespace(typical=step))
    joined = (lab_1.looks_busy(step), step.bubble)
    assert joined[0] == pytest.approx(1) and by_hand(step)[1][0] > 1.05
    for looks, bubble in (joined, *by_hand(step)):
        assert lab.check("q5", (looks, bubble)).ok
        assert lab.check("q5", (1.0, 0.0)).misconception == "busy-means-no-bubble"
        assert "the bubble is off" in lab.check("q5", (looks, bubble / (1 - bubble))).reason
    assert "looks_busy is off" in lab.check("q5", (0.6, step.bubble)).reason


def test_later_steps_may_have_one_that_was_slow():
    times = [0.56, 0.042, 0.044, 0.046, 0.048, 0.12]
    lab = opened(1)
    lab.cases["C"] = lambda: SimpleNamespace(step_times=times)
    assert lab.check("q4", np.median(times[1:])).ok and lab.check("q4", np.mean(times[1:])).ok
    assert lab.check("q4", np.mean(times)).misconception == "warm-up-is-slow"
    assert not lab.check("q4", 0.12).ok


def test_looking_busy_counts_waits_and_counts_overlaps_once():
    t = one_f_one_b(2, 4).simulate(forward=1, backward=2)
    assert lab_1.looks_busy(t) == pytest.approx(1 - t.bubble)
    assert lab_1.looks_busy(t) < 1


def test_lab_1_runs_the_right_number_of_micro_batches(monkeypatch):
    ran = []

    def run(plan, model, **_):
        ran.append(plan.micro_batches)
        return SimpleNamespace(bubble=0.15)

    monkeypatch.setattr(lab_1, "run", run)
    assert verdict(1, "q6", 19).ok and ran == [19]
    assert "14.3%" in verdict(1, "q6", 18).reason and "fewer" in verdict(1, "q6", 20).reason
    assert "saying" in verdict(1, "q6", 8).reason
    assert ran == [19], "a wrong answer is not worth a run"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((8, 8), "32 in all: the cap is 20"),
        ((2, 32), "38% faster"),
        ((1, 64), "120% faster"),
        ((16, 2), "the batch has 64"),
        ((0, 64), "at least 1"),
    ],
)
def test_lab_2_enforces_cap_batch_and_speed(answer, says):
    assert says in verdict(2, "q3", answer).reason


def test_lab_2_believes_the_run_and_not_the_simulation(monkeypatch):
    for peak, state in ((4, "right"), (6, "wrong")):
        measures = SimpleNamespace(peak_in_flight=lambda peak=peak: np.array([peak, 1]))
        typical = SimpleNamespace(measures=measures)
        done = SimpleNamespace(timeline=SimpleNamespace(typical=typical), step_time=0.5, bubble=0.2)
        monkeypatch.setattr(lab_2, "run", lambda *_, done=done, **__: done)
        assert verdict(2, "q3", (4, 16)).state == state


def test_lab_2_other_questions():
    assert verdict(2, "q1", 4).ok and verdict(2, "q2", (4, 3, 2, 1)).ok
    assert "GPipe holds all 6" in verdict(2, "q4", (6, 0.33)).reason
    assert verdict(2, "q4", (5, 3 / 8)).ok
    assert verdict(2, "q5", 29).ok and "still brings 5.1%" in verdict(2, "q5", 28).reason
    assert verdict(2, "q6", (3 / 19, 76)).ok
    assert verdict(2, "q4", (5, "3/8")).ok and verdict(2, "q6", ("3/19", "76")).ok
    for name, percent in (("q4", (5, 37.5)), ("q4", (5, "37.5 %")), ("q6", (15.8, 76))):
        assert "write 0.25 for 25 %" in verdict(2, name, percent).reason
    assert "two numbers" in verdict(2, "q4", "38").reason
    assert "two numbers" in verdict(2, "q6", (0.158, "long")).reason
    own = {"stages": 4, "samples": 64, "micro_batch": 2, "bytes_per_sample": 1e6, "cap": 1e7}
    assert verdict(2, "own", own).ok
    assert "cap is 1e+06" in verdict(2, "own", {**own, "cap": 1e6}).reason
    assert "15 % or less" in verdict(2, "own", {**own, "micro_batch": 16, "cap": 1e9}).reason
    assert "do not divide" in verdict(2, "own", {**own, "micro_batch": 5}).reason


@schedule
def never_ends_well(stage, stages, micro_batches):
    for m in range(micro_batches):
        yield B(m)
        yield F(m)


@schedule
def empty(stage, stages, micro_batches): ...


@schedule
def own_h1(stage, stages, micro_batches):
    """ZB-H1 with all W's of a rank one place later, where that is possible."""
    ahead = min(stages - 1 - stage, micro_batches)
    for m in range(ahead):
        yield F(m)
    for m in range(micro_batches):
        if ahead + m < micro_batches:
            yield F(ahead + m)
        yield B(m)
        if m >= stage:
            yield W(m - stage)
    for m in range(max(0, micro_batches - stage), micro_batches):
        yield W(m)


def test_lab_5_wants_1f1b_for_every_size():
    assert verdict(5, "q1", one_f_one_b).ok
    assert "hold 8, 8, 8, 8" in verdict(5, "q1", gpipe).reason
    assert "before its own F0" in verdict(5, "q1", never_ends_well).reason
    assert "is no schedule" in verdict(5, "q1", [F(0)]).reason
    assert verdict(5, "q1", empty).state == "not attempted"
    one_size = one_f_one_b(4, 8)
    assert "any number of stages" in verdict(5, "q1", one_size).reason


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (zb_h2, "hold 7, 7, 7, 7"),
        (gpipe, "hold 8, 8, 8, 8"),
        (interleaved, "5.5, 4.5, 3.5, 2.5"),
        (dualpipev, "4.5, 4.5, 4.5, 4.5"),
        (one_f_one_b, "exactly as long as 1F1B"),
        (pipedream, "leave U out"),
    ],
)
def test_lab_5_enforces_memory_and_bubble_by_measuring(answer, says):
    assert says in verdict(5, "q3", answer).reason


def test_lab_5_takes_any_schedule_that_is_good_enough():
    assert verdict(5, "q3", zb_h1).ok and verdict(5, "q3", own_h1).ok


def test_lab_5_compares_real_steps_and_losses(monkeypatch):
    def outcome(step, losses):
        return SimpleNamespace(step_time=step, losses=losses)

    def check(mine, theirs):
        results = [mine, theirs, mine, theirs]
        monkeypatch.setattr(lab_5, "run", lambda *_, **__: results.pop(0))
        return verdict(5, "q4", zb_h1)

    assert check(outcome(0.82, [1.0]), outcome(1.0, [1.0])).ok
    slow = check(outcome(0.97, [1.0]), outcome(1.0, [1.0]))
    assert slow.state == "wrong" and "0.970" in slow.measured
    assert "losses differ" in check(outcome(0.82, [1.1]), outcome(1.0, [1.0])).reason
    assert verdict(5, "q4", zb_h2).state == "wrong", "what q3 refuses is not run"


def test_lab_5_other_questions(monkeypatch):
    assert verdict(5, "q2", 27).ok and "at the end" in verdict(5, "q2", 33).reason
    assert verdict(5, "q5", 3).ok and verdict(5, "q5", [3, 3, 3, 3]).ok
    assert (
        verdict(5, "q6", (3, "Stashed")).ok
        and "count the U" in verdict(5, "q6", (0, "stashed")).reason
    )
    costs = Costs(forward=1, backward=2, weight=0.8)
    assert verdict(5, "own", (own_h1, costs)).ok
    assert "longer than 1F1B" in verdict(5, "own", (one_f_one_b, costs)).reason
    assert "holds 7" in verdict(5, "own", (zb_h2, costs)).reason
    monkeypatch.setattr(lab_module, "_gpus", lambda: 2)
    on_cpu = SimpleNamespace(placement={"device": "cpu", "why": "no GPU"})
    assert "it ran here: no GPU" in verdict(5, "q7", on_cpu).reason
    timeline = SimpleNamespace(stages=2)
    on_gpu = SimpleNamespace(placement={"device": "cuda"}, timeline=timeline, bubble=0.3)
    assert verdict(5, "q7", on_gpu).ok


def test_lab_3_measures_cuts(monkeypatch):
    assert verdict(3, "q1", 5).ok and "count from 0" in verdict(3, "q1", 6).reason
    assert "another one" in verdict(3, "q1", 3).reason
    assert verdict(3, "q2", 48).ok and "forward pass" in verdict(3, "q2", 16).reason
    assert verdict(3, "q3", (0, 2, 5, 8)).ok
    assert "equal numbers of layers" in verdict(3, "q3", (0, 3, 6, 8)).reason
    assert "52% shorter" in verdict(3, "q3", (0, 2, 6, 8)).reason
    assert "another model" in verdict(3, "q3", [5, 0, 3, 1, 4, 2, 6, 7]).reason
    assert "empty" in verdict(3, "q3", (0, 5, 5, 8)).reason
    assert verdict(3, "q4", 4230 / 3300).ok and "old over new" in verdict(3, "q4", 0.78).reason
    assert verdict(3, "q6", 0).ok and "cheaper" in verdict(3, "q6", 1).reason
    assert verdict(3, "own", ([1, 2, 3, 4], (0, 3, 4))).ok
    assert "another cut" in verdict(3, "own", ([1, 2, 3, 4], (0, 2, 4))).reason


def test_any_cut_with_the_shortest_slowest_stage_predicts_its_own_gain():
    """Two cuts that share their slowest stage, or nearly: both are right in q3, and then in q4."""
    times = (9.6, 6.6, 1.8, 6.9, 4.0, 8.5, 1.6, 2.1)
    layers = (LayerProfile(str(i), forward=t / 1e3, backward=t / 500) for i, t in enumerate(times))
    measured = Profile(tuple(layers))
    lab = opened(3)
    lab.cases["profile"] = lambda: measured
    old, *new = (
        lab_3.step(measured, cut).step_time for cut in (lab_3.UNIFORM, (0, 1, 4, 8), (0, 2, 5, 8))
    )
    assert new[0] > 1.04 * new[1]
    for cut, step in zip(((0, 1, 4, 8), (0, 2, 5, 8)), new, strict=True):
        assert lab.check("q3", cut).ok and lab.check("q4", old / step).ok
    assert lab.check("q4", 19.4 / 16.2).misconception == "excess-lost-in-full"


def test_lab_3_believes_the_runs(monkeypatch):
    def check(old, new, losses=(1.0, 1.0)):
        results = [
            SimpleNamespace(step_time=step, losses=[loss])
            for step, loss in zip((old, new), losses, strict=True)
        ] * 2
        monkeypatch.setattr(lab_3, "run", lambda *_, **__: results.pop(0))
        return verdict(3, "q5", (0, 2, 5, 8))

    assert check(1.28, 1.0).ok
    assert "not 1.15 times faster" in check(1.10, 1.0).reason
    assert "different things" in check(1.28, 1.0, (1.0, 1.1)).reason
    assert "to be beaten" in verdict(3, "q5", (0, 3, 6, 8)).reason


GOOD = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "zero_optimization": {"stage": 1},
    "pipeline": {"activation_checkpoint_interval": 1, "use_reentrant": False},
}


def test_lab_4_reads_a_config_as_deepspeed_does(monkeypatch):
    monkeypatch.setattr(lab_4, "run", lambda *_, **__: SimpleNamespace(losses=[1.0]))
    assert verdict(4, "q3", GOOD).ok
    assert "64 is not" in verdict(4, "q3", {**GOOD, "gradient_accumulation_steps": 4}).reason
    assert "recomputed" in verdict(4, "q3", {**GOOD, "pipeline": {}}).reason
    assert "without ZeRO" in verdict(4, "q3", {**GOOD, "zero_optimization": {}}).reason
    smaller = {**GOOD, "train_batch_size": 32, "gradient_accumulation_steps": 4}
    assert "stay at 64" in verdict(4, "q3", smaller).reason

    def stops(*_, **__):
        raise RunError("rank 0 failed: element 0 of tensors does not require grad")

    monkeypatch.setattr(lab_4, "run", stops)
    assert "integer ids" in verdict(4, "q3", GOOD).reason


def test_lab_4_budgets():
    assert verdict(4, "q1", 1).ok and "copy of the whole" in verdict(4, "q1", 8).reason
    dead = ["pipeline.enabled", "pipeline.pipe_parallel_size", "pipeline.activation_checkpointing"]
    assert verdict(4, "q2", [*dead, "elastic_pipeline"]).ok
    assert "nobody cuts" in verdict(4, "q1", 0).reason
    assert "1 more is ignored" in verdict(4, "q2", dead).reason
    assert "a collection of keys" in verdict(4, "q2", "pipeline.enabled").reason
    assert "with the section" in verdict(4, "q2", ["enabled", *dead]).reason
    assert "does read bf16" in verdict(4, "q2", [*dead, "bf16"]).reason
    assert verdict(4, "q4", 0).ok and "another one more" in verdict(4, "q4", 1).reason
    assert verdict(4, "q5", 20.9).ok and "without ZeRO" in verdict(4, "q5", 31.4).reason
    choice = {"stages": 4, "zero": 1, "micro_batch": 1, "gas": 32, "recompute": "full"}
    assert verdict(4, "q6", choice).ok
    assert "of 40.0 GB" in verdict(4, "q6", {**choice, "recompute": "none"}).reason
    assert "the batch has 64" in verdict(4, "q6", {**choice, "gas": 16}).reason
    assert "bubble of" in verdict(4, "q6", {**choice, "micro_batch": 8, "gas": 4}).reason
    assert verdict(4, "own", (GOOD, 8, 4)).ok
    assert (
        "finding" in verdict(4, "own", ({**GOOD, "zero_optimization": {"stage": 2}}, 8, 4)).reason
    )


def outcome(step_time, plan, bounds, losses=(1.0,)):
    """What a real run of the capstone gives, simulated."""
    forward = lab_3.loads(lab_6.COSTS, bounds)
    timeline = plan.simulate(forward=forward, backward=[2 * t for t in forward])
    return SimpleNamespace(
        timeline=timeline,
        step_time=step_time,
        losses=list(losses),
        job=SimpleNamespace(schedule=plan),
    )


def test_lab_6_holds_the_job_to_all_three_goals(monkeypatch):
    even, old = (0, 5, 10, 15, 16), lab_6.UNIFORM
    before = outcome(1.26, gpipe(4, 16), old)

    def check(maker, bounds, losses=(1.0,)):
        monkeypatch.setattr(
            lab_6, "run", lambda plan, *_, **__: outcome(0.77, plan, bounds, losses)
        )
        lab = open_lab(6)
        lab.cases = {"job": lambda: before}
        return lab.check("q4", (maker, bounds))

    assert check(zb_h1, even).ok
    assert check(one_f_one_b, even).misconception == "1f1b-smaller-bubble"
    assert "above 15%" in check(gpipe, even).reason
    assert "10% apart" in check(zb_h1, old).reason
    assert "not those of the old job" in check(zb_h1, even, (1.1,)).reason
    assert "one chunk" in check(interleaved, even).reason


def test_lab_6_other_questions():
    assert verdict(6, "q3", (0, 5, 10, 15, 16)).ok
    assert "the cut it has" in verdict(6, "q3", (0, 4, 8, 12, 16)).reason
    assert "spread of 33%" in verdict(6, "q3", (0, 4, 9, 14, 16)).reason
    assert verdict(6, "q5", (0.405, 0.09)).ok
    assert "not milliseconds" in verdict(6, "q5", (405, 90)).reason
    assert "sum is right" in verdict(6, "q5", (0.45, 0.045)).reason
    a = SimpleNamespace(timeline=1, step_time=2.0, step_times=[9.0, 2.0, 2.6], losses=[1.0])
    b = SimpleNamespace(timeline=1, step_time=1.0, step_times=[3.0, 1.0, 1.0], losses=[1.0])
    assert verdict(6, "own", (a, b, 2.0)).ok
    assert verdict(6, "own", (a, b, 2.3)).ok, "the medians of the later steps of both logs"
    assert "did not become faster" in verdict(6, "own", (b, a, 0.5)).reason
    assert "ratio is another" in verdict(6, "own", (a, b, 3.0)).reason
    c = SimpleNamespace(timeline=1, step_time=1.0, step_times=[1.0], losses=[2.0])
    assert "do not learn the same" in verdict(6, "own", (a, c, 2.0)).reason


def test_lab_6_takes_the_largest_part_even_where_it_is_not_explained():
    def check(answer, rest):
        names = ("useful work", *lab_6.PARTS, "not explained")
        times = (1.0, 0.2, 0.4, 0.0, 0.0, 0.0, 0.0, rest)
        parts = tuple(Part(name, time, "") for name, time in zip(names, times, strict=True))
        split = Breakdown(parts, sum(times), "s", "measured")
        lab = opened(6)
        lab.cases["job"] = lambda: SimpleNamespace(breakdown=lambda: split)
        return lab.check("q2", answer)

    assert check("not explained", 0.5).ok and check("imbalance", 0.5).ok
    assert not check("not explained", 0.3).ok and check("imbalance", 0.3).ok
    assert "larger" in check("fill and drain", 0.5).reason
    assert "no loss" in check("useful work", 0.5).reason
    assert "one of: fill and drain" in check("bubble", 0.5).reason
