"""Tables of spans: written and read back exactly, and what is said when they cannot be."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.schedules import gpipe
from pplab.core.timeline import COLUMNS, Timeline
from pplab.traces import TraceError, TraceWarning, load, read, write
from pplab.traces.tables import WRITERS
from tests.unit.test_traces_chrome import timelines


@given(timelines(), st.sampled_from([*WRITERS, ".json", ".json.gz"]))
@settings(max_examples=120, deadline=None)
def test_what_was_written_is_read_to_the_last_bit(tmp_path_factory, timeline, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("table") / f"t{ending}"
    write(timeline, path)
    found = load(path)
    assert found.notes == ()
    for column in COLUMNS:
        mine, theirs = getattr(timeline, column), getattr(found.timeline, column)
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes(), column
    assert found.timeline.about() == timeline.about()


@pytest.fixture
def simple() -> Timeline:
    return gpipe(stages=2, micro_batches=2).simulate()


def test_the_name_says_nothing_about_the_format_when_reading(tmp_path, simple):
    for ending in WRITERS:
        if ending == ".parquet":
            pytest.importorskip("pyarrow")
        write(simple, tmp_path / f"t{ending}")
        (tmp_path / f"t{ending}").rename(tmp_path / "something")
        assert read(tmp_path / "something") == simple


def test_another_ending_is_refused(tmp_path, simple):
    with pytest.raises(TraceError, match=r"has to end in one of \.json, .*\.csv, \.parquet"):
        write(simple, tmp_path / "t.xlsx")


def test_without_pyarrow_it_is_said_what_to_do(tmp_path, simple, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match="pip install pyarrow"):
        write(simple, tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(TraceError, match="pip install pyarrow"):
        read(tmp_path / "t.parquet")


def test_csv_is_plain(tmp_path, simple):
    write(simple, tmp_path / "t.csv")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines[0].startswith("# pplab {")
    assert lines[1] == "step,replica,rank,kind,micro_batch,chunk,start,end"
    assert lines[2] == "0,0,0,F,0,0,0.0,1.0"
    assert len(lines) == 2 + len(simple)


def test_a_table_of_somebody_else_is_read(tmp_path, simple):
    """Columns in another order, one more, no labels: seconds, and the least layout that fits."""
    rows = [f"{s.start},{s.end},{s.op.kind},{s.op.micro_batch},x,{s.rank},0,0,0" for s in simple]
    head = "start,end,kind,micro_batch,note,rank,chunk,step,replica"
    path = tmp_path / "t.csv"
    path.write_text("\n".join([head, *reversed(rows)]))
    with pytest.warns(TraceWarning, match="taken as seconds"):
        found = read(path)
    assert found == simple and found.unit == "s"


def test_a_cut_table_gives_the_rows_before_the_cut(tmp_path, simple):
    write(simple, tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text().rstrip()
    (tmp_path / "t.csv").write_text(text[: text.rindex(",")])
    found = load(tmp_path / "t.csv")
    assert len(found.timeline) == len(simple) - 1
    assert "cut short" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# pplab {}\nstep,replica,rank,kind\n", "has no column micro_batch"),
        ("# pplab {nonsense\nstep\n", "its first line holds no labels"),
        (
            "step,replica,rank,kind,micro_batch,chunk,start,end\n0,0,0,Z,0,0,0,1\n0,0,0,F,0,0,0,1\n",
            "line 2: a cell is missing or no number",
        ),
        (
            "step,replica,rank,kind,micro_batch,chunk,start,end\n0,0,0,F,0,0,2,1\n",
            "ends before it starts",
        ),
    ],
)
def test_a_damaged_table_is_refused_with_a_sentence(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TraceError, match=says):
        read(tmp_path / "t.csv")


def test_other_parquet_and_npz_files_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(TraceError, match="has no column step"):
        read(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(TraceError, match="damaged Parquet file"):
        read(tmp_path / "b.parquet")
    np.savez(tmp_path / "a.npz", start=[1])
    with pytest.raises(TraceError, match="no timeline that pplab saved"):
        read(tmp_path / "a.npz")


def test_two_tables_are_two_timelines(tmp_path, simple):
    for name in "ab":
        write(simple, tmp_path / f"{name}.csv")
    with pytest.raises(TraceError, match=r"read a\.csv, b\.csv one by one"):
        read([tmp_path / "a.csv", tmp_path / "b.csv"])
