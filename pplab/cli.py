"""The ``pplab`` command."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: Chapters and labs lie here beside each other, and link to each other.
HOUSE = Path(__file__).parents[1]

#: Subcommands that are defined where their work is done: name, module, what they are for.
PARTS = (
    (
        "check", "pplab.advise.check.cli",
        "check DeepSpeed configs, logs of a launch, and what a pipeline makes of them",
    ),
    (
        "diagnose", "pplab.advise.diagnose.cli",
        "where the time of a recorded step goes, what to do, and what it saves",
    ),
    ("trace", "pplab.cli_trace", "what is in a profiler's trace of a pipeline; convert it"),
    (
        "profile", "pplab.cli_profile",
        "measure what each layer of a model costs: time, parameters, memory",
    ),
    (
        "tune", "pplab.advise.tune.cli",
        "stages, replicas, micro-batches, schedule, cut: ranked plans for a model",
    ),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit code for the shell."""
    parser = argparse.ArgumentParser(
        prog="pplab", description="DeepSpeed pipelines, simulated and run for real."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    doctor = commands.add_parser(
        "doctor", help="what this machine has, and a short real two-stage run"
    )
    doctor.set_defaults(act=lambda _: run_doctor())

    demo = commands.add_parser(
        "demo", help="a real four-stage run: writes a picture, a trace and a summary"
    )
    demo.add_argument("--out", type=Path, default=Path("build/demo"), help="folder (build/demo)")
    demo.set_defaults(act=lambda a: run_demo(a.out))

    lab = commands.add_parser("lab", help="open JupyterLab on the course")
    lab.add_argument("--no-open", action="store_true", help="print the address, open no browser")
    lab.add_argument("--port", type=int, help="port to listen on (default: a free one)")
    lab.add_argument("--dir", type=Path, default=HOUSE, help="folder of notebooks (the course)")
    lab.set_defaults(act=lambda a: run_lab(a.dir, not a.no_open, a.port))

    for name, where, about in PARTS:
        part = importlib.import_module(where)
        command = commands.add_parser(name, help=about)
        part.add_arguments(command)
        command.set_defaults(act=part.run_arguments)

    progress = commands.add_parser(
        "progress", help="quizzes, labs and predictions: what you have done so far"
    )
    progress.add_argument("--class", dest="folder", type=Path, metavar="FOLDER",
                          help="a folder of progress files: the class, as a table")  # fmt: skip
    progress.add_argument("--out", type=Path, help="write the heat map of the class, a .png")
    progress.add_argument("--pseudonyms", action="store_true", help="show no names")
    progress.set_defaults(act=lambda a: run_progress(a.folder, a.out, a.pseudonyms))

    cool = commands.add_parser("cool", help="end what runs have left behind on this machine")
    cool.add_argument("--left", action="store_true", required=True,
                      help="process servers whose notebook is gone")  # fmt: skip
    cool.set_defaults(act=lambda _: run_cool())

    arguments = parser.parse_args(argv)
    from pplab.runtime.client import ServerError
    from pplab.runtime.failure import RunError

    try:
        return arguments.act(arguments)
    except (RunError, ServerError, OSError) as error:
        print(f"pplab {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run_doctor() -> int:
    """Print the hardware and versions, and run two real ranks for a moment."""
    import pplab

    print(f"machine   {pplab.hardware()}")
    print("starting  two ranks under DeepSpeed (the first start imports torch: some seconds)")
    plan = pplab.schedules.one_f_one_b(stages=2, micro_batches=4)
    run = pplab.run(plan, pplab.models.paced(0.010, 0.020), quiet=True, keep=False)
    names = ("python", "torch", "deepspeed")
    print("versions  " + ", ".join(f"{name} {run.versions[name]}" for name in names))
    print(f"placed    {run.placement['why']}")
    ideal = (2 - 1) / (4 + 2 - 1)
    print(
        f"ran       {run.timeline.source}: 2 stages, 4 micro-batches, "
        f"step {run.step_time * 1e3:.0f} ms, bubble {run.bubble:.1%} "
        f"(formula (P-1)/(M+P-1): {ideal:.1%})"
    )
    return 0


def run_demo(out: Path) -> int:
    """Four real paced ranks, laid over their simulation; files in `out`."""
    import pplab
    from pplab.traces.chrome import write_chrome

    out.mkdir(parents=True, exist_ok=True)
    print(f"machine   {pplab.hardware()}")
    plan = pplab.schedules.one_f_one_b(stages=4, micro_batches=8)
    begin = time.perf_counter()
    run = pplab.run(plan, pplab.models.paced(0.010, 0.020), keep=False)
    took = time.perf_counter() - begin
    both = pplab.compare(plan.simulate(forward=0.010, backward=0.020, unit="s"), run.timeline)
    picture, trace, words = out / "timeline.png", out / "trace.json", out / "summary.txt"
    from pplab.view import png

    picture.write_bytes(png([both.simulated, both.measured]))
    write_chrome(run.timeline, trace)
    summary = f"{run}\n\nagainst the simulation of the same schedule:\n{both}\n\n{both.table()}\n"
    words.write_text(summary)
    print(summary)
    print(f"{took:.1f} s in all; startup {run.startup:.1f} s to the first operation")
    print(f"wrote {picture}, {trace} (open it in ui.perfetto.dev), {words}")
    return 0


def run_progress(
    folder: Path | None = None, out: Path | None = None, pseudonyms: bool = False
) -> int:
    """Print the learner's progress, or that of a class."""
    if folder is None:
        if out or pseudonyms:
            print("pplab progress: --out and --pseudonyms go with --class FOLDER", file=sys.stderr)
            return 2
        from pplab.teach.report import report

        print(report())
        return 0
    from pplab.teach.classroom import classroom

    found = classroom(folder, pseudonyms=pseudonyms)
    print(found)
    if out is not None:
        found.save(out)
        print(f"wrote {out}")
    return 0


def run_cool() -> int:
    """End what is left of runs whose notebook is gone."""
    from pplab.runtime.left import clean

    left = clean()
    print(left)
    return 1 if left.stayed else 0


def run_lab(directory: Path, open_browser: bool, port: int | None) -> int:
    """Open JupyterLab on a folder of notebooks, at the first chapter."""
    from pplab.lab import start

    places = ("chapters/00_start_here.ipynb", "00_start_here.ipynb")
    first = next((place for place in places if (directory / place).exists()), None)
    return start(directory, open_browser, port, notebook=first)


if __name__ == "__main__":
    sys.exit(main())
