"""Files as other programs, editors and shells leave them behind."""

from __future__ import annotations

import json
import random

import pytest

from pplab.core.schedules import one_f_one_b
from pplab.traces import TraceError, load
from tests.unit.kineto_files import document, event
from tests.unit.test_traces_kineto import same, simulated


@pytest.fixture
def timeline():
    return simulated(one_f_one_b(1, 4))


def events_of(timeline) -> list[dict]:
    return [event(str(s.op), s.start + 1, s.end + 1) for s in timeline]


def halves(timeline, *, named: bool = True) -> list[dict]:
    """Begin and end instead of complete events."""
    result = []
    for item in events_of(timeline):
        end = {**item, "ph": "E", "ts": item["ts"] + item.pop("dur")}
        end.pop("dur")
        if not named:
            end.pop("name")
        result += [{**item, "ph": "B"}, end]
    return result


def shuffled(events: list[dict]) -> list[dict]:
    return random.Random(3).sample(events, len(events))


@pytest.mark.parametrize("change", [
    lambda t: halves(t),
    lambda t: halves(t, named=False),
    lambda t: shuffled(halves(t)),
    lambda t: shuffled(halves(t, named=False)),
    lambda t: [*halves(t), {"ph": "E", "ts": 1, "pid": 4037, "tid": 4037, "name": "never begun"}],
    lambda t: [{"ph": "B", "ts": 0, "pid": 4037, "tid": 4037, "name": "never ended"}, *halves(t)],
    lambda t: [{**e, "tid": 2**63 - 1, "pid": "host 3"} for e in events_of(t)],
    lambda t: [{**e, "ts": e["ts"] - 5e8} for e in events_of(t)],
    lambda t: [*events_of(t), {"ph": "C", "name": "memory", "ts": float("nan"), "args": {}}],
    lambda t: [*events_of(t), {"ph": "M", "name": "process_name", "pid": 4037}],
])  # fmt: skip
def test_events_of_many_shapes(tmp_path, timeline, change):
    (tmp_path / "t.json").write_text(json.dumps(document(change(timeline))))
    found = load(tmp_path / "t.json")
    assert found.notes == ()
    same(found.timeline, timeline)


@pytest.mark.parametrize("write", [
    lambda text: text.encode("utf-8-sig"),
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: b"\r\n" + text.encode(),
])  # fmt: skip
def test_texts_of_many_shapes(tmp_path, timeline, write):
    text = json.dumps(document([*events_of(timeline), event("前向 \x07", 0, 1)]), indent=1)
    (tmp_path / "t.json").write_bytes(write(text))
    same(load(tmp_path / "t.json").timeline, timeline)


def test_events_may_begin_far_behind(tmp_path, timeline):
    """A job of thousands of ranks lists its groups before its events."""
    groups = [{"pg_name": str(i), "ranks": list(range(2000))} for i in range(20)]
    about = {"distributedInfo": {"rank": 0, "world_size": 1, "pg_config": groups}}
    (tmp_path / "t.json").write_text(json.dumps({**about, "traceEvents": events_of(timeline)}))
    same(load(tmp_path / "t.json").timeline, timeline)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ph": "b", "id": 1}, "12 asynchronous events"),
        ({"ts": "1790.5"}, "12 events without a usable time"),
    ],
)
def test_events_that_are_not_read_are_named_in_the_refusal(tmp_path, timeline, change, says):
    events = [{**item, **change} for item in events_of(timeline.only(kinds="FB"))]
    events = [{**item} for item in events][:12]
    (tmp_path / "t.json").write_text(json.dumps(document(events)))
    with pytest.raises(TraceError, match=f"no named ranges at all.*{says}"):
        load(tmp_path / "t.json")


def test_utf_16_is_told_with_the_way_out(tmp_path, timeline):
    (tmp_path / "t.json").write_bytes(json.dumps(document(events_of(timeline))).encode("utf-16"))
    for path in (tmp_path / "t.json", tmp_path):
        with pytest.raises(TraceError, match=r"as PowerShell writes it.*iconv -f UTF-16"):
            load(path)


def test_folders_of_a_folder_are_named(tmp_path):
    for number in (10, 2):
        (tmp_path / f"iteration_{number}").mkdir()
    with pytest.raises(TraceError, match="read one by one: iteration_2, iteration_10"):
        load(tmp_path)
