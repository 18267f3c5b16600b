"""``pplab check FILE ...``: exit 0 clean or notes only, 1 errors or warnings, 2 not readable."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from pplab.advise.check import check
from pplab.advise.check.report import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pplab check`` to a parser."""
    parser.add_argument("paths", nargs="+", metavar="FILE", help="config file(s), or base64")
    add = parser.add_argument
    add("--gpus", "--ranks", dest="ranks", type=int, help="processes of the job")
    add("--stages", type=int, help="pipeline stages")
    add("--tensor", type=int, help="tensor-parallel size (1)")
    add("--layers", type=int, help="layers of the model")
    add("--parts", type=_numbers, help="layers of each stage when cut by hand: 11,13")
    add("--no-pipeline", dest="pipeline", action="store_false", help="no PipelineModule in the job")
    add("--schedule", help="1f1b (default), dualpipev, interleaved, ...")
    add("--chunks", type=int, help="chunks of the model on a rank")
    add("--launch", metavar="COMMAND", help="the launch command, in quotes")
    add("--hostfile", type=Path, help="host file of the launcher")
    add("--samples", type=int, help="samples of an epoch")
    add("--steps", type=int, help="steps of the run")
    add("--deepspeed-version", dest="version", help="when it is not the installed one")
    add("--fix", action="store_true", help="write FILE.fixed.json with what is mechanical mended")
    add("--json", dest="as_json", action="store_true", help="print JSON")
    add("--quiet", action="store_true", help="leave out the notes")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m pplab.advise.check.cli FILE ...``"""
    parser = argparse.ArgumentParser(prog="pplab check", description=__doc__)
    add_arguments(parser)
    return run_arguments(parser.parse_args(argv))


def run_arguments(arguments: argparse.Namespace) -> int:
    """Run what ``add_arguments`` parsed."""
    options = {key: value for key, value in vars(arguments).items() if key in _JOB}
    options["command"] = arguments.launch  # `command` is the name of the subcommand in pplab
    hosts = options.pop("hostfile", None)
    if hosts is not None:
        try:
            options["hostfile"] = hosts.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            print(f"{hosts}: {error.strerror}", file=sys.stderr)
            return 2
    return run_check(
        arguments.paths,
        fix=arguments.fix,
        as_json=arguments.as_json,
        notes=not arguments.quiet,
        **options,
    )


_JOB = {
    "ranks", "stages", "tensor", "layers", "parts", "pipeline", "schedule", "chunks",
    "hostfile", "samples", "steps", "version",
}  # fmt: skip


def run_check(
    paths: Sequence[str | Path] | None,
    *,
    fix: bool = False,
    as_json: bool = False,
    notes: bool = True,
    out: TextIO | None = None,
    **job: Any,
) -> int:
    """Check files and print; the worst exit code of all. `job` is what ``check`` takes.

    With `fix` a mended copy NAME.fixed.json is written beside each file that can be mended. With
    `as_json` one file prints an object, several a list.
    """
    stream = out or sys.stdout
    reports = [check(str(path), **job) for path in paths or []]
    written = {r.name: _write(r) for r in reports if fix and r.can_fix}
    if as_json:
        found = [report.as_dict() for report in reports]
        for one in found:
            if written.get(one["file"]):
                one["fixed"] = written[one["file"]]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2), file=stream)
    else:
        for place, report in enumerate(reports):
            print(("\n" if place else "") + report.text(notes), file=stream)
            if written.get(report.name):
                left = report.recheck(report.fixed).stuck
                more = f"; {left} error{'s' if left > 1 else ''} in it are yours to mend"
                print(f"\nwrote {written[report.name]}{more if left else ''}", file=stream)
    return max((report.exit_code for report in reports), default=2)


def _write(report: Report) -> str | None:
    path = Path(report.name)
    if not path.is_file():
        return None
    target = path.with_name(f"{path.stem}.fixed.json")
    try:
        target.write_text(json.dumps(report.fixed, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{target}: {error.strerror}", file=sys.stderr)
        return None
    return str(target)


if __name__ == "__main__":
    sys.exit(main())
