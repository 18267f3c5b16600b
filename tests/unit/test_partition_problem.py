"""Costs of a cut: step times as the simulator has them, memory as a timeline has it."""

import numpy as np
import pytest
from core_strategies import random_schedule, schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.costs import Costs
from pplab.core.layout import Layout
from pplab.core.partition import Device, Links, PartitionError, Problem, devices, partition
from pplab.core.partition.cuts import every_cut
from pplab.core.partition.inflight import in_flight
from pplab.core.partition.stepper import Stepper
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import gpipe, one_f_one_b


def random_profile(rng, n, *, tied=()):
    layers = [
        LayerProfile(
            f"layer {i}",
            forward=rng.integers(0, 9),
            backward=rng.integers(0, 9),
            parameters=int(rng.integers(0, 50)),
            activation_bytes=int(rng.integers(0, 900)),
            output_bytes=int(rng.integers(0, 9)),
            tied="weights" if i in tied else None,
        )
        for i in range(n)
    ]
    return Profile(layers, unit="units")


# -- time ---------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(schedules(), st.integers(0, 2**32), st.sampled_from([0.0, 0.7]))
def test_many_steps_at_once_equal_the_simulator(schedule, seed, overhead):
    rng = np.random.default_rng(seed)
    slices, count = schedule.layout.slices, 3
    forward, backward = rng.random((slices, count)), rng.random((slices, count))
    latency = rng.random((slices - 1, count))  # each cut has its own
    found = Stepper(schedule, overhead).steps(forward, backward, latency)
    for k in range(count):
        costs = Costs(forward[:, k], backward[:, k], latency=latency[:, k], overhead=overhead)
        assert found[k] == schedule.simulate(costs).end.max()


def test_each_cut_has_its_own_message_time():
    # one micro-batch walks down and up once: every message is paid twice
    stepper = Stepper(one_f_one_b(stages=4, micro_batches=1))
    ones = np.ones((4, 1))
    messages = np.array([[10.0], [100.0], [1000.0]])
    assert stepper.steps(ones, ones, messages)[0] == 8 + 2 * 1110


def test_in_the_long_run_1f1b_takes_the_slowest_ring_of_neighbours():
    rng = np.random.default_rng(0)
    for _ in range(25):
        P = int(rng.integers(1, 6))
        f, b, m = rng.random((P, 1)), rng.random((P, 1)), rng.random((P - 1, 1)) * rng.integers(3)
        short, long = (
            Stepper(one_f_one_b(stages=P, micro_batches=M)).steps(f, b, m)[0] for M in (60, 180)
        )
        load, sent = (f + b)[:, 0], m[:, 0]
        rings = [
            (load[s : e + 1].sum() + 2 * sent[s:e].sum()) / (e - s + 1)
            for s in range(P)
            for e in range(s, P)
        ]
        ends = np.concatenate([[0], sent, [0]])
        assert (long - short) / 120 == pytest.approx(max(rings))
        assert max(rings) <= (load + ends[:-1] + ends[1:]).max() * (1 + 1e-12)


def test_messages_inside_and_across_nodes():
    profile = Profile([LayerProfile(f"{i}", 1, 1, output_bytes=100 * (i + 1)) for i in range(4)])
    links = Links(latency=1, bandwidth=100, across_latency=5, across_bandwidth=10)
    problem = Problem(
        profile, one_f_one_b(stages=4, micro_batches=1), devices(4, per_node=2), links
    )
    _, _, messages = problem.times(np.array([[0, 1, 2, 3, 4]]))
    assert messages[:, 0].tolist() == [1 + 1, 5 + 20, 1 + 3]


def test_a_cut_between_two_slices_of_one_rank_sends_nothing():
    schedule = random_schedule(Layout(2, 2, "v"), 2, 0)  # ranks of the slices: 0 1 1 0
    problem = Problem(Profile.of([1] * 4), schedule, devices(2), Links(latency=1))
    assert problem.times(np.array([[0, 1, 2, 3, 4]]))[2][:, 0].tolist() == [1, 0, 1]


def test_speeds_divide_times():
    problem = Problem(
        Profile.of([6, 6]), one_f_one_b(stages=2, micro_batches=1), devices(2, speed=[1, 2])
    )
    assert problem.loads(np.array([[0, 1, 2]]))[:, 0].tolist() == [6, 3]


