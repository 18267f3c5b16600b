"""Timelines as tables of spans: CSV, Parquet, and pplab's own npz. Each is read back exactly.

A row a span: step, replica, rank, kind (a letter), micro_batch, chunk, start, end. The labels (the
layout, where it comes from, its unit) are one line of JSON: in CSV a comment before the header
(``pandas.read_csv(path, comment="#")`` skips it), in Parquet metadata of the schema.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pplab.core.layout import Layout
from pplab.core.ops import CODE, KINDS
from pplab.core.timeline import COLUMNS, Timeline
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Options, Sample

FORMAT = "table of spans"
MARK = "# pplab "
_PARQUET, _ZIP = b"PAR1", b"PK\x03\x04"


def recognises(sample: Sample) -> bool:
    """Parquet, npz, or CSV with our columns."""
    if sample.head.startswith(_PARQUET):
        return True
    if sample.head.startswith(_ZIP):
        return b"about.npy" in sample.head or b"start.npy" in sample.head
    text = sample.text
    first = text.split("\n", 2)
    return text.startswith(MARK) or set(COLUMNS) <= set(_cells(first[0]))


def read_files(paths: list[Path], options: Options) -> Imported:
    """The timeline of one table."""
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise TraceError(f"each {FORMAT} is a timeline of its own: read {names} one by one")
    path = paths[0]
    notes: list[str] = []
    with path.open("rb") as file:
        start = file.read(4)
    if start == _PARQUET:
        timeline = read_parquet(path)
    elif start == _ZIP:
        timeline = _read_npz(path)
    else:
        timeline, notes = _read_csv(path)
    return Imported(timeline, FORMAT, (path,), tuple(notes))


# -- CSV ------------------------------------------------------------------------------------------


def write_csv(timeline: Timeline, path: str | Path) -> None:
    """Write spans as CSV; times with all their digits (``float`` reads them back exactly)."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        file.write(MARK + json.dumps(timeline.about()) + "\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        columns = {name: column.tolist() for name, column in timeline.columns().items()}
        columns["kind"] = [KINDS[code] for code in columns["kind"]]
        writer.writerows(zip(*columns.values(), strict=True))


def read_csv(path: str | Path) -> Timeline:
    """The timeline that ``write_csv`` wrote; a table without our line of labels is read too.

    Raises TraceError when a column or a number is missing.
    """
    return _read_csv(Path(path))[0]


def _read_csv(path: Path) -> tuple[Timeline, list[str]]:
    about: dict[str, Any] | None = None
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    notes = []
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        head = file.readline()
        if head.startswith(MARK):
            try:
                about = json.loads(head[len(MARK) :])
            except ValueError:
                raise TraceError(
                    f"{path}: its first line holds no labels that can be read"
                ) from None
            head = file.readline()
        names = _cells(head)
        absent = [name for name in COLUMNS if name not in names]
        if absent:
            raise TraceError(f"{path} has no column {absent[0]}: a table of spans has all of "
                             f"{', '.join(COLUMNS)}")  # fmt: skip
        place = {name: names.index(name) for name in COLUMNS}
        cut = False
        for number, cells in enumerate(csv.reader(file), start=2 + (about is not None)):
            if not cells:
                continue
            if cut:
                raise TraceError(f"{path}, line {number - 1}: a cell is missing or no number")
            values = _row(cells, place)
            if values is None:
                cut = True  # the last line of a file that was cut short, or an error before it
                continue
            for name in COLUMNS:
                columns[name].append(values[name])
        if cut:
            notes.append(f"{path.name} is cut short: its last line is not whole and was left out")
    if about is None:
        notes.append(f"{path.name} has no line of labels: times are taken as seconds")
        about = {"layout": _least_layout(columns), "source": "imported table", "unit": "s"}
    return _timeline(columns, about, path), notes


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().split(",")]


def _row(cells: list[str], place: dict[str, int]) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] = {
            name: float(cells[at]) if name in ("start", "end") else cells[at]
            for name, at in place.items()
        }
        for name in ("step", "replica", "rank", "micro_batch", "chunk"):
            row[name] = int(row[name])
        row["kind"] = CODE[row["kind"]]
    except (ValueError, KeyError, IndexError):
        return None
    return row if math.isfinite(row["start"]) and math.isfinite(row["end"]) else None


def _least_layout(columns: dict[str, list[Any]]) -> dict[str, Any]:
    stages, chunks = (1 + max(columns[name], default=0) for name in ("rank", "chunk"))
    return {"stages": stages, "chunks": chunks, "placement": "loop"}


def _timeline(columns: dict[str, Any], about: dict[str, Any], path: Path) -> Timeline:
    try:
        layout = Layout(**about["layout"])
        labels = {k: about[k] for k in ("source", "schedule", "unit", "hardware") if k in about}
        # as it was: equal starts keep their order
        found = Timeline.of(columns, layout, in_order=True, **labels)
        ordered = Timeline.of(columns, layout, **labels)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{path} was changed after it was written, or damaged: {error}") from None
    keys = ("step", "replica", "rank", "start")
    same = all(np.array_equal(getattr(found, k), getattr(ordered, k)) for k in keys)
    return found if same else ordered


# -- Parquet --------------------------------------------------------------------------------------


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TraceError(
            "Parquet needs pyarrow, which is not installed: pip install pyarrow (or use .csv)"
        ) from None
    return pyarrow


def write_parquet(timeline: Timeline, path: str | Path) -> None:
    """Write spans as Parquet; raises TraceError without pyarrow."""
    arrow = _pyarrow()
    columns: dict[str, Any] = dict(timeline.columns())
    columns["kind"] = [KINDS[code] for code in timeline.kind.tolist()]
    table = arrow.table(columns).replace_schema_metadata({b"pplab": json.dumps(timeline.about())})
    arrow.parquet.write_table(table, path)


def read_parquet(path: str | Path) -> Timeline:
    """The timeline that ``write_parquet`` wrote; raises TraceError without pyarrow."""
    arrow = _pyarrow()
    try:
        table = arrow.parquet.read_table(path)
        found = {name: table[name].to_pylist() for name in table.column_names}
        note = (table.schema.metadata or {}).get(b"pplab")
    except Exception as error:  # ArrowException, OSError, and whatever a damaged file leads to
        raise TraceError(f"{path} is a damaged Parquet file: {error}") from None
    absent = [name for name in COLUMNS if name not in found]
    if absent:
        raise TraceError(f"{path} is a Parquet table, but has no column {absent[0]}")
    try:
        found["kind"] = [CODE[letter] for letter in found["kind"]]
        about = json.loads(note) if note else {"layout": _least_layout(found), "unit": "s"}
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path} holds no spans that can be read: {error}") from None
    return _timeline(found, about, Path(path))


# -- npz ------------------------------------------------------------------------------------------


def _read_npz(path: Path) -> Timeline:
    try:
        return Timeline.load(path)
    except Exception as error:  # zipfile, zlib and numpy raise a dozen kinds for damaged files
        raise TraceError(f"{path} is no timeline that pplab saved, or damaged: {error}") from None


def _write_npz(timeline: Timeline, path: str | Path) -> None:
    timeline.save(path)


#: Ending of a file's name -> how to write it.
WRITERS: dict[str, Callable[[Timeline, str | Path], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".npz": _write_npz,
}
