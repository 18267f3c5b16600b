"""A timeline survives the trip through a Chrome trace, and the trace is one that viewers accept."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.layout import Layout
from pplab.core.ops import KINDS
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.core.timeline import COLUMNS, Timeline
from pplab.traces import TraceError, read_chrome, write_chrome

TIMES = st.floats(-5e5, 5e5)  # eleven days in seconds


@st.composite
def timelines(draw) -> Timeline:
    """Any timeline: several replicas and steps, every kind, overlapping and empty spans too."""
    layout = draw(
        st.sampled_from([Layout(1), Layout(3), Layout(4, 2), Layout(2, 2, "v"), Layout(2, 3)])
    )
    row = st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, layout.stages - 1),
        st.integers(0, len(KINDS) - 1),
        st.integers(-1, 4),
        st.integers(0, layout.chunks - 1),
        TIMES,
        TIMES,
    )
    rows = [(*r[:6], min(r[6:]), max(r[6:])) for r in draw(st.lists(row, max_size=30))]
    columns = dict(zip(COLUMNS, zip(*rows, strict=True) if rows else [[]] * 8, strict=True))
    return Timeline.of(
        columns,
        layout,
        source=draw(st.sampled_from(["simulated", "measured: paced"])),
        schedule=draw(st.text(max_size=8)),
        unit=draw(st.sampled_from(["s", "units"])),
        hardware=draw(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4))),
    )


@given(timelines(), st.sampled_from(["t.json", "t.json.gz"]))
@settings(max_examples=60, deadline=None)
def test_what_was_written_is_read_to_the_last_bit(tmp_path_factory, timeline, name):
    path = tmp_path_factory.mktemp("trace") / name
    write_chrome(timeline, path)
    back = read_chrome(path)
    for column in COLUMNS:
        mine, theirs = getattr(timeline, column), getattr(back, column)
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes(), column
    assert back.about() == timeline.about()


@given(timelines())
@settings(max_examples=60, deadline=None)
def test_bars_of_a_track_nest_and_time_runs_forward(tmp_path_factory, timeline):
    trace = written(timeline, tmp_path_factory.mktemp("trace"))
    stamps = [event["ts"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert stamps == sorted(stamps)
    assert min(stamps, default=0) >= 0
    tracks = defaultdict(list)
    for bar in (event for event in trace["traceEvents"] if event["ph"] == "X"):
        start = nanoseconds(bar["ts"])
        tracks[bar["pid"], bar["tid"]].append((start, start + nanoseconds(bar["dur"])))
    assert all(crossings(bars) == [] for bars in tracks.values())
    assert len({tid for _, tid in tracks}) == len(tracks), "two tracks share a thread number"


def written(timeline, folder) -> dict:
    path = folder / "trace.json"
    write_chrome(timeline, path)
    return json.loads(path.read_text())


def nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)  # as Perfetto reads a number


def crossings(bars: list[tuple[int, int]]) -> list[tuple]:
    """Pairs that overlap without nesting, in file order, as Perfetto's slice tracker sees them."""
    found, open_bars = [], []
    for start, end in bars:
        while open_bars and open_bars[-1][1] <= start:
            open_bars.pop()
        if open_bars and open_bars[-1][1] < end:
            found.append((open_bars[-1], (start, end)))
        open_bars.append((start, end))
    return found


def test_tracks_are_the_ranks_in_order(tmp_path):
    trace = written(one_f_one_b(stages=4, micro_batches=2).simulate(), tmp_path)
    names, order = {}, {}
    for event in trace["traceEvents"]:
        if event["name"] == "thread_name":
            names[event["tid"]] = event["args"]["name"]
        if event["name"] == "thread_sort_index":
            order[event["tid"]] = event["args"]["sort_index"]
    assert [names[tid] for tid in sorted(names, key=order.get)] == [
        f"rank {r} (stage {r})" for r in range(4)
    ]
    assert {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"} == {
        "replica 0"
    }


def test_a_unit_is_shown_as_a_millisecond_and_the_file_says_so(tmp_path):
    trace = written(gpipe(stages=2, micro_batches=1).simulate(forward=1, backward=2), tmp_path)
    first = next(event for event in trace["traceEvents"] if event["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"]) == ("F0", 0, 1000)
    assert "1 ms stands for 1 unit" in trace["otherData"]["pplab"]["time"]


def test_every_message_has_one_arrow_inside_its_two_bars(tmp_path):
    """Each arrow lies in the bar that makes the message and in the one that waits for it."""
    stages, micro_batches = 4, 3
    timeline = one_f_one_b(stages=stages, micro_batches=micro_batches).simulate(latency=0.5)
    events = written(timeline, tmp_path)["traceEvents"]
    arrows = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]][event["ph"]] = enclosing(events, event)
    assert len(arrows) == 2 * (stages - 1) * micro_batches
    for ends in arrows.values():
        made, used = ends["s"]["args"], ends["f"]["args"]
        assert made["kind"] == used["kind"] and made["micro_batch"] == used["micro_batch"]
        assert used["slice"] - made["slice"] == (1 if made["kind"] == "F" else -1)
        assert made["end"] <= used["start"]


def enclosing(events, arrow) -> dict:
    """The one bar of the arrow's track around its time; the later one where two touch."""
    at = nanoseconds(arrow["ts"])
    around = [
        event
        for event in events
        if event["ph"] == "X"
        and event["tid"] == arrow["tid"]
        and nanoseconds(event["ts"]) <= at < nanoseconds(event["ts"]) + nanoseconds(event["dur"])
    ]
    assert len(around) == 1
    return around[0]


def test_slices_on_one_rank_need_no_arrow(tmp_path):
    """At the foot of a V both slices live on one rank: nothing is sent."""
    columns = {"rank": [0, 0], "kind": [0, 0], "micro_batch": [0, 0], "chunk": [0, 1]}
    columns |= {"start": [0.0, 1.0], "end": [1.0, 2.0]}
    trace = written(Timeline.of(columns, Layout(1, 2, "v")), tmp_path)
    assert [event["ph"] for event in trace["traceEvents"] if event["ph"] in "sf"] == []


def test_a_span_that_crosses_another_gets_its_own_track(tmp_path):
    columns = {"rank": [0, 0], "start": [0.0, 0.5], "end": [1.0, 1.5], "micro_batch": [0, 1]}
    trace = written(Timeline.of(columns, Layout(1)), tmp_path)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["rank 0 (stage 0)", "rank 0 (stage 0), overlapping"]


def test_a_rank_without_spans_keeps_its_track(tmp_path):
    trace = written(Timeline.of({"start": [0.0], "end": [1.0]}, Layout(3)), tmp_path)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["rank 0 (stage 0)", "rank 1 (stage 1)", "rank 2 (stage 2)"]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_time_that_is_not_finite_is_refused(tmp_path, bad):
    timeline = Timeline.of({"start": [0.0], "end": [bad]}, Layout(1))
    with pytest.raises(TraceError, match="not finite"):
        write_chrome(timeline, tmp_path / "trace.json")


@pytest.mark.parametrize("end", [2e6, 1e300])
def test_a_trace_too_long_to_count_is_refused(tmp_path, end):
    with pytest.raises(TraceError, match="13 days"):
        write_chrome(Timeline.of({"start": [0.0], "end": [end]}, Layout(1)), tmp_path / "t.json")


def test_equal_timelines_give_equal_gzip_files(tmp_path):
    timeline = gpipe(stages=2, micro_batches=2).simulate()
    write_chrome(timeline, tmp_path / "one.json.gz")
    write_chrome(timeline, tmp_path / "two.json.gz")
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()
