"""Every file that is not a trace of ours is refused with a sentence, never with a traceback."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.schedules import gpipe
from pplab.core.timeline import Timeline
from pplab.traces import TraceError, read_chrome, write_chrome


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    write_chrome(gpipe(stages=2, micro_batches=2).simulate(), path)
    return path.read_bytes()


def refusal(tmp_path, data: bytes | str | dict | list) -> str:
    """The sentence with which the content is refused."""
    path = tmp_path / "trace.json"
    if isinstance(data, dict | list):
        data = json.dumps(data)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(TraceError) as caught:
        read_chrome(path)
    return str(caught.value)


def test_a_file_cut_anywhere_is_called_cut_short(tmp_path, good):
    end = len(good.rstrip())
    for length in [1, 2, 17, end // 3, end // 2, *range(end - 60, end)]:
        assert "cut short" in refusal(tmp_path, good[:length]), good[:length][-30:]


def test_a_gzip_file_cut_anywhere_is_called_cut_short_or_damaged(tmp_path, good):
    packed = gzip.compress(good)
    for length in (2, 11, len(packed) // 2, len(packed) - 1):
        assert "gzip" in refusal(tmp_path, packed[:length])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("hello", "is not JSON"),
        ('{"traceEvents": nonsense and more of the same}', "is not JSON"),
        (b"\xff\xfe\x00\x01", "not a text file"),
        ("[" * 100_000, "nested too deeply"),
        ("3", "not a Chrome trace"),
        ([1, 2], "not a Chrome trace"),
        ({"events": []}, "not a Chrome trace"),
        ({"traceEvents": {}}, "not a Chrome trace"),
    ],
)
def test_what_is_not_a_trace_is_named(tmp_path, data, says):
    assert says in refusal(tmp_path, data)


@pytest.mark.parametrize(
    "data",
    [
        {"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": 0, "dur": 1, "name": "aten::mm"}]},
        [{"ph": "X", "ts": 0, "dur": 1, "name": "work", "pid": 1, "tid": 1}],
        {"traceEvents": [], "otherData": {"version": "profiler v1"}},
    ],
)
def test_a_trace_of_another_program_is_named_as_such(tmp_path, data):
    assert "pplab did not write" in refusal(tmp_path, data)


def test_a_newer_format_is_named(tmp_path, good):
    trace = json.loads(good)
    trace["otherData"]["pplab"]["format"] = 2
    assert "another version of pplab (format 2" in refusal(tmp_path, trace)


def test_a_missing_span_is_counted(tmp_path, good):
    trace = json.loads(good)
    trace["traceEvents"].remove(next(e for e in trace["traceEvents"] if e["ph"] == "X"))
    assert "should hold 8 spans, but 7 are there" in refusal(tmp_path, trace)


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "Z"), ("row", 3), ("rank", 9), ("start", "soon"), ("start", None), ("step", 10**30)],
)
def test_a_changed_span_is_refused(tmp_path, good, field, value):
    trace = json.loads(good)
    bar = next(e for e in trace["traceEvents"] if e["ph"] == "X")
    bar["args"][field] = value
    assert "changed after it was written" in refusal(tmp_path, trace)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_damage_gives_a_timeline_or_a_sentence(tmp_path_factory, good, data):
    """Overwrite a few bytes anywhere: nothing but a timeline or a TraceError may come out."""
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "trace.json"
    path.write_bytes(changed)
    try:
        assert isinstance(read_chrome(path), Timeline)
    except TraceError as error:
        assert str(path) in str(error)
