"""The timeline as a table: building, choosing rows, comparing, storing."""

import io
import json

import numpy as np
import pytest
from core_strategies import schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.layout import Layout
from pplab.core.ops import CODE, F, Op
from pplab.core.schedules import gpipe, one_f_one_b, zb_h1
from pplab.core.timeline import COLUMNS, Span, Timeline, useful

several = settings(deadline=None, max_examples=40)


def several_steps(durations, replicas=1):
    """1F1B on two ranks, one step after the other, each `durations[i]` times as slow."""
    parts, clock = [], 0.0
    for step, factor in enumerate(durations):
        for replica in range(replicas):
            one = one_f_one_b(2, 2).simulate(forward=factor, backward=2 * factor)
            columns = one.columns()
            columns["step"] = np.full(len(one), step)
            columns["replica"] = np.full(len(one), replica)
            columns["start"], columns["end"] = one.start + clock, one.end + clock
            parts.append(columns)
        clock += one.step_time + 1
    merged = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    return Timeline.of(merged, Layout(2), source="measured: paced", unit="s")


@several
@given(schedules(), st.integers(0, 2**32))
def test_rows_in_any_order_make_the_same_timeline(plan, seed):
    timeline = plan.simulate(forward=1, backward=2)
    shuffle = np.random.default_rng(seed).permutation(len(timeline))
    columns = {name: column[shuffle] for name, column in timeline.columns().items()}
    again = Timeline.of(columns, plan.layout)
    assert again == timeline
    keys = list(zip(again.rank, again.start, again.end, strict=True))
    assert keys == sorted(keys)


@several
@given(schedules())
def test_iterating_gives_back_the_operations_of_the_schedule(plan):
    timeline = plan.simulate()
    assert len(timeline) == sum(map(len, plan.ops))
    for rank, row in enumerate(plan.ops):
        assert tuple(span.op for span in timeline if span.rank == rank) == row


@several
@given(schedules())
def test_saving_and_loading_keeps_every_span_and_label(plan):
    timeline = plan.simulate(latency=0.1)
    file = io.BytesIO()
    timeline.save(file)
    file.seek(0)
    again = Timeline.load(file)
    assert again == timeline
    assert again.about() == timeline.about()
    for name, kind in COLUMNS.items():
        assert getattr(again, name).dtype == kind


def test_a_saved_timeline_holds_plain_arrays_and_json_no_pickle(tmp_path):
    file = tmp_path / "run.npz"
    several_steps([1, 1]).save(file)
    with np.load(file, allow_pickle=False) as data:
        assert set(data.files) == {"about", *COLUMNS}
        assert all(data[name].dtype != object for name in data.files)
        about = json.loads(str(data["about"]))
    assert about["source"] == "measured: paced"
    assert Timeline.load(file).layout == Layout(2)


def test_a_file_with_a_pickle_in_it_is_refused(tmp_path):
    file = tmp_path / "evil.npz"
    np.savez(file, about=np.array([{"layout": {}}], dtype=object), start=np.zeros(1))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        Timeline.load(file)


def test_steps_and_replicas_default_to_0_and_types_are_fixed():
    timeline = Timeline.of(
        {"rank": [0], "kind": [0], "micro_batch": [0], "chunk": [0], "start": [0], "end": [1]},
        Layout(1),
    )
    assert list(timeline) == [Span(0, 0, 0, F(0), 0.0, 1.0)]
    assert {name: getattr(timeline, name).dtype for name in COLUMNS} == COLUMNS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": [0, 1]}, r"columns differ in length: start has 1, but .*'rank': 2"),
        ({"end": [-1]}, "a span ends before it starts"),
        ({"rank": [2]}, "ranks go from 0 to 1"),
        ({"rank": [-1]}, "ranks go from 0 to 1"),
        ({"chunk": [1]}, "chunks go from 0 to 0"),
        ({"kind": [8]}, "kinds go from 0 to 7"),
    ],
)
def test_columns_that_make_no_sense_say_why(change, message):
    columns = {"rank": [0], "kind": [0], "micro_batch": [0], "chunk": [0], "start": [0], "end": [1]}
    with pytest.raises(ValueError, match=message):
        Timeline.of({**columns, **change}, Layout(2))


def test_choosing_rows():
    timeline = several_steps([1, 2, 3], replicas=2)
    assert timeline.steps == (0, 1, 2) and timeline.replicas == (0, 1)
    assert (timeline.stages, timeline.micro_batches) == (2, 2)
    one = timeline.only(step=1, replica=1, kinds="F")
    assert len(one) == 4
    assert set(one.step) == {1} and set(one.replica) == {1} and set(one.kind) == {CODE["F"]}
    assert one.source == timeline.source
    assert len(timeline.only()) == len(timeline)
    assert timeline.where(timeline.is_kind("B")) == timeline.only(kinds="B")
    assert np.array_equal(timeline.is_kind("FB"), timeline.is_kind("F") | timeline.is_kind("B"))


def test_the_typical_step_is_the_median_one_without_the_first():
    timeline = several_steps([9, 3, 1, 2])
    assert timeline.typical.steps == (3,)
    assert several_steps([9, 5]).typical.steps == (1,)
    alone = several_steps([4])
    assert alone.typical is alone


def test_shifting():
    timeline = several_steps([1, 1]).only(step=1)
    assert timeline.start.min() == 10
    assert timeline.shifted().start.min() == 0
    assert timeline.shifted(2.5).end.max() == timeline.end.max() + 2.5
    empty = timeline.where(np.zeros(len(timeline), dtype=bool))
    assert len(empty.shifted()) == 0


def test_equality_is_about_spans_and_layout_not_labels():
    timeline = gpipe(2, 2).simulate()
    assert timeline == gpipe(2, 2).simulate(unit="s")
    assert timeline != gpipe(2, 2).simulate(latency=1)
    assert timeline != one_f_one_b(2, 3).simulate()
    assert timeline != "timeline"
    with pytest.raises(TypeError):
        hash(timeline)


def test_useful_work_is_not_waiting():
    columns = {
        "rank": [0] * 4,
        "kind": [CODE[k] for k in "FRBG"],
        "micro_batch": [0] * 4,
        "chunk": [0] * 4,
        "start": [0, 1, 3, 5],
        "end": [1, 3, 5, 9],
    }
    timeline = Timeline.of(columns, Layout(1), unit="s")
    assert useful(timeline).tolist() == [True, False, True, False]
    assert timeline.step_time == 5  # the reduction after the last B is not useful work
    assert timeline.bubble == pytest.approx(2 / 5)


def test_words():
    timeline = zb_h1(4, 8).simulate(forward=1, backward=2)
    assert str(timeline) == "4 ranks, 8 micro-batches, ZB-H1: step 27 units, 11% idle, " + (
        "all ranks alike"
    )
    assert repr(timeline) == f"<Timeline simulated: {timeline}>"
    uneven = gpipe(2, 2).simulate(forward=[1e-3, 2e-3], backward=2e-3, unit="s")
    assert str(uneven).endswith("step 11 ms, 36% idle, rank 0 idle most")
    assert str(several_steps([1], replicas=2)).startswith("2 replicas of 2 ranks")
    assert str(timeline.where(np.zeros(len(timeline), dtype=bool))) == "an empty timeline"
    assert next(iter(timeline)).op == Op("F", 0)
