"""Exports of Nsight Systems: ranges, their kernels, processes, versions of the schema."""

from __future__ import annotations

import json
import sqlite3

import pytest

from pplab.core.schedules import one_f_one_b, zb_h1
from pplab.core.timeline import Timeline
from pplab.traces import TraceError, load
from tests.unit.nsys_files import DOMAIN, MARK, Kernel, Nvtx, build
from tests.unit.test_traces_kineto import noted, same, simulated

MS = 1_000_000


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def processes(timeline: Timeline, *, about: bool = False, registered: bool = False) -> list[Nvtx]:
    """The ranges of all ranks, a process each; what pplab's ranks note, when asked for."""
    rows = []
    for rank in range(timeline.stages):
        where = {"pid": 200 + rank, "tid": 300 + rank}
        if about:
            notes = {"rank": rank, "world": timeline.stages, **noted(timeline)(rank, 0)}
            rows.append(Nvtx("pplab " + json.dumps(notes), 5, None, kind=MARK, **where))
        rows += [
            Nvtx(str(s.op), ns(s.start) + 10, ns(s.end) + 10, registered=registered, **where)
            for s in timeline
            if s.rank == rank
        ]
    return rows


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("about", [False, True])
def test_ranges_of_several_processes(tmp_path, about, old):
    timeline = simulated(zb_h1(3, 4))
    path = build(tmp_path / "report.sqlite", processes(timeline, about=about), old=old)
    found = load(path)
    same(found.timeline, timeline)
    assert found.notes == () and found.missing == ()
    assert found.timeline.schedule == (timeline.schedule if about else "")


def test_registered_strings_domains_and_marked_steps(tmp_path):
    timeline = simulated(one_f_one_b(2, 3))
    rows = processes(timeline, registered=True)
    rows.append(Nvtx("DeepSpeed", 1, None, 200, 300, kind=DOMAIN))
    rows.append(Nvtx("something else", 3, 4, 200, 300))
    for rank in range(2):
        for step in timeline.steps:
            mine = timeline.only(step=step)
            begin, end = ns(mine.start.min()), ns(mine.end.max()) + 20
            rows.append(Nvtx(f"step {step + 7}", begin, end, 200 + rank, 300 + rank))
    found = load(build(tmp_path / "report.sqlite", rows)).timeline
    assert found.steps == (7, 8)
    assert (found.start - found.start[0]) == pytest.approx(timeline.start - timeline.start[0])


def test_kernels_give_the_times_where_there_are_any(tmp_path):
    """The CPU launches in its ranges, the GPU works later; NCCL's kernels wait and do not count."""
    ranges = [Nvtx("F0", 0, 10), Nvtx("F1", 10, 20), Nvtx("B0", 20, 30), Nvtx("U", 30, 40)]
    kernels = [
        Kernel(1, 1000, 1400), Kernel(5, 1400, 1500), Kernel(6, 1500, 1600, stream=13),
        Kernel(12, 2000, 2600), Kernel(13, 1600, 9000, name="ncclDevKernel_SendRecv"),
        Kernel(22, 3000, 4000), Kernel(25, 5, 6, pid=99, tid=101),
    ]  # fmt: skip
    found = load(build(tmp_path / "a.sqlite", ranges, kernels))
    spans = [(str(s.op), round(s.start * 1e9), round(s.end * 1e9)) for s in found.timeline]
    assert spans[:2] == [("U", 0, 10), ("F0", 970, 1470)]  # U launched nothing: CPU times
    assert spans[2:] == [("F1", 1970, 2570), ("B0", 2970, 3970)]
    assert "1 of 4 ranges have no counterpart on the GPU" in found.notes[0]


def test_one_file_per_host_on_clocks_of_their_own(tmp_path):
    timeline = simulated(one_f_one_b(2, 4))
    paths = []
    for rank, epoch in enumerate((1_700_000_000 * 10**9, 1_700_000_000 * 10**9 + 3 * MS)):
        rows = [row for row in processes(timeline) if row.pid == 200 + rank]
        path = tmp_path / f"rank{rank}.sqlite"
        paths.append(build(path, rows, host=f"node{rank}", epoch=epoch))
    found = load(paths)
    same(found.timeline, timeline, within=1e-6)
    assert "rank 1 was moved 3 ms earlier" in found.notes[0]
    assert found.residual == pytest.approx(0.3e-3, rel=0.01)


def test_open_ranges_are_counted(tmp_path):
    rows = [Nvtx("F0", 0, 5), Nvtx("B0", 5, None)]
    found = load(build(tmp_path / "a.sqlite", rows))
    assert len(found.timeline) == 1 and "1 ranges were still open" in found.notes[0]


def test_ranges_without_a_meaning_are_named(tmp_path):
    rows = [Nvtx("aten::mm", i, i + 1) for i in range(5)]
    with pytest.raises(TraceError, match=r"no pipeline.*'aten::mm' \(5\)"):
        load(build(tmp_path / "a.sqlite", rows))
    with pytest.raises(TraceError, match="no NVTX range was recorded"):
        load(build(tmp_path / "b.sqlite", [], [Kernel(0, 1, 2)]))


def test_other_files_are_refused_with_what_to_do(tmp_path):
    with sqlite3.connect(tmp_path / "other.sqlite") as base:
        base.execute("CREATE TABLE users (name TEXT)")
    base.close()
    with pytest.raises(TraceError, match="is an SQLite database, but no SQLite export"):
        load(tmp_path / "other.sqlite")
    path = build(tmp_path / "cut.sqlite", processes(simulated(one_f_one_b(2, 40))))
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(TraceError, match="damaged or cut SQLite file"):
        load(path)
    (tmp_path / "report.nsys-rep").write_bytes(b"\x00\x01report")
    with pytest.raises(TraceError, match=r"nsys export --type=sqlite report\.nsys-rep"):
        load(tmp_path / "report.nsys-rep")
