"""Chrome traces, the JSON that ui.perfetto.dev and chrome://tracing open: written, and read back.

The viewers count in microseconds and know nothing of pipelines. So a bar also carries the exact
numbers of its span and the row it had (in ``args``), and the file the labels of the timeline (in
``otherData``): what ``write_chrome`` wrote, ``read_chrome`` returns, to the last bit.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pplab.core.layout import Layout
from pplab.core.ops import CODE
from pplab.core.timeline import COLUMNS, Timeline
from pplab.traces.events import events
from pplab.traces.files import TraceError, read_json, write_text

#: Version of what `args` and `otherData` hold.
FORMAT = 1


def write_chrome(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` as a Chrome trace; gzipped when `path` ends in ``.gz`` (Perfetto reads it).

    One process a replica, one track a rank, an arrow for every message between ranks. Times in
    plain units are shown as milliseconds, and the file says so.
    Raises TraceError when a time is not finite or the trace would last longer than 13 days.
    """
    lines = [json.dumps(event, ensure_ascii=False) for event in events(timeline)]
    about = {
        "format": FORMAT,
        "spans": len(timeline),
        **timeline.about(),
        "origin": float(timeline.start.min()) if len(timeline) else 0.0,
        "time": "seconds" if timeline.unit == "s" else "1 ms stands for 1 unit of the timeline",
    }
    rest = {"displayTimeUnit": "ms", "otherData": {"pplab": about}}
    # traceEvents comes first: Perfetto tells the kind of a file by its first characters.
    head, tail = '{"traceEvents":[\n', "\n],\n" + json.dumps(rest, ensure_ascii=False)[1:] + "\n"
    write_text(path, [head, ",\n".join(lines), tail])


def read_chrome(path: str | Path) -> Timeline:
    """The timeline that ``write_chrome`` wrote to `path`, exactly; gzipped or not.

    Raises TraceError when the file is cut short, not a trace, changed so that spans are missing,
    or written by another program (``pplab.traces.read`` reads those).
    """
    trace = read_json(path)
    found = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(found, list) or not all(isinstance(event, dict) for event in found):
        raise TraceError(f"{path} is JSON but not a Chrome trace: it holds no list of traceEvents")
    other = trace.get("otherData") if isinstance(trace, dict) else None
    about = other.get("pplab") if isinstance(other, dict) else None
    if not isinstance(about, dict):
        raise TraceError(
            f"{path} is a Chrome trace of {len(found)} events that pplab did not write; "
            "pplab.traces.read reads those of the PyTorch profiler"
        )
    if about.get("format") != FORMAT:
        raise TraceError(
            f"{path} was written by another version of pplab (format {about.get('format')!r}, "
            f"this one reads {FORMAT}): write it again"
        )
    bars = [event for event in found if event.get("ph") == "X"]
    if len(bars) != about.get("spans"):
        raise TraceError(
            f"{path} should hold {about.get('spans')} spans, but {len(bars)} are there: "
            "it was changed after it was written"
        )
    try:
        return _timeline(bars, about)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TraceError(
            f"{path} was changed after it was written, or damaged: {type(error).__name__} {error}"
        ) from None


def _timeline(bars: list[dict[str, Any]], about: dict[str, Any]) -> Timeline:
    rows = sorted((bar["args"] for bar in bars), key=lambda args: args["row"])
    if [args["row"] for args in rows] != list(range(len(rows))):
        raise ValueError("its spans are not numbered from 0")
    columns: dict[str, list] = {}
    for name in COLUMNS:
        values = [args[name] for args in rows]
        if name == "kind":
            values = [CODE[letter] for letter in values]
        kinds = (int, float) if name in ("start", "end") else (int,)
        if not all(type(value) in kinds and math.isfinite(value) for value in values):
            raise ValueError(f"{name} is not a number everywhere")
        columns[name] = values
    labels = {name: about[name] for name in ("source", "schedule", "unit", "hardware")}
    return Timeline.of(columns, Layout(**about["layout"]), in_order=True, **labels)
