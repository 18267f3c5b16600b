"""``pplab diagnose FILE ...``: exit 0 nothing stands out, 1 a cause was found, 2 not readable."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pplab diagnose`` to a parser."""
    parser.add_argument(
        "paths", nargs="+", metavar="FILE",
        help="trace file(s), a directory of them, or the directory of a run's record",
    )  # fmt: skip
    add = parser.add_argument
    add("--json", dest="as_json", action="store_true", help="print JSON")
    add("--picture", type=Path, metavar="PNG", help="write the picture there as well")
    add("--bounds", type=_numbers, help="first layer of each stage, and the number: 0,3,6,9,12")
    add("--stages", type=int, help="pipeline ranks, where the files do not say")
    add("--name", action="append", metavar="REGEX=KIND",
        help="how ranges are called, e.g. --name 'fwd (\\d+)=F' --name 'bwd (\\d+)=B'")  # fmt: skip
    add("--least", type=float, default=5.0, metavar="PERCENT",
        help="exit 1 for causes that cost at least so much of the step (5)")  # fmt: skip


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def run_arguments(arguments: argparse.Namespace) -> int:
    """Diagnose and print; the exit code."""
    from pplab.advise.diagnose.diagnosis import Subject, diagnose
    from pplab.runtime.record import Run
    from pplab.traces.names import from_options

    paths = [Path(path) for path in arguments.paths]
    try:
        subject: Subject = paths
        reading: dict[str, Any] = {"stages": arguments.stages or None}
        reading["names"] = from_options(arguments.name)
        if len(paths) == 1 and (paths[0] / "run.json").is_file():
            subject, reading = Run.load(paths[0]), {}
        found = diagnose(subject, bounds=arguments.bounds, **reading)
        if arguments.picture:
            arguments.picture.write_bytes(found.png())
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = str(error) if isinstance(error, ValueError | OSError) else (
            f"not a record of pplab: {type(error).__name__} {error}"
        )  # fmt: skip
        if isinstance(error, OSError) and error.filename:
            text = f"{error.filename}: {error.strerror}"
        if arguments.as_json:
            print(json.dumps({"error": text}))
        print(f"pplab diagnose: {text}", file=sys.stderr)
        return 2
    if arguments.as_json:
        print(json.dumps(found.as_json, indent=2))
    else:
        print(found.text())
    return int(any(100 * cause.share >= arguments.least for cause in found.causes))
