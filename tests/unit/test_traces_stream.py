"""The incremental reader sees what ``json.load`` sees, and of a damaged file what is left."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.traces import TraceError, stream
from pplab.traces.stream import EventStream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
EVENTS = st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), max_size=12)
HEADERS = st.dictionaries(st.text(max_size=5).filter(lambda k: k != "traceEvents"), VALUES)


def written(folder, text: str, packed: bool = False):
    path = folder / "t.json"
    data = text.encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@given(HEADERS, EVENTS, HEADERS, st.integers(1, 40), st.booleans(), st.sampled_from([None, 1, 4]))
@settings(max_examples=100, deadline=None)
def test_any_block_size_gives_what_json_gives(
    tmp_path_factory, before, events, after, block, packed, indent
):
    folder = tmp_path_factory.mktemp("stream")
    after = {key: value for key, value in after.items() if key not in before}
    text = json.dumps({**before, "traceEvents": events, **after}, indent=indent)
    path = written(folder, text, packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK", block)
        read = EventStream(path)
        assert list(read) == events
    assert read.header == {**before, **after}
    assert (read.cut, read.damaged, read.sentence()) == (False, 0, "")


@given(EVENTS, st.data())
@settings(max_examples=100, deadline=None)
def test_a_file_cut_anywhere_gives_the_events_before_the_cut(tmp_path_factory, events, data):
    text = json.dumps({"a": [1, {"b": 2}], "traceEvents": events})
    length = data.draw(st.integers(1, len(text) - 1))
    read = EventStream(written(tmp_path_factory.mktemp("cut"), text[:length]))
    found = list(read)
    assert found == events[: len(found)]
    assert read.cut and "cut short" in read.sentence()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_cut_gzip_file_gives_the_events_before_the_cut(tmp_path, share):
    events = [{"ph": "X", "name": f"F{i}", "ts": i * 1.5} for i in range(5000)]
    packed = gzip.compress(json.dumps({"traceEvents": events}).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: int(share * len(packed))])
    read = EventStream(path)
    found = list(read)
    assert 0 < len(found) < 5000 and found == events[: len(found)]
    assert "its gzip data ends too early" in read.sentence()


def test_damaged_gzip_data_is_named(tmp_path):
    events = [{"ph": "X", "name": f"F{i}", "ts": i * 1.5} for i in range(20_000)]
    packed = bytearray(gzip.compress(json.dumps(events).encode(), 1))
    packed[len(packed) // 2] ^= 0xFF
    packed[len(packed) // 2 + 1] ^= 0xFF
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed)
    read = EventStream(path)
    found = list(read)
    assert len(found) < 20_000 and found[:1000] == events[:1000]
    assert read.cut and "its gzip data is damaged" in read.sentence()


def test_gzip_files_in_a_row_are_one(tmp_path):
    first, second = json.dumps([{"n": 1}, {"n": 2}])[:9].encode(), b' , {"n": 2}]'
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(first) + gzip.compress(second))
    assert list(EventStream(path)) == [{"n": 1}, {"n": 2}]


def test_an_event_that_is_no_json_is_skipped_and_counted(tmp_path):
    good = [{"ph": "X", "name": f"F{i}"} for i in range(3)]
    texts = [json.dumps(event) for event in good]
    texts.insert(1, '{"ph": "X", "name": C:\\path}')
    texts.insert(3, '{"ph": "X", "name": "\\x"}')
    read = EventStream(written(tmp_path, '{"traceEvents": [' + ", ".join(texts) + "]}"))
    assert list(read) == good
    assert read.damaged == 2 and not read.cut
    assert "2 events are no valid JSON" in read.sentence()


def test_a_list_may_lack_its_last_bracket(tmp_path):
    """So does the Trace Event Format have it: a program that crashed leaves it out."""
    read = EventStream(written(tmp_path, '[{"ph": "X"}, {"ph": "X"},\n'))
    assert len(list(read)) == 2 and not read.cut


def test_control_characters_and_broken_text_do_no_harm(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(b'[{"name": "a\tb\x01"}, {"name": "\xff\xfe"}]')
    assert [event["name"] for event in EventStream(path)] == ["a\tb\x01", "\ufffd\ufffd"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "empty"), (" \n", "empty"), ("hello", "begins with"), ('{"a" 1}', "not JSON near")],
)
def test_what_is_no_json_is_refused(tmp_path, text, says):
    with pytest.raises(TraceError, match=says):
        list(EventStream(written(tmp_path, text)))


def test_a_bar_is_shown_when_asked_for(tmp_path, capsys):
    path = written(tmp_path, json.dumps([{"ph": "X"}] * 1000))
    assert len(list(EventStream(path, progress=True))) == 1000
    assert "t.json" in capsys.readouterr().err
    list(EventStream(path))
    assert capsys.readouterr().err == ""
