"""``pplab profile MODEL.py:NAME``: measures the layers of a model, prints them, writes JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pplab.runtime.model_file import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pplab profile`` to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL",
        help="FILE.py:NAME (a pplab model, layers, or a function that returns them), or the "
        "config.json of a Hugging Face model")  # fmt: skip
    add("--sample", metavar="NAME", help="input of one micro-batch, by its name in FILE.py")
    add("--out", type=Path, help="file for the profile (JSON)")
    add("--picture", type=Path, help="file for a picture (PNG)")
    add("--repeats", type=int, default=20, help="measured passes (20)")
    add("--micro-batch-size", type=int, default=4, help="samples, where the model makes them (4)")
    add("--context", type=int, help="tokens of a sample, for a Hugging Face config")
    add("--dtype", choices=("fp32", "bf16"), default="fp32")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--threads", type=int, default=1)


def run_arguments(arguments: argparse.Namespace) -> int:
    """Run what ``add_arguments`` parsed; 2 when the model cannot be found or makes no sense."""
    import pplab

    options = {k: getattr(arguments, k) for k in ("repeats", "micro_batch_size", "context")}
    options |= {k: getattr(arguments, k) for k in ("dtype", "device", "threads")}
    try:
        model, sample = load(arguments.model, arguments.sample)
        found = pplab.profile(model, sample, **options)
    except (ValueError, TypeError) as error:
        print(f"pplab profile: {error}", file=sys.stderr)
        return 2
    print(found)
    if arguments.out is not None:
        found.save(arguments.out)
        print(f"wrote {arguments.out}")
    if arguments.picture is not None:
        from pplab.view.profile_card import profile_png

        arguments.picture.write_bytes(profile_png(found))
        print(f"wrote {arguments.picture}")
    return 0
