"""Profiler traces of all ranks become one timeline: names, steps, places, clocks, missing ranks."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.layout import Layout
from pplab.core.ops import CODE
from pplab.core.schedules import dualpipev, gpipe, interleaved, one_f_one_b, zb_h1
from pplab.core.timeline import Span, Timeline
from pplab.traces import TraceError, TraceWarning, load, read
from tests.unit.core_strategies import random_schedule
from tests.unit.kineto_files import document, event, write_ranks

SHARED = Path(os.environ.get("PPLAB_SHARED", Path(__file__).parents[3] / "shared"))
HTA = SHARED / "traces" / "hta"
MS = 1e-3


def simulated(plan, steps: int = 2, latency: float = 0.3 * MS) -> Timeline:
    """A few steps of a schedule, one after the other, in seconds."""
    one = plan.simulate(
        forward=1.0 * MS, backward=2.0 * MS, latency=latency, update=0.5 * MS, unit="s"
    )
    length = float(one.end.max()) + 1 * MS
    columns = {name: np.tile(column, steps) for name, column in one.columns().items()}
    later = np.repeat(np.arange(steps), len(one))
    columns["step"], shift = later, later * length
    columns["start"] = columns["start"] + shift
    columns["end"] = columns["end"] + shift
    return Timeline.of(columns, one.layout, unit="s", schedule=plan.name)


def same(found: Timeline, wanted: Timeline, within: float = 1e-8) -> None:
    """The same operations; times within a few nanoseconds (files count in 0.001 us)."""
    assert found.layout == wanted.layout
    for name in ("step", "replica", "rank", "kind", "micro_batch", "chunk"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
    apart = (found.start - wanted.start) - (found.start[0] - wanted.start[0])
    assert np.abs(apart).max() <= within
    assert np.abs((found.end - found.start) - (wanted.end - wanted.start)).max() <= within


def noted(timeline: Timeline):
    """What our ranks note in their traces."""
    layout = timeline.about()["layout"]
    return lambda stage, replica: {
        "stage": stage, "replica": replica, "layout": layout, "schedule": timeline.schedule,
        "source": "measured: paced, seen by a profiler",
    }  # fmt: skip


@given(
    st.sampled_from([Layout(1), Layout(3), Layout(2, 2), Layout(2, 2, "v"), Layout(2, 3)]),
    st.integers(1, 4), st.integers(0, 2**32), st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_what_our_ranks_write_reads_back(tmp_path_factory, layout, micro_batches, seed, marks):
    """Any valid schedule, chunks and split backward passes too, steps marked or not."""
    timeline = simulated(random_schedule(layout, micro_batches, seed))
    folder = tmp_path_factory.mktemp("kineto")
    paths = write_ranks(folder, timeline, marks=marks, about=noted(timeline))
    found = load(paths)
    assert found.notes == () and found.missing == ()
    same(found.timeline, timeline)
    assert found.timeline.schedule == timeline.schedule
    assert found.timeline.source == "measured: paced, seen by a profiler"
    assert read(folder) == found.timeline


# -- names of other programs ----------------------------------------------------------------------


def torch_names(layout: Layout):
    """As torch.distributed.pipelining's runtime calls its actions."""

    def name(span: Span) -> str:
        if span.op.kind == "U":
            return "Optimizer.step#Adam.step"
        stage = layout.slice_of(span.rank, span.op.chunk)
        return f"PP:{stage}{span.op.kind}{span.op.micro_batch}"

    return name


@pytest.mark.parametrize("plan", [one_f_one_b(3, 4), interleaved(2, 4), dualpipev(2, 4)], ids=str)
def test_stages_of_torch_pipelining_tell_chunks_and_placement(tmp_path, plan):
    timeline = simulated(plan)
    write_ranks(tmp_path, timeline, name=torch_names(timeline.layout), marks=True)
    found = load(tmp_path)
    assert found.notes == ()
    same(found.timeline, timeline)
    assert found.details["convention"] == "torch.distributed.pipelining"


def test_split_backward_passes_and_messages_of_torch_pipelining(tmp_path):
    events = [
        event("PP:0F0", 0, 1), event("PP:0SEND_F0", 1, 1.1), event("PP:0RECV_B0", 1.1, 1.2),
        event("PP:0I0", 3, 4), event("PP:0W0", 4, 5), event("PP:0REDUCE_GRAD", 5, 6),
    ]  # fmt: skip
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    spans = [(str(s.op), s.start) for s in load(tmp_path / "rank0.json").timeline]
    assert spans == [("F0", 0), ("S0", 1), ("R0", 1.1), ("B0", 3), ("W0", 4), ("G", 5)]


