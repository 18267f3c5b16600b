"""The traces of the straggler study as a format that ``load`` recognises; see ``straggler``."""

from __future__ import annotations

from pathlib import Path

from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample
from pplab.traces.straggler import read_events

FORMAT = "multi-rank trace of the straggler study"


def recognises(sample: Sample) -> bool:
    """A JSON list of events that carry a micro-batch and a model chunk."""
    text = sample.text
    return text.startswith("[") and '"mb_id"' in text and '"model_chunk"' in text


def read_files(paths: list[Path], options: Options) -> Imported:
    """One file holds all ranks; `details` has its events under "straggler"."""
    if len(paths) > 1:
        raise TraceError(
            f"a {FORMAT} is one file with all ranks in it, and here are {len(paths)}: "
            "read them one by one"
        )
    trace = read_events(paths[0])
    seen = {event.rank for event in trace.events}
    missing = tuple(rank for rank in range(trace.stages) if rank not in seen)
    return Imported(
        trace.timeline, FORMAT, (paths[0],), missing=missing, details={"straggler": trace}
    )
