"""``pplab trace``: what is in a trace, and the trace in another format."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from pplab.traces import TraceError, load, logs, read_log, recognise, write
from pplab.traces.imported import Imported
from pplab.traces.names import from_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pplab trace``."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="one trace, one file per rank, or a folder of them (also: a log)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="write it as .json or .json.gz (Perfetto), .csv, .parquet, .npz, or .png",
    )
    parser.add_argument(
        "--name",
        action="append",
        metavar="REGEX=KIND",
        help="how ranges are called, e.g. --name 'fwd (\\d+)=F' --name 'bwd (\\d+)=B'",
    )
    parser.add_argument("--stages", type=int, help="ranks of one pipeline, if the files do not say")
    parser.add_argument("--no-align", action="store_true", help="leave the ranks' clocks alone")


def run_arguments(arguments: argparse.Namespace) -> int:
    """Print the summary and convert; 1 when the trace cannot be read or written."""
    try:
        if _is_log(arguments.files):
            return _log(arguments)
        names = from_options(arguments.name)
        align = False if arguments.no_align else "auto"
        found = load(arguments.files, names=names, stages=arguments.stages, align=align)
        print(_wrapped(str(found)))
        for note in found.notes:
            print(_wrapped(f"note: {note}"))
        if arguments.out:
            _write(found, arguments.out)
            print(f"wrote {arguments.out}")
    except TraceError as error:
        print(f"pplab trace: {error}", file=sys.stderr)
        return 1
    return 0


def _is_log(files: list[Path]) -> bool:
    one = files[0]
    return len(files) == 1 and one.is_file() and recognise(one) is logs


def _log(arguments: argparse.Namespace) -> int:
    print(_wrapped(str(read_log(arguments.files[0]))))
    if arguments.out:
        raise TraceError("a log has no spans to write; pplab.traces.read_log gives its numbers")
    return 0


def _write(found: Imported, path: Path) -> None:
    if path.suffix.lower() != ".png":
        write(found.timeline, path)
        return
    from pplab.view import png

    path.write_bytes(png([found.timeline.typical]))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  ", break_long_words=False)
