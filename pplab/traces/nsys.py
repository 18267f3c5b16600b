"""The SQLite export of NVIDIA Nsight Systems: NVTX ranges, and the kernels launched in them.

Schema as documented in the Nsight Systems user guide ("SQLite schema reference"); tables are made
only when there is something to put in, and columns come and go between versions, so both are looked
up first. What is used:

- ``NVTX_EVENTS``: start, end (ns), eventType 59 (push/pop range), 60 (start/end range), and 70, 71
  (the same from the older NVTXT), 34 and 75 (a mark, the name of a domain), ``text``, or ``textId``
  into ``StringIds`` (registered strings), globalTid;
- ``globalTid``: hardware, VM, process id (bits 24 to 47), thread id (bits 0 to 23) in one number;
- ``CUPTI_ACTIVITY_KIND_KERNEL`` with ``CUPTI_ACTIVITY_KIND_RUNTIME``: a kernel belongs to the range
  in which its process launched it (correlationId), and gives it its time; see ``gpu``.
- ``TARGET_INFO_SYSTEM_ENV``: the host's name; ``TARGET_INFO_SESSION_START_TIME``: ``utcEpochNs``,
  which lays several files over each other.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pplab.traces import gpu
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample
from pplab.traces.names import Vocabulary, step_number
from pplab.traces.ranks import assemble
from pplab.traces.rows import Range, RankTrace, rank_in_text

FORMAT = "SQLite export of Nsight Systems"
RANGES, MARKS, DOMAINS = (59, 60, 70, 71), (34,), (75,)
#: What our ranks mark themselves with, as the text of an NVTX mark: this and JSON.
ABOUT = "pplab "
_SQLITE = b"SQLite format 3\0"
_REPORTS = (b"QDSTRM", b"nsys-rep")


def recognises(sample: Sample) -> bool:
    """Any SQLite database, and reports that were not exported (to say how)."""
    return sample.head.startswith((_SQLITE, *_REPORTS)) or sample.path.suffix in (
        ".nsys-rep", ".qdrep", ".qdstrm",
    )  # fmt: skip


def read_files(paths: list[Path], options: Options) -> Imported:
    """One timeline from one export, or one for each rank or host."""
    traces: list[RankTrace] = []
    for path in paths:
        with path.open("rb") as file:
            if not file.read(16).startswith(_SQLITE):
                raise TraceError(
                    f"{path.name} is a report of Nsight Systems, which only nsys reads: export it "
                    f"with `nsys export --type=sqlite {path.name}` and read the .sqlite file"
                )
        traces += _processes(path, options)
    if any(trace.about for trace in traces):
        traces = [t for t in traces if t.about and not t.about.get("tensor")]
    if not traces:
        names = ", ".join(path.name for path in paths)
        raise TraceError(
            f"{names}: no NVTX range was recorded; profile with `nsys profile --trace=cuda,nvtx` "
            "and put NVTX ranges around the passes (pplab.run(nsys=True) does both)"
        )
    return assemble(traces, options, FORMAT, paths)


def _processes(path: Path, options: Options) -> list[RankTrace]:
    """A RankTrace for every process of a file that has NVTX ranges with a meaning."""
    address = f"file:{path.resolve().as_posix().replace('?', '%3f').replace('#', '%23')}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            return _read(_Database(base, path), options)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise TraceError(
            f"{path} is a damaged or cut SQLite file ({error}): export it again from the report"
        ) from None


class _Database:
    """A database whose tables and columns may be there or not."""

    def __init__(self, base: sqlite3.Connection, path: Path) -> None:
        self.base, self.path = base, path
        base.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        rows = base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = {name for (name,) in rows}

    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self.base.execute(f'PRAGMA table_info("{table}")')}

    def rows(self, table: str, *wanted: str, where: str = "") -> Iterator[tuple[Any, ...]]:
        """Some columns of a table, None for those it has not; nothing when it is not there."""
        if table not in self.tables:
            return iter(())
        there = self.columns(table)
        parts = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
        return self.base.execute(f'SELECT {parts} FROM "{table}" {where}')


def _process(global_id: int) -> int:
    return (global_id >> 24) & 0xFFFFFF


def _read(data: _Database, options: Options) -> list[RankTrace]:
    if "NVTX_EVENTS" not in data.tables:
        known = data.tables & {"StringIds", "TARGET_INFO_SYSTEM_ENV", "META_DATA_EXPORT"}
        if not known:
            raise TraceError(f"{data.path} is an SQLite database, but no {FORMAT}")
        return []
    strings = dict(data.rows("StringIds", "id", "value"))
    vocabulary = Vocabulary(options.names)
    traces: dict[int, RankTrace] = {}
    found: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    open_ranges: Counter[int] = Counter()
    host = _host(data)
    for start, end, kind, text, text_id, thread in data.rows(
        "NVTX_EVENTS", "start", "end", "eventType", "text", "textId", "globalTid"
    ):
        name = text if text is not None else strings.get(text_id)
        if not (isinstance(name, str) and isinstance(thread, int)) or kind in DOMAINS:
            continue
        process = _process(thread)
        if process not in traces:
            traces[process] = RankTrace(f"{data.path.name}, process {process}", host=host)
        trace = traces[process]
        if kind in MARKS or (name.startswith(ABOUT) and end is None):
            trace.about = _about(name) or trace.about
            continue
        if kind is not None and kind not in RANGES:
            continue
        if end is None:
            open_ranges[process] += 1
            continue
        if not (isinstance(start, int) and isinstance(end, int) and end >= start):
            continue
        number = step_number(name)
        if vocabulary.means(name):
            found[process].append((name, start, end))
        elif number is not None:
            trace.steps.append((number, start, end))
        else:
            trace.others[name] += 1
    kernels = _kernels(data, set(found), strings)
    for process, ranges in found.items():
        trace = traces[process]
        trace.ranges = [Range(name, start, end, start) for name, start, end in ranges]
        times = kernels[process].times([(start, end) for _, start, end in ranges])
        gpu.believe(trace, times, vocabulary)
        trace.ranges.sort(key=lambda r: r.at)
    for process, count in open_ranges.items():
        traces[process].notes.append(
            f"{traces[process].label}: {count} ranges were still open when recording ended"
        )
    return _numbered(data, [t for _, t in sorted(traces.items()) if t.ranges or t.others])


def _host(data: _Database) -> str:
    for name, value in data.rows("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        if name == "Hostname":
            return str(value)
    return ""


def _about(name: str) -> dict[str, Any]:
    if not name.startswith(ABOUT):
        return {}
    try:
        found = json.loads(name[len(ABOUT) :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _numbered(data: _Database, traces: list[RankTrace]) -> list[RankTrace]:
    """Ranks: what the process said, else the file's name, else the order of the process ids."""
    useful = [trace for trace in traces if trace.ranges] or traces[:1]
    zero = next(data.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"), (0,))[0]
    ranks = {_process(tid): rank for tid, rank in data.rows("MPI_RANKS", "globalTid", "rank")}
    for place, trace in enumerate(useful):
        if trace.about:
            trace.rank, trace.world = trace.about.get("rank"), trace.about.get("world")
        else:
            process = int(trace.label.rpartition(" ")[2])
            trace.rank = ranks.get(process)
            if trace.rank is None:
                trace.guessed = len(useful) == 1
                trace.rank = rank_in_text(data.path.name) if trace.guessed else place
        if zero:
            shift = int(zero)
            trace.ranges = [
                Range(r.name, r.start + shift, r.end + shift, r.at + shift) for r in trace.ranges
            ]
            trace.steps = [(n, start + shift, end + shift) for n, start, end in trace.steps]
    return useful


# -- the GPU --------------------------------------------------------------------------------------

#: Kernels, and graphs of kernels that were recorded as a whole (--cuda-graph-trace=graph).
_WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")


def _kernels(
    data: _Database, processes: set[int], strings: dict[int, str]
) -> dict[int, gpu.Kernels]:
    """The kernels of every process, with the calls that launched them."""
    found = {process: gpu.Kernels() for process in processes}
    for table in _WORK:
        for start, end, correlation, process, device, context, stream, name in data.rows(
            table, "start", "end", "correlationId", "globalPid", "deviceId", "contextId",
            "streamId", "shortName",
        ):  # fmt: skip
            if all(isinstance(value, int) for value in (start, end, correlation)):
                # (old exports do not say whose kernel it is)
                mine = {_process(process)} if isinstance(process, int) else processes
                for owner in mine & processes:
                    called = str(strings.get(name, ""))
                    where = device, context, stream
                    found[owner].kernel(correlation, start, end, where, called)
    for start, correlation, thread in data.rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "correlationId", "globalTid"
    ):
        if all(isinstance(value, int) for value in (start, correlation, thread)):
            kernels = found.get(_process(thread))
            if kernels is not None:
                kernels.launch(correlation, start)
    return found