# -- memory -------------------------------------------------------------------------------------


def test_activations_in_flight_are_those_of_the_literature():
    peaks = in_flight(one_f_one_b(stages=4, micro_batches=8))
    assert [int(p.max()) for p in peaks] == [4, 3, 2, 1]
    assert [int(p.max()) for p in in_flight(one_f_one_b(stages=4, micro_batches=2))] == [2, 2, 2, 1]
    assert [int(p.max()) for p in in_flight(gpipe(stages=3, micro_batches=5))] == [5, 5, 5]


@settings(max_examples=100, deadline=None)
@given(schedules(), st.integers(0, 2**32))
def test_memory_equals_what_the_timeline_holds(schedule, seed):
    """Weigh every activation of the simulated timeline by the size of its slice."""
    rng = np.random.default_rng(seed)
    n = schedule.layout.slices + int(rng.integers(0, 3))
    profile = random_profile(rng, n)
    problem = Problem(profile, schedule, devices(schedule.stages), bytes_per_parameter=3)
    cuts = next(every_cut(n, schedule.layout.slices))
    bounds = cuts[rng.integers(len(cuts))]
    found = problem.memory(np.array([bounds]))[:, 0]
    timeline = schedule.simulate(forward=1, backward=2)
    for rank in range(schedule.stages):
        own = timeline.where(timeline.rank == rank)
        split = {(o.op.micro_batch, o.op.chunk) for o in own if o.op.kind == "W"}
        held = peak = total = 0.0
        for span in own:  # one rank, in order
            piece = schedule.layout.slice_of(rank, span.op.chunk)
            layers = slice(bounds[piece], bounds[piece + 1])
            size = profile.column("activation_bytes")[layers].sum()
            key = (span.op.micro_batch, span.op.chunk)
            if span.op.kind == "F":
                held += size
                peak = max(peak, held)
            elif span.op.kind == "W" or key not in split:
                held -= size
        for chunk in range(schedule.chunks):
            piece = schedule.layout.slice_of(rank, chunk)
            layers = slice(bounds[piece], bounds[piece + 1])
            total += 3 * profile.column("parameters")[layers].sum()
        assert found[rank] == total + peak
        assert np.all(
            timeline.measures.peak_in_flight() == [p.sum(1).max() for p in in_flight(schedule)]
        )


def test_tied_weights_on_one_rank_count_once_and_frozen_ones_once():
    layers = [
        LayerProfile("embed", 1, 1, parameters=10, tied="w"),
        LayerProfile("frozen", 1, 1, parameters=0, parameter_bytes=7),
        LayerProfile("head", 1, 1, parameters=10, tied="w"),
    ]
    plan = one_f_one_b(stages=1, micro_batches=1)
    assert Problem(Profile(layers), plan, devices(1)).memory(np.array([[0, 3]]))[0, 0] == 167
    plan = one_f_one_b(stages=2, micro_batches=1)
    apart = Problem(Profile(layers), plan, devices(2)).memory(np.array([[0, 1, 3]]))
    assert apart[:, 0].tolist() == [160, 167]


# -- what makes no sense ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Device(speed=0), "positive"),
        (lambda: Device(memory=-1), "positive"),
        (lambda: devices(3, speed=[1, 2]), "2 entries; give one value or 3"),
        (lambda: Links(latency=-1), "latency"),
        (lambda: Links(bandwidth=0), "bandwidth"),
        (lambda: partition([1, 2, 3], 2, devices=devices(3)), "3 devices for 2 ranks"),
        (lambda: partition([1, 2, 3], 4), "cannot fill"),
        (lambda: partition([1, 2, 3]), "how many stages"),
        (lambda: partition([1, 2, 3], 2, "best"), "no partition method"),
        (lambda: partition([1, 2, 3], 2, [0, 3]), "2 bounds make 1 slices"),
        (lambda: partition([1, 2, 3], 2, "uniform", free_order=True), "no free order"),
        (
            lambda: partition([1, 2, 3], 2, schedule=gpipe(stages=3, micro_batches=2)),
            "for 3 stages, not 2",
        ),
    ],
)
def test_errors_are_sentences(make, words):
    with pytest.raises(PartitionError, match=words):
        make()
