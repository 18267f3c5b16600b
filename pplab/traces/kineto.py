"""Traces of the PyTorch profiler (Chrome JSON, written by Kineto), and other Chrome traces.

One file per rank. What matters in it are ``user_annotation`` events: the ranges that
``torch.profiler.record_function`` made. Where the GPU worked, the times to believe are those of
the kernels that a range launched (``gpu``), else of the ``gpu_user_annotation`` that Kineto shows
for it. Operators, and Python functions but those of engines (``functions``), are skipped while
the file streams by.

Times: ``ts`` and ``dur`` in microseconds, after ``baseTimeNanoseconds`` where the file has one.
Groups of ranks (torch 2.4 and later): ``pg_config``, where Megatron-LM and torch's device meshes
describe the one that is a pipeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pplab.traces.collected import LAUNCHES, Collected
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample
from pplab.traces.names import Vocabulary
from pplab.traces.ranks import assemble
from pplab.traces.rows import RankTrace, rank_in_text
from pplab.traces.stream import EventStream

FORMAT = "trace of the PyTorch profiler"
OTHER = "Chrome trace"
#: Categories without ranges that people name: nearly all of a file.
SKIPPED = frozenset({
    "cpu_op", "kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "ac2g",
    "fwdbwd", "async_cpu_to_gpu", "async_gpu", "python_function", "overhead", "Trace",
    "cpu_instant_event", "mtia_runtime", "privateuse1_runtime",
})  # fmt: skip
#: Keys that Kineto writes beside the events, and hardly anybody else.
SIGNS = ("traceEvents", "schemaVersion", "distributedInfo", "deviceProperties", "displayTimeUnit")
#: How the groups of ranks that are a pipeline are described: by Megatron-LM (parallel_state.py),
#: and by torch for a dimension called pp of a device mesh (torchtitan).
PIPELINES = ("PIPELINE_MODEL_PARALLEL_GROUP", "mesh_pp")


def recognises(sample: Sample) -> bool:
    """A JSON object or list that holds trace events, or may do so further on."""
    text = sample.text
    if text.startswith("["):
        rest = text[1:].lstrip()
        return rest.startswith("{") and '"ph"' in text
    return text.startswith("{") and any(f'"{sign}"' in text for sign in SIGNS)


def read_files(paths: list[Path], options: Options) -> Imported:
    """One timeline from the traces of all ranks; see ``load``."""
    vocabulary = Vocabulary(options.names)
    traces: list[RankTrace] = []
    kineto = False
    for path in paths:
        found, is_kineto = _read(path, vocabulary, options)
        traces += found
        kineto = kineto or is_kineto
    title = FORMAT if kineto else OTHER
    if any(trace.about for trace in traces):
        # ranks that share the work of a stage do the same at the same time: one stands for all
        traces = [trace for trace in traces if not trace.about.get("tensor")]
    return assemble(traces, options, title, paths)


def _read(path: Path, vocabulary: Vocabulary, options: Options) -> tuple[list[RankTrace], bool]:
    """The ranks of one file (several, when it is a merged one), and whether Kineto wrote it."""
    stream = EventStream(path, options.progress)
    collected = Collected(vocabulary)
    for event in stream:
        category = event.get("cat")
        if not isinstance(category, str) or category not in SKIPPED:
            collected.take(event)
        elif category == "kernel" or category in LAUNCHES:
            collected.work(event)
        elif category == "python_function" and vocabulary.means(str(event.get("name"))):
            collected.take(event)
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
            trace.guessed = trace.rank is None
            trace.rank = rank_in_text(path.name) if trace.guessed else trace.rank
            trace.pipeline = _pipeline(world, trace.rank)
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
    return traces, "schemaVersion" in header


def _pipeline(world: dict[str, Any], rank: int | None) -> tuple[int, ...]:
    """The ranks of the pipeline that a rank is part of, in order; () when nothing says so."""
    groups = world.get("pg_config")
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and group.get("pg_desc") in PIPELINES:
            ranks = group.get("ranks")
            if isinstance(ranks, list) and rank in ranks:
                return tuple(ranks)
    return ()


def _number(value: Any) -> int | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**62
    return int(value) if good else None