def test_the_wait_inside_a_range_is_cut_off(tmp_path):
    """gloo says when a message arrived: in the range itself, or posted before, by name."""
    inside = [
        event("Forward 0", 0, 5), event("gloo:recv", 0.5, 3), event("gloo:send", 4.75, 9),
        event("Forward 1", 5, 7), event("gloo:recv", 5.1, 5.5), event("Backward 0", 7, 9),
        event("Backward 1", 9, 11),
    ]  # fmt: skip
    (tmp_path / "rank0.json").write_text(json.dumps(document(inside)))
    spans = [(str(s.op), s.start, s.end) for s in load(tmp_path / "rank0.json").timeline]
    assert spans[:3] == [("R0", 0, 3), ("F0", 3, 4.75), ("S0", 4.75, 5)]
    assert spans[3:5] == [("R1", 5, 5.5), ("F1", 5.5, 7)]

    posted = [
        event("PP:1RECV_F0", 0, 0.2), event("gloo:recv", 0.1, 3), event("PP:1RECV_F1", 0.2, 0.4),
        event("gloo:recv", 0.3, 4.5), event("PP:1F0", 0.4, 4), event("PP:1F1", 4, 6),
    ]  # fmt: skip
    about = document(posted, rank=1, world=2)
    (tmp_path / "rank1.json").write_text(json.dumps(about))
    first = document([event("PP:0F0", 0, 1), event("PP:0F1", 1, 2)], rank=0, world=2)
    (tmp_path / "rank0.json").write_text(json.dumps(first))
    found = load([tmp_path / "rank0.json", tmp_path / "rank1.json"]).timeline
    spans = [(str(s.op), round(s.start, 6), round(s.end, 6)) for s in found if s.rank == 1]
    assert ("F0", 3, 4) in spans and ("F1", 4.5, 6) in spans and ("R0", 0.4, 3) in spans


def test_two_passes_in_one_range_are_not_counted_twice(tmp_path):
    events = [event("PP:0F0", 0, 1), event("PP:(0F1;0B0)OVERLAP_F_B", 1, 4)]
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    found = load(tmp_path / "rank0.json")
    assert "OVERLAP_F_B" in found.notes[0]
    assert found.timeline.measures.busy == pytest.approx([4.0])


def test_passes_without_numbers_are_counted(tmp_path):
    """Megatron's timers and DeepSpeed's engine do not number their ranges."""
    timeline = simulated(one_f_one_b(2, 3))
    timers = {"F": "forward-compute", "B": "backward-compute", "U": "optimizer"}
    write_ranks(tmp_path, timeline, name=lambda span: timers[span.op.kind])
    found = load(tmp_path)
    same(found.timeline, timeline)  # steps: each ends with its update
    engine = {"F": "DeepSpeedEngine.forward", "B": "DeepSpeedEngine.backward"}
    write_ranks(tmp_path, timeline, name=lambda span: engine.get(span.op.kind), marks=True)
    same(load(tmp_path).timeline, timeline.only(kinds="FB"))


def test_own_names(tmp_path):
    timeline = simulated(zb_h1(2, 3))
    words = {"F": "fwd", "B": "bwd", "W": "wgrad", "U": "adam"}

    def name(span: Span) -> str:
        m = "" if span.op.kind == "U" else f" mb={span.op.micro_batch}"
        return f"{words[span.op.kind]}{m}"

    paths = write_ranks(tmp_path, timeline, name=name)
    with pytest.raises(TraceError, match=r"'fwd mb=0' \(4\).*or say which names mean what"):
        load(paths)
    names = {rf"{word} mb=(?P<micro_batch>\d+)": kind for kind, word in words.items()}
    same(load(paths, names=names | {"adam": "U"}).timeline, timeline)
    one = r"(?P<kind>f)wd mb=(?P<micro_batch>\d+)|(?P<stage>x)"
    assert set(load(paths, names=one).timeline.kind) == {CODE["F"]}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"(": "F"}, "no regular expression"),
        ({"fwd": "Z"}, "needs a kind"),
        ("fwd", "needs a kind"),
        ({"(?P<mb>.)": "F"}, "groups are kind, micro_batch, chunk and stage"),
        ({"F(?P<micro_batch>.)|PP.*": "F"}, "no pipeline"),
    ],
)
def test_names_that_cannot_be_used_are_refused(tmp_path, names, says):
    paths = write_ranks(tmp_path, simulated(gpipe(2, 2)), name=lambda s: "work")
    with pytest.raises(TraceError, match=says):
        load(paths, names=names)


def test_phases_of_megatron_are_named_in_the_refusal(tmp_path):
    where = "megatron.core.pipeline_parallel.schedules.forward_backward_pipelining"
    names = [f"{where}.{phase}" for phase in ("warmup", "steady", "cooldown")]
    events = [event(name, i, i + 1) for i, name in enumerate(names)]
    (tmp_path / "a.json").write_text(json.dumps(document(events)))
    with pytest.raises(TraceError, match="only the phases of a step"):
        load(tmp_path / "a.json")


