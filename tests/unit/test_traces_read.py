"""One door for all formats: recognised by content, whatever the name; and what it says if not."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pplab
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.traces import TraceError, TraceWarning, load, read, recognise, write
from pplab.traces.reading import FORMATS
from tests.unit.kineto_files import write_ranks
from tests.unit.nsys_files import Nvtx, build
from tests.unit.test_traces_kineto import simulated


def test_every_format_has_what_it_takes():
    import importlib

    for name in FORMATS:
        module = importlib.import_module(name)
        assert isinstance(module.FORMAT, str)
        assert callable(module.recognises) and callable(module.read_files)


def test_formats_are_told_by_content(tmp_path):
    plan = simulated(gpipe(2, 2))
    paths = {"kineto": write_ranks(tmp_path, plan)[0]}
    for name in ("ours.json", "ours.csv", "ours.npz"):
        write(plan, tmp_path / name)
    paths |= {"ours": tmp_path / "ours.json", "tables": tmp_path / "ours.csv"}
    paths["nsys"] = build(tmp_path / "n.sqlite", [Nvtx("F0", 0, 1)])
    paths["logs"] = tmp_path / "l"
    paths["logs"].write_text("stage=0 layers=3\n")
    for number, (module, path) in enumerate(paths.items()):
        data = path.read_bytes()
        for packed in (False, True) if module not in ("nsys",) else (False,):
            other = tmp_path / f"file-{number}-{packed}"
            other.write_bytes(gzip.compress(data) if packed else data)
            assert recognise(other).__name__ == f"pplab.traces.{module}"


def test_a_directory_is_read_in_its_best_format(tmp_path):
    """The record of a profiled run: traces of the ranks, the timeline, logs, a JSON of its own."""
    timeline = simulated(one_f_one_b(2, 2))
    write_ranks(tmp_path, timeline)
    timeline.save(tmp_path / "timeline.npz")
    (tmp_path / "run.json").write_text('{"format": 1, "job": {}}')
    (tmp_path / "rank-0.log").write_text("stage=0 layers=3\n")
    found = load(tmp_path)
    assert [path.name for path in found.files] == ["trace-rank-0.json", "trace-rank-1.json"]
    (note,) = found.notes
    assert note.endswith("only the trace of the PyTorch profiler was read, not timeline.npz")
    with pytest.warns(TraceWarning, match=r"not timeline\.npz"):
        read(str(tmp_path))


def test_our_own_trace_cut_short_gives_the_spans_before_the_cut(tmp_path):
    timeline = simulated(one_f_one_b(3, 4))
    write(timeline, tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    (tmp_path / "t.json").write_text(text[: len(text) // 2])
    found = load(tmp_path / "t.json")
    assert 0 < len(found.timeline) < len(timeline)
    assert "cut short" in found.notes[0] and "are guessed" in found.notes[0]
    rows = {tuple(span) for span in timeline}
    assert {tuple(span) for span in found.timeline} <= rows
    (tmp_path / "t.json").write_text(text[:60])
    with pytest.raises(TraceError, match="cut short"):
        load(tmp_path / "t.json")


def test_refusals_say_what_is_wrong(tmp_path):
    timeline = simulated(gpipe(2, 2))
    files = write_ranks(tmp_path, timeline)
    write(timeline, tmp_path / "t.csv")
    cases = {
        "does not exist": tmp_path / "nowhere",
        "no file was given": [],
        "different formats, read them one by one": [*files, tmp_path / "t.csv"],
    }
    (tmp_path / "empty").mkdir()
    cases["no file in .*empty is in a format"] = tmp_path / "empty"
    for name, data in {
        "zero": b"",
        "picture": b"\x89PNG\r\n\x1a\n rest",
        "yaml": b"a: 1\n",
    }.items():
        (tmp_path / name).write_bytes(data)
    cases |= {"zero is empty": tmp_path / "zero", r"begins with 89 50 4e": tmp_path / "picture"}
    cases["begins with 'a: 1"] = tmp_path / "yaml"
    for says, what in cases.items():
        with pytest.raises(TraceError, match=says):
            load(what)
    with pytest.raises(TraceError, match="align is True, False or 'auto'"):
        load(files, align="perhaps")
    with pytest.raises(TraceError, match="at least one stage"):
        load(files, stages=0)


STARTS = [
    b"", b"[", b'{"traceEvents":[\n', b"{", b"SQLite format 3\0", b"PAR1", b"PK\x03\x04start.npy",
    b"\x1f\x8b\x08\0", b"# pplab {}\n",
]  # fmt: skip


@given(st.binary(min_size=1, max_size=300), st.sampled_from(STARTS))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_a_sentence(tmp_path_factory, data, start):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(start + data)
    with pytest.raises(TraceError) as caught:
        load(path)
    assert "file" in str(caught.value)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_damage_of_a_profiler_trace_gives_a_timeline_or_a_sentence(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damage")
    (path,) = write_ranks(folder, simulated(gpipe(1, 2)))
    changed = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(changed)
    try:
        assert load(path).timeline.stages >= 1
    except TraceError as error:
        assert str(error)


def test_events_that_make_no_sense_are_left_out(tmp_path):
    good = {"ph": "X", "name": "F0", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    odd = [
        {**good, "ts": "soon"}, {**good, "dur": None}, {"ph": "X", "name": "F1"},
        {**good, "name": 7}, {**good, "ts": 1e400}, {"ph": "E", "ts": 3, "pid": 9, "tid": 9},
        {"ph": "X", "name": "B0", "ts": 5, "dur": -1, "pid": 1, "tid": 1},
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [*odd, good]}))
    found = load(tmp_path / "t.json")
    assert len(found.timeline) == 1 and "events without a usable time" in found.notes[0]


def test_the_summary_says_what_was_found(tmp_path):
    found = load(write_ranks(tmp_path, simulated(one_f_one_b(2, 4))))
    words = str(found)
    assert words.startswith("trace of the PyTorch profiler, 2 files: 2 ranks, 2 steps of 4 micro-")
    assert f"{found.timeline.typical.bubble:.1%} idle (rank 0: " in words
    assert pplab.traces.read is read
