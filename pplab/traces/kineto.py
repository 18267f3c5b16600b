"""Traces of the PyTorch profiler (Chrome JSON, written by Kineto), and other Chrome traces.

One file per rank. What matters in it are ``user_annotation`` events: the ranges that
``torch.profiler.record_function`` made. Where the GPU worked, Kineto also shows each range as
``gpu_user_annotation``, from its first kernel to its last on one stream: those are the times to
believe, as the CPU only queues the work. Everything else (operators, kernels, Python functions) is
skipped while the file streams by.

Times: ``ts`` and ``dur`` in microseconds, after ``baseTimeNanoseconds`` where the file has one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample
from pplab.traces.names import conventions, is_optimizer, step_number
from pplab.traces.ranks import assemble
from pplab.traces.rows import Range, RankTrace, rank_in_name
from pplab.traces.stream import EventStream

FORMAT = "trace of the PyTorch profiler"
OTHER = "Chrome trace"
#: Categories without ranges that people name: nearly all of a file.
SKIPPED = frozenset({
    "cpu_op", "kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "ac2g",
    "fwdbwd", "async_cpu_to_gpu", "async_gpu", "python_function", "overhead", "Trace",
    "cpu_instant_event", "mtia_runtime", "privateuse1_runtime",
})  # fmt: skip
#: What shows the end of a message that was awaited (NCCL's ranges end when it is queued).
RECEIVES = frozenset({"gloo:recv", "gloo:recvAnySource"})


def recognises(sample: Sample) -> bool:
    """A JSON object or list that holds trace events, or may do so further on."""
    text = sample.text
    if text.startswith("["):
        rest = text[1:].lstrip()
        return rest.startswith("{") and '"ph"' in text[:4096]
    return text.startswith("{") and ('"traceEvents"' in text or '"schemaVersion"' in text)


def read_files(paths: list[Path], options: Options) -> Imported:
    """One timeline from the traces of all ranks; see ``load``."""
    wanted = _interest(options)
    traces: list[RankTrace] = []
    kineto = False
    for path in paths:
        found, is_kineto = _read(path, wanted, options)
        traces += found
        kineto = kineto or is_kineto
    title = FORMAT if kineto else OTHER
    if any(trace.about for trace in traces):
        # ranks that share the work of a stage do the same at the same time: one stands for all
        traces = [trace for trace in traces if not trace.about.get("tensor")]
    return assemble(traces, options, title, paths)


def _interest(options: Options) -> Callable[[str], bool]:
    """Whether a name means something: asked once for every name."""
    known: dict[str, bool] = {}
    parsers = [convention.parse for convention in conventions(options.names)]

    def wanted(name: str) -> bool:
        answer = known.get(name)
        if answer is None:
            answer = known[name] = is_optimizer(name) or any(parse(name) for parse in parsers)
        return answer

    return wanted


def _read(
    path: Path, wanted: Callable[[str], bool], options: Options
) -> tuple[list[RankTrace], bool]:
    """The ranks of one file (several, when it is a merged one), and whether Kineto wrote it."""
    stream = EventStream(path, options.progress)
    collected = _Collected(wanted)
    for event in stream:
        category = event.get("cat")
        if not isinstance(category, str) or category not in SKIPPED:
            collected.take(event)
        elif category == "kernel":
            collected.meet(event)
    if not stream.has_events:
        if stream.cut:
            raise TraceError(f"{path} is cut short: {stream.why}; no event was reached")
        raise TraceError(f"{path} is JSON but not a Chrome trace: it holds no list of traceEvents")
    header = stream.header
    about = header.get("pplab") if isinstance(header.get("pplab"), dict) else {}
    world = header.get("distributedInfo")
    world = world if isinstance(world, dict) else {}
    traces = collected.ranks(_number(header.get("baseTimeNanoseconds")) or 0, path)
    for trace in traces:
        trace.host = str(header.get("host_name") or "")
        trace.about = about or {}
        if len(traces) == 1:
            trace.rank = _number(world.get("rank"))
            trace.rank = rank_in_name(path) if trace.rank is None else trace.rank
        trace.world = _number(world.get("world_size"))
        size = trace.world
        if world.get("pg_count") != 1:  # ranges of gloo do not say whom they join
            trace.meetings = [m for m in trace.meetings if not m[0].startswith("gloo:")]
        trace.meetings = [(n, end) for n, end, of in collected.met if of in (size, None)] or (
            trace.meetings
        )
    said = stream.sentence()
    if said:
        traces[0].notes.append(said)
    if collected.odd:
        traces[0].notes.append(
            f"{path.name}: {collected.odd:,} events without a usable time were left out"
        )
    return traces, "schemaVersion" in header


def _number(value: Any) -> int | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**62
    return int(value) if good else None


def _key(event: dict[str, Any], name: str) -> Any:
    """A process or thread: a number, or a word; None for what is neither."""
    value = event.get(name)
    return value if isinstance(value, int | str) else None


class _Collected:
    """The ranges of one file, by process; times in nanoseconds of the file."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.wanted = wanted
        self.cpu: dict[Any, list[tuple[str, int, int]]] = defaultdict(list)
        self.gpu: dict[Any, list[tuple[str, int, int]]] = defaultdict(list)
        self.steps: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
        self.receipts: list[tuple[int, int]] = []
        self.sends: list[int] = []
        self.meetings: list[tuple[str, int]] = []
        self.met: list[tuple[str, int, int | None]] = []
        self.others: Counter[str] = Counter()
        self.open: dict[Any, list[tuple[str, int]]] = defaultdict(list)
        self.odd = 0

    def take(self, event: dict[str, Any]) -> None:
        """Keep an event that may be a range."""
        phase, name = event.get("ph"), event.get("name")
        if phase not in ("X", "B", "E"):
            return
        try:
            start = round(event["ts"] * 1000)
            if phase == "X":
                end = start + round(event["dur"] * 1000)
            else:
                begun = self.open[_key(event, "pid"), _key(event, "tid")]
                if phase == "B":
                    begun.append((str(name), start))
                    return
                if not begun:
                    return
                (name, start), end = begun.pop(), start
        except (KeyError, TypeError, ValueError, OverflowError):
            self.odd += 1
            return
        if isinstance(name, str) and end >= start:
            self.keep(name, start, end, event)

    def keep(self, name: str, start: int, end: int, event: dict[str, Any]) -> None:
        """Sort a range in."""
        on_gpu = event.get("cat") == "gpu_user_annotation"
        number = step_number(name)
        if self.wanted(name):
            where = _key(event, "tid" if on_gpu else "pid")
            (self.gpu if on_gpu else self.cpu)[where].append((name, start, end))
        elif on_gpu:
            return
        elif number is not None:
            self.steps[_key(event, "pid")].append((number, start, end))
        elif name in RECEIVES:
            self.receipts.append((start, end))
        elif name == "gloo:send":
            self.sends.append(start)
        elif name in ("gloo:all_reduce", "gloo:barrier"):
            self.meetings.append((name, end))
        else:
            self.others[name] += 1

    def meet(self, event: dict[str, Any]) -> None:
        """Note the end of an NCCL kernel that says which ranks it joins."""
        name, arguments = event.get("name"), event.get("args")
        if isinstance(name, str) and name.startswith("nccl") and isinstance(arguments, dict):
            collective, size = arguments.get("Collective name"), arguments.get("Group size")
            if isinstance(collective, str) and isinstance(size, int):
                try:
                    end = round((event["ts"] + event["dur"]) * 1000)
                except (KeyError, TypeError, ValueError, OverflowError):
                    return
                if collective in ("allreduce", "_allgather_base", "allgather", "broadcast"):
                    self.met.append((collective, end, size))

    def ranks(self, base: int, path: Path) -> list[RankTrace]:
        """A rank for every process that has ranges with a meaning; one at least."""
        processes = [pid for pid, ranges in self.cpu.items() if ranges] or [None]
        result = []
        for place, pid in enumerate(sorted(processes, key=str)):
            label = path.name if len(processes) == 1 else f"{path.name}, process {pid}"
            trace = RankTrace(label, rank=None if len(processes) == 1 else place)
            trace.ranges = [
                Range(name, start + base, end + base, start + base)
                for name, start, end in sorted(self.cpu.get(pid, []), key=lambda r: r[1])
            ]
            marks = self.steps.get(pid, [])
            trace.steps = [(number, start + base, end + base) for number, start, end in marks]
            if len(processes) == 1:
                if self.gpu:
                    trace.ranges = self._on_gpu(trace, base)
                trace.receipts = sorted((a + base, b + base) for a, b in self.receipts)
                trace.sends = [at + base for at in self.sends]
                trace.meetings = sorted(
                    ((name, end + base) for name, end in self.meetings), key=lambda m: m[1]
                )
            trace.others = self.others
            result.append(trace)
        self.met = [(name, end + base, size) for name, end, size in self.met]
        return result

    def _on_gpu(self, trace: RankTrace, base: int) -> list[Range]:
        """The ranges with the times of the GPU, on the stream that has most of them.

        The n-th F3 of the CPU is the n-th F3 of the stream; names of which the two have not
        equally many keep the times of the CPU, and a note says so.
        """
        stream = max(self.gpu.values(), key=lambda ranges: sum(e - s for _, s, e in ranges))
        by_name: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, start, end in sorted(stream, key=lambda r: r[1]):
            by_name[name].append((start, end))
        count = Counter(r.name for r in trace.ranges)
        seen: Counter[str] = Counter()
        moved, left = [], 0
        for item in trace.ranges:
            times = by_name.get(item.name, [])
            if len(times) != count[item.name]:
                left += 1
                moved.append(item)
                continue
            start, end = times[seen[item.name]]
            seen[item.name] += 1
            moved.append(Range(item.name, start + base, end + base, item.at))
        if left:
            trace.notes.append(
                f"{trace.label}: {left} of {len(moved)} ranges have no counterpart on the GPU and "
                "keep the times of the CPU, which only queues the work"
            )
        return moved