# -- times of the GPU -----------------------------------------------------------------------------


def test_times_of_the_gpu_are_taken_where_there_are_any(tmp_path):
    """The CPU queues F0, F1 at once; the stream runs them one after the other, later."""
    events = [event("ProfilerStep#3", 0, 0.5)]
    for i, name in enumerate(["F0", "F1", "B0", "B1"]):
        events.append(event(name, 0.1 * i, 0.1 * i + 0.05))
        events.append(event(name, 1.0 + i, 1.9 + i, "gpu_user_annotation", pid=0, tid=7))
        events.append(event(name, 1.0 + i, 1.1 + i, "gpu_user_annotation", pid=0, tid=20))
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    found = load(tmp_path / "rank0.json")
    assert [(str(s.op), s.start) for s in found.timeline] == [
        ("F0", 0), ("F1", 1), ("B0", 2), ("B1", 3)
    ]  # fmt: skip
    assert found.timeline.steps == (3,) and found.notes == ()
    events = [e for e in events if not (e["name"] == "B1" and e["cat"] != "user_annotation")]
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    assert "1 of 4 ranges have no counterpart on the GPU" in load(tmp_path / "rank0.json").notes[0]


# -- clocks ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(-2.0, 2.0), min_size=4, max_size=4), st.booleans())
@settings(max_examples=30, deadline=None)
def test_clocks_are_put_right_within_the_error_that_is_stated(tmp_path_factory, late, hosts):
    timeline = simulated(one_f_one_b(4, 6))
    names = [f"host{i}" for i in range(4)] if hosts else None
    paths = write_ranks(
        tmp_path_factory.mktemp("skew"), timeline, late=late, hosts=names, about=noted(timeline)
    )
    found = load(paths)
    assert found.residual is not None
    shifts = found.details["clock_shifts"]
    for rank in range(1, 4):
        true = -(late[rank] - late[0])
        assert abs(shifts[rank] - shifts[0] - true) <= rank * found.residual + 1e-6
    if hosts:  # the least way takes 0.3 ms each way, so the middle is right to the nanosecond
        same(found.timeline, timeline, within=1e-6)
        assert all("different clocks" in note or "disagree" in note for note in found.notes)


def test_a_skew_is_told_and_can_be_left(tmp_path):
    timeline = simulated(one_f_one_b(2, 4))
    paths = write_ranks(tmp_path, timeline, late=[0, 0.02])
    found = load(paths)
    assert "rank 1 disagree: a message arrives" in found.notes[0]
    assert "rank 1 was moved 20 ms earlier" in found.notes[0]
    assert "may still be 300 µs off" in found.notes[0]
    same(found.timeline, timeline, within=1e-6)
    left = load(paths, align=False)
    assert "disagree" in left.notes[0] and "moved" not in left.notes[0]
    assert left.details["clock_shifts"] == [0, 0]


def test_a_message_may_leave_before_its_range_ends(tmp_path):
    """Ranges of torch hold the sending: what arrives within them proves no clock wrong."""
    timeline = simulated(one_f_one_b(2, 4), latency=0)
    ranges = torch_names(timeline.layout)
    found = load(write_ranks(tmp_path, timeline, name=ranges, late=[0, -0.5 * MS], marks=True))
    assert found.notes == () and found.details["clock_shifts"] == [0, 0]
    found = load(write_ranks(tmp_path, timeline, name=ranges, late=[0, -9 * MS], marks=True))
    assert found.residual is not None  # of the estimate, with the length of the passes in it
    assert abs(found.details["clock_shifts"][1] - 9 * MS) <= found.residual < 4 * MS


def test_clocks_that_agree_are_left_alone(tmp_path):
    timeline = simulated(one_f_one_b(3, 4))
    found = load(write_ranks(tmp_path, timeline))
    assert found.details["clock_shifts"] == [0, 0, 0] and found.notes == ()
    forced = load(sorted(tmp_path.glob("*.json")), align=True)
    same(forced.timeline, timeline, within=1e-6)


def test_a_clock_that_drifts_is_named(tmp_path):
    timeline = simulated(one_f_one_b(2, 4))
    drift = Timeline.of(
        {**timeline.columns(), "start": timeline.start * (1 + 0.5 * timeline.rank),
         "end": timeline.end * (1 + 0.5 * timeline.rank)}, timeline.layout, unit="s",
    )  # fmt: skip
    (note,) = load(write_ranks(tmp_path, drift)).notes
    assert "did a clock drift" in note


