"""Real runs, seen by a profiler and read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab.core.layout import Layout
from pplab.core.ops import B, F, U
from pplab.core.schedules import interleaved, zb_h1
from pplab.core.timeline import Timeline
from pplab.runtime.launch import free_port
from pplab.traces import load, read
from pplab.traces.clocks import TOLERANCE
from tests.measuring import measured

MS = 0.001
WHAT = ("step", "replica", "rank", "kind", "micro_batch", "chunk")


def same_operations(read_back: Timeline, recorded: Timeline, kinds: str) -> None:
    """Every operation once, at the same place."""
    mine, theirs = read_back.only(kinds=kinds), recorded.only(kinds=kinds)
    for name in WHAT:
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name


@measured
def test_a_profiled_run_reads_back(clean: str) -> None:
    """Split backward passes, two steps: every span once, and the same bubble."""
    run = pplab.run(
        zb_h1(3, 4), pplab.models.paced(4 * MS, 8 * MS), steps=2, profile=True, quiet=True
    )
    found = load(run.traces)
    assert found.notes == () and found.missing == ()
    assert found.timeline.layout == run.timeline.layout
    assert found.timeline.schedule == run.timeline.schedule
    assert found.timeline.source == "measured: paced, seen by a profiler"
    same_operations(found.timeline, run.timeline, "FBWURGL")
    # the range of an operation lies within its span, which is two clock readings around it
    difference = found.timeline.typical.bubble - run.timeline.typical.bubble
    assert abs(difference) < 0.03
    # a send for each message: to and fro over two links, four micro-batches
    assert found.timeline.only(step=0, kinds="S").measures.timeline.kind.size == 2 * 2 * 4
    # the run's own directory, in which there is also the recorded timeline
    with pytest.warns(pplab.traces.TraceWarning, match=r"not timeline\.npz"):
        assert read(run.directory) == found.timeline


def test_chunks_and_replicas_read_back_and_a_rank_may_be_missing(clean: str) -> None:
    run = pplab.run(
        interleaved(2, 2), pplab.models.paced(2 * MS, 4 * MS), replicas=2, steps=1,
        profile=True, quiet=True,
    )  # fmt: skip
    found = load(run.traces)
    assert found.timeline.layout == run.timeline.layout
    same_operations(found.timeline, run.timeline, "FBURGL")
    files = [path for path in run.traces if "rank-1" not in path.name]
    assert len(files) == 3
    assert load(files).missing == ()  # the other replica has that stage
    only_last = [path for path in run.traces if "rank-0" not in path.name][-1:]
    partial = load(only_last)
    assert len(partial.missing) == 1 and "is missing" in partial.notes[0]


#: Stands for Nsight Systems: runs the program, then writes what the ranks' NVTX calls left behind.
NSYS = """\
#!{python}
import json, os, pathlib, subprocess, sys
sys.path.insert(0, {root!r})
from tests.unit.nsys_files import Nvtx, build
arguments = sys.argv[1:]
assert arguments.pop(0) == "profile"
options = []
while arguments[0].startswith("--"):
    options.append(arguments.pop(0))
(out,) = [o.removeprefix("--output=") for o in options if o.startswith("--output=")]
code = subprocess.call(arguments)
rows = [json.loads(line) for file in pathlib.Path({nvtx!r}).glob("*.jsonl")
        for line in file.read_text().splitlines()]
if "--export=sqlite" in options:
    build(pathlib.Path(out + ".sqlite"), [Nvtx(*row) for row in rows])
pathlib.Path(out + ".json").write_text(json.dumps([options, arguments]))
sys.exit(code)
"""
#: Stands for NVIDIA's package nvtx, with the part of its interface that is used.
NVTX = """\
import atexit, json, os, pathlib, threading, time
_open, _rows = [], []
def _tid(): return threading.get_native_id() & 0xFFFFFF
def push_range(message): _open.append((message, time.perf_counter_ns()))
def pop_range():
    name, start = _open.pop()
    _rows.append([name, start, time.perf_counter_ns(), os.getpid() & 0xFFFFFF, _tid(), 59])
def mark(message): _rows.append([message, time.perf_counter_ns(), None, os.getpid(), _tid(), 34])
@atexit.register
def _write():
    text = "".join(json.dumps(row) + chr(10) for row in _rows)
    pathlib.Path({nvtx!r}, str(os.getpid()) + ".jsonl").write_text(text)
"""


@pytest.fixture
def fake_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    rows = tmp_path / "rows"
    for path in (folder, rows, tmp_path / "lib"):
        path.mkdir()
    root = str(Path(__file__).parents[2])
    script = folder / "nsys"
    script.write_text(NSYS.format(python=sys.executable, root=root, nvtx=str(rows)))
    script.chmod(0o755)
    (tmp_path / "lib" / "nvtx.py").write_text(textwrap.dedent(NVTX.format(nvtx=str(rows))))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    return folder


def test_a_run_under_nsys(fake_nsys: Path) -> None:
    """Wrapped for real, with a stand-in for nsys (which is not installed here) that records its
    arguments, and the NVTX calls of the ranks in the layout of its export."""
    pplab.cool()  # the server hands its environment on
    run = pplab.run(zb_h1(2, 2), pplab.models.paced(2 * MS, 4 * MS), steps=2, nsys=True, quiet=True)
    pplab.cool()
    assert run.job.launcher == "deepspeed" and run.warnings == []
    (report,) = run.reports
    options, command = json.loads(report.with_suffix(".json").read_text())
    assert "--trace=cuda,nvtx" in options and Path(command[0]).name == "deepspeed"
    found = load(report)
    assert found.format.startswith("SQLite export of Nsight Systems") and found.missing == ()
    assert found.timeline.schedule == run.timeline.schedule
    same_operations(found.timeline, run.timeline, "FBWURGL")


def test_nsys_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OSError, match="install nsight-systems-cli"):
        pplab.run(zb_h1(2, 2), nsys=True)


def test_a_real_trace_of_torch_pipelining(tmp_path: Path) -> None:
    """Two ranks of another program: its names, its steps, and the waits inside its ranges."""
    script = Path(__file__).with_name("torch_pipeline.py")
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), port, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    found = load(tmp_path)
    assert found.details["convention"] == "torch.distributed.pipelining" and found.notes == ()
    timeline = found.timeline
    assert timeline.layout == Layout(2) and len(timeline.steps) == 2
    for step in timeline.steps:
        for rank in range(2):
            mine = [s.op for s in timeline.only(step=step, kinds="FBU") if s.rank == rank]
            assert mine == [*map(F, range(4)), *map(B, range(4)), U()]
    # with its wait cut off, no pass begins before the one whose message it needs
    for step in timeline.steps:
        one = timeline.only(step=step)
        link = {(s.rank, s.op): s for s in one}
        for m in range(4):
            assert link[0, F(m)].start <= link[1, F(m)].start + TOLERANCE / 1e9
            assert link[1, B(m)].start <= link[0, B(m)].start + TOLERANCE / 1e9
