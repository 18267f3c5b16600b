"""The Chrome traces that pplab wrote: exactly, or what is left of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from pplab.core.layout import Layout
from pplab.core.ops import CODE
from pplab.core.timeline import COLUMNS, Timeline
from pplab.traces import kineto
from pplab.traces.chrome import read_chrome
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample
from pplab.traces.stream import EventStream

FORMAT = "Chrome trace of pplab"


def recognises(sample: Sample) -> bool:
    """How ``write_chrome`` begins: the events first, names of processes at their head."""
    return sample.text.startswith('{"traceEvents":[\n') and "schemaVersion" not in sample.text


def read_files(paths: list[Path], options: Options) -> Imported:
    """What ``read_chrome`` reads; of a file that is cut short, the spans before the cut."""
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise TraceError(f"each {FORMAT} holds all of its ranks: read {names} one by one")
    path = paths[0]
    try:
        return Imported(read_chrome(path), FORMAT, (path,))
    except TraceError as error:
        found, said = _rest(path, options)
        if len(found):
            return Imported(found, FORMAT, (path,), (f"{error}; {said}",))
        if "did not write" in str(error):
            return kineto.read_files(paths, options)
        raise


def _rest(path: Path, options: Options) -> tuple[Timeline, str]:
    """Whole spans of a damaged file. Its labels stood at the end: they are told from the spans."""
    stream = EventStream(path, options.progress)
    columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for event in stream:
        values = _span(event)
        if values is not None:
            for name in COLUMNS:
                columns[name].append(values[name])
    stages = 1 + int(max(columns["rank"], default=0))
    chunks = 1 + int(max(columns["chunk"], default=0))
    try:
        timeline = Timeline.of(columns, Layout(stages, chunks), source="a damaged trace")
    except (ValueError, OverflowError):
        timeline = Timeline.of({name: [] for name in COLUMNS}, Layout(1))
    said = (
        f"{len(timeline):,} spans could be read, the layout ({stages} ranks, {chunks} chunks) and "
        "the unit (s) are guessed"
    )
    return replace(timeline, unit="s"), said


def _span(event: dict[str, Any]) -> dict[str, Any] | None:
    values = event.get("args")
    if event.get("ph") != "X" or not isinstance(values, dict) or not values.keys() >= set(COLUMNS):
        return None
    numbers = {**values, "kind": CODE.get(str(values["kind"]))}
    good = all(
        isinstance(numbers[name], int | float) and math.isfinite(numbers[name]) for name in COLUMNS
    )
    return numbers if good and abs(max(map(abs, (numbers[n] for n in COLUMNS)))) < 2**31 else None
