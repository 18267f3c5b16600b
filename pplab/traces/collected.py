"""The ranges of one file of Chrome events, sorted in while it streams by, and its ranks.

Ranges are complete events (X) or begin and end (B, E), which may stand in the file in any order.
A rank is a process; or a thread, where several threads of a process run the same operations side
by side, as in the traces of simulators and of pipelines within one process.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from pplab.traces import gpu
from pplab.traces.names import Vocabulary, step_number
from pplab.traces.rows import Range, RankTrace, natural, rank_in_text

#: What shows the end of a message that was awaited (NCCL's ranges end when it is queued).
RECEIVES = frozenset({"gloo:recv", "gloo:recvAnySource"})
#: Categories of the calls that launch kernels: of CUDA and ROCm, and of other accelerators.
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "privateuse1_runtime"})
_ERRORS = (KeyError, TypeError, ValueError, OverflowError)

Found = tuple[str, int, int, Any]  # name, start, end, thread


def _key(event: dict[str, Any], name: str) -> Any:
    """A process or thread: a number, or a word; None for what is neither."""
    value = event.get(name)
    return value if isinstance(value, int | str) else None


class Collected:
    """The ranges of one file, by process; times in nanoseconds of the file."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.cpu: dict[Any, list[Found]] = defaultdict(list)
        self.gpu: dict[Any, list[tuple[str, int, int]]] = defaultdict(list)
        self.kernels = gpu.Kernels()
        self.steps: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
        self.receipts: list[tuple[int, int]] = []
        self.sends: list[int] = []
        self.meetings: list[tuple[str, int]] = []
        self.met: list[tuple[str, int, int | None]] = []
        self.others: Counter[str] = Counter()
        self.halves: dict[Any, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.called: dict[Any, str] = {}
        self.odd = self.asynchronous = 0

    def take(self, event: dict[str, Any]) -> None:
        """Keep an event that may be a range, or the name of a process or thread."""
        phase = event.get("ph")
        try:
            if phase == "X":
                start = round(event["ts"] * 1000)
                self.keep(event, start, start + round(event["dur"] * 1000))
            elif phase in ("B", "E"):
                at = round(event["ts"] * 1000)
                self.halves[_key(event, "pid"), _key(event, "tid")].append((at, event))
            elif phase == "M":
                self._call(event)
            elif phase in ("b", "e", "S", "F"):
                self.asynchronous += 1
        except _ERRORS:
            self.odd += 1

    def _call(self, event: dict[str, Any]) -> None:
        arguments = event.get("args")
        if isinstance(arguments, dict) and event.get("name") in ("process_name", "thread_name"):
            thread = _key(event, "tid") if event["name"] == "thread_name" else None
            self.called[_key(event, "pid"), thread] = str(arguments.get("name", ""))

    def pair(self) -> None:
        """Join what begins with what ends, thread by thread, in the order of time."""
        for events in self.halves.values():
            open_: list[tuple[int, dict[str, Any]]] = []
            times = [at for at, _ in events]
            if times != sorted(times):  # of those at the same time, what ends comes first
                events.sort(key=lambda half: (half[0], half[1]["ph"] == "B"))
            for at, event in events:
                if event["ph"] == "B":
                    open_.append((at, event))
                    continue
                name = event.get("name")  # an end need not say it; what says it may cross others
                matching = [i for i, (_, b) in enumerate(open_) if name in (None, b.get("name"))]
                if matching:
                    start, begun = open_.pop(matching[-1])
                    self.keep(begun, start, at)
        self.halves.clear()

    def keep(self, event: dict[str, Any], start: int, end: int) -> None:
        """Sort a range in."""
        name, process = event.get("name"), _key(event, "pid")
        if not isinstance(name, str) or end < start:
            return
        on_gpu = event.get("cat") == "gpu_user_annotation"
        number = step_number(name)
        if self.vocabulary.means(name):
            if on_gpu:
                self.gpu[_key(event, "tid")].append((name, start, end))
            else:
                self.cpu[process].append((name, start, end, _key(event, "tid")))
        elif on_gpu:
            return
        elif number is not None:
            self.steps[process].append((number, start, end))
        elif name in RECEIVES:
            self.receipts.append((start, end))
        elif name == "gloo:send":
            self.sends.append(start)
        elif name in ("gloo:all_reduce", "gloo:barrier"):
            self.meetings.append((name, end))
        else:
            self.others[name] += 1

    def work(self, event: dict[str, Any]) -> None:
        """Note a kernel, or a call that may have launched one; where NCCL's say which ranks they
        join, when they ended."""
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            return
        number, name = arguments.get("correlation"), event.get("name")
        try:
            start = round(event["ts"] * 1000)
            if event.get("cat") != "kernel":
                if isinstance(number, int):
                    self.kernels.launch(number, start)
                return
            end = start + round(event["dur"] * 1000)
            if isinstance(number, int) and end >= start:
                stream = _key(event, "pid"), _key(event, "tid")
                self.kernels.kernel(number, start, end, stream, str(name))
        except _ERRORS:
            return
        collective, size = arguments.get("Collective name"), arguments.get("Group size")
        if (
            isinstance(name, str) and name.startswith("nccl") and isinstance(size, int)
            and collective in ("allreduce", "_allgather_base", "allgather", "broadcast")
        ):  # fmt: skip
            self.met.append((collective, end, size))

    # -- ranks ------------------------------------------------------------------------------------

    def ranks(self, base: int, path: Path) -> list[RankTrace]:
        """A rank for every process (or thread) that has ranges with a meaning; one at least."""
        self.pair()
        tracks = self._tracks()
        several = len(tracks) > 1
        said = [rank_in_text(self.called.get((pid, thread), "")) for pid, thread, _ in tracks]
        told = None not in said and len(set(said)) == len(said)
        result = []
        for place, (pid, thread, ranges) in enumerate(tracks):
            where = f"process {pid}" + (f", thread {thread}" if thread is not None else "")
            trace = RankTrace(f"{path.name}, {where}" if several else path.name)
            if several:
                trace.rank = said[place] if told else place
            trace.ranges = [
                Range(name, start + base, end + base, start + base)
                for name, start, end, _ in sorted(ranges, key=lambda r: r[1])
            ]
            marks = self.steps.get(pid, [])
            trace.steps = [(number, start + base, end + base) for number, start, end in marks]
            if not several:
                self._on_gpu(trace, base)
                trace.receipts = sorted((a + base, b + base) for a, b in self.receipts)
                trace.sends = [at + base for at in self.sends]
                trace.meetings = sorted(
                    ((name, end + base) for name, end in self.meetings), key=lambda m: m[1]
                )
            trace.others = self.others
            result.append(trace)
        self.met = [(name, end + base, size) for name, end, size in self.met]
        result[0].notes += self._notes(path, tracks)
        return result

    def _tracks(self) -> list[tuple[Any, Any, list[Found]]]:
        """(process, thread or None, ranges) of every rank."""
        tracks: list[tuple[Any, Any, list[Found]]] = []
        for pid, ranges in sorted(self.cpu.items(), key=lambda item: natural(str(item[0]))):
            threads: dict[Any, list[Found]] = defaultdict(list)
            for found in ranges:
                threads[found[3]].append(found)
            if side_by_side(threads):
                order = sorted(threads.items(), key=lambda item: natural(str(item[0])))
                tracks += [(pid, thread, mine) for thread, mine in order]
            elif ranges:
                tracks.append((pid, None, ranges))
        return tracks or [(None, None, [])]

    def _notes(self, path: Path, tracks: list[tuple[Any, Any, list[Found]]]) -> list[str]:
        notes = []
        if any(thread is not None for _, thread, _ in tracks):
            notes.append(
                f"{path.name}: threads of one process run the same operations side by side, so "
                "each is taken as a rank, in the order of their numbers or names"
            )
        if self.odd:
            notes.append(f"{path.name}: {self.odd:,} events without a usable time were left out")
        if self.asynchronous and not self.cpu:
            notes.append(
                f"{path.name}: its {self.asynchronous:,} asynchronous events (ph b, e) are no "
                "ranges of a thread and are not read: write complete ones (X) or B and E"
            )
        return notes

    def _on_gpu(self, trace: RankTrace, base: int) -> None:
        """Give the ranges the times of the GPU: of their kernels, else of Kineto's own ranges."""
        times = self.kernels.times([(r.start - base, r.end - base) for r in trace.ranges])
        if not any(times) and self.gpu:
            times = self._annotated(trace)
        times = [found and (found[0] + base, found[1] + base) for found in times]
        gpu.believe(trace, times, self.vocabulary)

    def _annotated(self, trace: RankTrace) -> gpu.Times:
        """The ranges of the stream that has most of them: the n-th F3 of the CPU is its n-th F3.
        Nothing for names of which the two have not equally many."""
        stream = max(self.gpu.values(), key=lambda ranges: sum(e - s for _, s, e in ranges))
        by_name: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, start, end in sorted(stream, key=lambda r: r[1]):
            by_name[name].append((start, end))
        count = Counter(r.name for r in trace.ranges)
        seen: Counter[str] = Counter()
        times: gpu.Times = []
        for item in trace.ranges:
            same = by_name.get(item.name, [])
            whole = len(same) == count[item.name]
            times.append(same[seen[item.name]] if whole else None)
            seen[item.name] += 1
        return times


def side_by_side(threads: dict[Any, list[Found]]) -> bool:
    """Whether several threads run operations of the same names, some at the same time."""
    if len(threads) < 2:
        return False
    names = [{re.sub(r"\d+", "", found[0]) for found in mine} for mine in threads.values()]
    if not set.intersection(*names):
        return False
    # the ranges of one thread may nest; those of two do not overlap by chance
    until: dict[Any, int] = {}
    for _, start, end, thread in sorted((f for m in threads.values() for f in m), key=_start):
        if any(other > start for name, other in until.items() if name != thread):
            return True
        until[thread] = max(until.get(thread, end), end)
    return False


def _start(found: Found) -> int:
    return found[1]