def test_collectives_help_where_messages_go_one_way(tmp_path):
    """Only forward passes: they say that a clock is wrong, the collectives by how much."""
    timeline = simulated(gpipe(2, 3)).only(kinds="F")
    late = [0, -0.5]

    def kernels(rank: int) -> list[dict]:
        args = {"Collective name": "allreduce", "Group size": 2}
        return [
            event("ncclDevKernel_AllReduce", 100 + i + late[rank], 100.5 + i + late[rank],
                  "kernel", pid=0, tid=9, args=args)
            for i in range(3)
        ]  # fmt: skip

    found = load(write_ranks(tmp_path, timeline, late=late, after=kernels))
    same(found.timeline, timeline, within=1e-6)
    assert "may still be 0 s off" in found.notes[0]
    for path in tmp_path.glob("*.json"):
        path.unlink()
    note = load(write_ranks(tmp_path, timeline, late=late)).notes[0]
    assert "nothing says how much is still wrong" in note


# -- ranks ----------------------------------------------------------------------------------------


def test_a_missing_rank_is_named_and_left_out_of_the_idle_share(tmp_path):
    timeline = simulated(one_f_one_b(4, 8))
    paths = write_ranks(tmp_path, timeline)
    paths.pop(2).unlink()
    with pytest.warns(TraceWarning, match="rank 2 of 4 is missing"):
        assert read(tmp_path).stages == 4
    found = load(paths)
    assert found.missing == (2,) and found.present == [0, 1, 3]
    assert found.bubble == pytest.approx(timeline.bubble, abs=0.01)
    assert "3 ranks of 4" in str(found)


def test_replicas_are_numbered_as_deepspeed_does(tmp_path):
    one = simulated(one_f_one_b(2, 2))
    two = {name: np.tile(column, 2) for name, column in one.columns().items()}
    two["replica"] = np.repeat([0, 1], len(one))
    timeline = Timeline.of(two, one.layout, unit="s")
    paths = write_ranks(tmp_path, timeline)
    same(load(paths, stages=2).timeline, timeline)
    same(load(write_ranks(tmp_path, timeline, about=noted(timeline))).timeline, timeline)
    with pytest.raises(TraceError, match="4 is no multiple of 3"):
        load(write_ranks(tmp_path, timeline), stages=3)


def test_two_files_of_one_rank_are_refused(tmp_path):
    (path,) = write_ranks(tmp_path, simulated(gpipe(1, 2)))
    again = tmp_path / "again.json"
    again.write_bytes(path.read_bytes())
    with pytest.raises(TraceError, match=r"both of rank 0: give one file per rank"):
        load([path, again])


def test_a_merged_file_holds_a_process_per_rank(tmp_path):
    timeline = simulated(gpipe(2, 2))
    events = [event(str(s.op), s.start, s.end, pid=10 + s.rank) for s in timeline]
    (tmp_path / "merged.json").write_text(json.dumps(events))
    found = load(tmp_path / "merged.json")
    same(found.timeline, timeline)
    assert found.format == "Chrome trace"


def test_begin_and_end_events_are_ranges_too(tmp_path):
    timeline = simulated(gpipe(1, 3))
    events = []
    for s in timeline:
        for phase, at in (("B", s.start), ("E", s.end)):
            events.append({"ph": phase, "name": str(s.op), "ts": at * 1e6, "pid": 1, "tid": 1})
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    same(load(tmp_path / "t.json").timeline, timeline)


def test_a_cut_file_gives_what_is_there_and_says_how_much(tmp_path):
    timeline = simulated(one_f_one_b(2, 4), steps=4)
    paths = write_ranks(tmp_path, timeline)
    text = paths[1].read_bytes()
    paths[1].write_bytes(gzip.compress(text)[: len(gzip.compress(text)) * 2 // 3])
    found = load(paths)
    assert "trace-rank-1.json is cut short: its gzip data ends too early, after" in found.notes[0]
    there = found.timeline.rank == 1
    assert 0 < there.sum() < (timeline.rank == 1).sum()


# -- traces of strangers --------------------------------------------------------------------------


@pytest.fixture
def hta() -> list[Path]:
    paths = sorted(HTA.glob("*.json.gz"))
    if not paths:
        pytest.skip(f"no traces in {HTA} (set PPLAB_SHARED)")
    return paths


def test_a_real_trace_without_a_pipeline_is_refused_with_what_it_holds(hta):
    with pytest.raises(TraceError, match="no pipeline in this trace") as caught:
        load(hta)
    assert "2 ranks" in str(caught.value) and "nccl:all_reduce" in str(caught.value)


def test_a_real_trace_read_with_its_own_names(hta):
    names = {"## forward ##": "F", "## backward ##": "B", "## optimizer ##": "U"}
    found = load(hta, names=names)
    assert "2 of the 128 ranks of the job" in found.notes[0] and len(found.notes) == 1
    assert found.timeline.steps == (551, 552)
    assert (found.timeline.end - found.timeline.start).min() > 0.01
    assert len(load(hta, names=names, stages=1).timeline.replicas) == 2
