"""Every published schedule against its own formulas, for random sizes and times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.messages import blocking_order_problem, posted, programs
from pplab.core.schedule import schedule
from pplab.core.schedules import (
    SCHEDULES,
    dualpipev,
    eager_1f1b,
    gpipe,
    interleaved,
    one_f_one_b,
    zb_h1,
    zb_h2,
)
from pplab.core.schedules.weights import versions_held

several = settings(deadline=None, max_examples=30)
stages = st.integers(1, 6)
times = st.integers(1, 9)


def held_to_theory(maker, P, M, options=None, **costs):
    """Simulate and compare with everything the formulas say; the timeline for more."""
    options = options or {}
    plan = maker(P, M, **options)
    assert plan.problems == ()
    weight = {"weight": costs["weight"]} if "weight" in costs else {}
    theory = maker.theory(
        P, M, forward=costs["forward"], backward=costs["backward"], **weight, **options
    )
    timeline = plan.simulate(**costs)
    m = timeline.measures
    assert m.busy == pytest.approx([theory.work] * P)
    assert m.useful_span.max() - theory.work == pytest.approx(theory.bubble_time)
    assert theory.bubble == pytest.approx(1 - theory.work / m.useful_span.max())
    assert tuple(m.peak_in_flight()) == theory.peak
    assert versions_held(plan) == theory.versions
    return timeline, theory


def sizes(maker, data):
    """Micro-batches and options a schedule accepts."""
    P = data.draw(stages)
    if maker is interleaved:
        chunks = data.draw(st.integers(1, 4))
        return P, P * data.draw(st.integers(1, 4)), {"chunks": chunks}
    if maker is dualpipev:
        return P, 2 * P + data.draw(st.integers(0, 6)), {}
    if maker is SCHEDULES["pipedream-2bw"] and data.draw(st.booleans()):
        return P, data.draw(st.integers(1, 16)), {"group": P + data.draw(st.integers(0, 3))}
    return P, data.draw(st.integers(1, 16)), {}


whole = [name for name in SCHEDULES if name not in ("zb-h1", "zb-h2", "dualpipev")]


@pytest.mark.parametrize("name", whole)
@several
@given(data=st.data(), forward=times, backward=times)
def test_schedules_with_whole_backward_passes(name, data, forward, backward):
    P, M, options = sizes(SCHEDULES[name], data)
    timeline, theory = held_to_theory(
        SCHEDULES[name], P, M, options, forward=forward, backward=backward
    )
    assert timeline.bubble == pytest.approx(theory.bubble)  # rank 0 spans the whole step
    assert theory.once == name.startswith("pipedream")


@pytest.mark.parametrize("maker", [zb_h1, zb_h2], ids=lambda maker: maker.name)
@several
@given(data=st.data(), forward=times, inputs=times)
def test_zero_bubble_schedules(maker, data, forward, inputs):
    P, M, _ = sizes(maker, data)
    weight = data.draw(st.integers(0, min(forward, inputs)))
    held_to_theory(maker, P, M, forward=forward, backward=inputs + weight, weight=weight)


@several
@given(data=st.data(), inputs=times)
def test_dualpipev(data, inputs):
    weight = data.draw(st.integers(0, inputs))
    forward = data.draw(st.integers(inputs, inputs + weight))  # W <= B <= F <= B + W
    P, M, _ = sizes(dualpipev, data)
    held_to_theory(dualpipev, P, M, forward=forward, backward=inputs + weight, weight=weight)


# -- formulas as the papers print them -------------------------------------------------------------


def test_published_bubbles():
    """numbers.md D1 and D3, with P = 8, M = 32, F = B = W = 1."""
    P, M = 8, 32
    assert gpipe.theory(P, M).bubble_time == (P - 1) * 3
    assert one_f_one_b.theory(P, M).bubble == pytest.approx((P - 1) / (M + P - 1))
    third = one_f_one_b.theory(P, M).bubble_time / 3
    assert zb_h1.theory(P, M).bubble_time == third
    assert zb_h2.theory(P, M).bubble_time == 0
    four = interleaved.theory(P, M, forward=1 / 4, backward=2 / 4, chunks=4)
    assert four.bubble_time / four.work == pytest.approx((P - 1) / (4 * M))
    # DeepSeek's table, with the whole backward pass: (PP-1)(F+B-2W) for ZB1P
    F, B, W = 1.0, 2.0, 1.0
    assert zb_h1.theory(P, M, forward=F, backward=B).bubble_time == (P - 1) * (F + B - 2 * W)


def test_published_memory():
    """numbers.md D1, D2 and D9: activations in units of what one micro-batch keeps on a stage."""
    P, M = 8, 32
    assert gpipe.theory(P, M).peak[0] == M
    assert one_f_one_b.theory(P, M).peak[0] == P
    assert zb_h1.theory(P, M).peak == (P,) * P
    assert zb_h2.theory(P, M).peak == (2 * P - 1,) * P
    assert dualpipev.theory(P, M).peak == (2 * P + 1,) * P  # PP + 1 halves, PP = 2P
    assert eager_1f1b.theory(P, M).peak == tuple(2 * (P - 1 - s) + 1 for s in range(P))
    versions = {name: max(SCHEDULES[name].theory(P, M).versions) for name in whole}
    assert (versions["gpipe"], versions["1f1b"]) == (1, 1)
    assert (versions["pipedream"], versions["pipedream-2bw"]) == (P, 2)


@pytest.mark.parametrize(
    ("P", "M", "cost_1f1b", "cost_zb"),
    [(8, 2, 9 * 3, 9 * 2 + 1), (8, 4, 11 * 3, 11 * 2 + 1), (16, 16, 31 * 3, 31 * 2 + 1)],
)
def test_few_micro_batches(P, M, cost_1f1b, cost_zb):
    """Zero Bubble paper, section 6: (m+p-1)(TF+TB+TW) and (m+p-1)(TF+TB)+TW for m <= p."""
    assert one_f_one_b(P, M).simulate(forward=1, backward=2).step_time == cost_1f1b
    for maker in (zb_h1, zb_h2):
        m = maker(P, M).simulate(forward=1, backward=2, weight=1).measures
        assert m.useful_span.max() == cost_zb


def test_eager_1f1b_hides_message_times_that_1f1b_waits_for():
    """arXiv 2211.05322: one F and one B of slack for every message in the steady state."""
    late = {"forward": 1, "backward": 2, "latency": 0.5}
    plain = one_f_one_b(4, 32).simulate(**late).step_time
    eager = eager_1f1b(4, 32).simulate(**late).step_time
    free = one_f_one_b(4, 32).simulate(forward=1, backward=2).step_time
    assert eager - free == 2 * 3 * 0.5  # only the messages of fill and drain show
    assert plain > eager + 10


# -- what a schedule does not accept ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interleaved(4, 6), r"in groups of 4 \(one a stage\): 6 is no multiple of 4"),
        (lambda: dualpipev(4, 7), "at least 8, not 7"),
        (lambda: SCHEDULES["pipedream-2bw"](4, 8, group=3), r"at least one .* \(4\).*not 3"),
        (lambda: zb_h1.theory(4, 8, forward=1, backward=4), r"W up to F = 1, not 2"),
        (lambda: zb_h2.theory(4, 8, backward=2, weight=1.5), "W up to F = 1.0 and B = 0.5"),
        (lambda: dualpipev.theory(4, 8, backward=4), "W <= B <= F <= B . W"),
    ],
)
def test_sizes_outside_a_schedule_or_its_formula_say_why(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_schedule_without_formulas_says_so():
    @schedule
    def mine(stage, stages, micro_batches):
        yield from gpipe.generator(stage, stages, micro_batches)

    with pytest.raises(LookupError, match="mine comes without formulas"):
        mine.theory(2, 2)


# -- all of them can be run ------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
def test_receives_posted_at_once_stay_few(name):
    """Two for the schedules of one chunk; a few more where two directions mix."""
    limit = {"interleaved": 4, "dualpipev": 3, "eager-1f1b": 3}.get(name, 2)
    for P, M in ((2, 4), (4, 8), (8, 32)):
        assert max(posted(program) for program in programs(SCHEDULES[name](P, M))) <= limit


@pytest.mark.parametrize("name", SCHEDULES)
def test_which_naive_orders_deadlock(name):
    deadlocks = blocking_order_problem(SCHEDULES[name](4, 8)) is not None
    assert deadlocks == (name != "gpipe")
