"""``pplab tune FILE.py:NAME``: ranked plans for a model; exit 0, 1 when a check of them fails, 2
when nothing can be planned."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pplab.runtime.model_file import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pplab tune`` to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL",
        help="FILE.py:NAME (a pplab model, or a function of the micro-batch size that gives one), "
        "or a profile that `pplab profile --out` wrote")  # fmt: skip
    add("--ranks", type=int, default=4, help="ranks of the machine (4)")
    add("--batch", type=int, default=64, help="samples of a step, all replicas together (64)")
    add("--memory", help="of each rank: 16GB, 500MiB or bytes")
    add("--per-node", type=int, help="ranks of one node")
    add("--stages", type=_numbers, metavar="N,N", help="numbers of stages to try (all)")
    add("--micro-batch-sizes", type=_numbers, metavar="N,N", help="sizes to try")
    add("--cores", type=int, help="how many ranks can compute at once (this machine's)")
    add("--fewer", action="store_true", help="also plans that leave ranks without work")
    add("--no-probe", action="store_true", help="run nothing: predict from layer times alone")
    add("--verify", type=int, default=0, metavar="N", help="run the first N plans for real")
    add("--dtype", choices=("fp32", "bf16"), default="fp32")
    add("--json", dest="as_json", action="store_true", help="print JSON")
    add("--out", type=Path, help="file for the result (JSON)")
    add("--config", type=Path, help="file for the best plan's DeepSpeed JSON")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def run_arguments(arguments: argparse.Namespace) -> int:
    """Tune and print."""
    from pplab.advise.tune.ask import tune
    from pplab.core.profile import Profile

    names = ("batch", "memory", "per_node", "stages", "micro_batch_sizes", "cores", "verify")
    options = {name: getattr(arguments, name) for name in (*names, "dtype")}
    try:
        if arguments.model.endswith((".json", ".txt")):
            what = Profile.load(arguments.model)
        else:
            what, _ = load(arguments.model, None)
        if arguments.no_probe:
            options["probe"] = False
        found = tune(what, arguments.ranks, all_ranks=not arguments.fewer, **options)
    except (ValueError, TypeError) as error:
        print(f"pplab tune: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found.as_json(), indent=2) if arguments.as_json else found.text())
    for path, write in (
        (arguments.out, found.save),
        (arguments.config, lambda file: _write(file, found.best.deepspeed_config())),
    ):
        if path is not None:
            write(path)
            print(f"wrote {path}", file=sys.stderr)
    return int(found.acceptance is not None and not found.acceptance.ok)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
