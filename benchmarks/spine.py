"""The spine: start-up, steps, recording, simulator, memory. Both sides of a ratio in one run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pplab
from benchmarks.report import entry

GPT = {"layers": 8, "width": 64, "heads": 4, "context": 32}  # "small": the steps must not hide
#                                                              the start-up that is compared
FORWARD, BACKWARD = 0.010, 0.020  # seconds per stage of the paced model
P, M = 4, 8
IDEAL = (M + P - 1) * (FORWARD + BACKWARD)
ROOT = Path(__file__).parents[1]


def run() -> list[dict[str, Any]]:
    """Every figure of the group."""
    os.environ.setdefault("PPLAB_RUNS", str(ROOT / "build" / "bench-runs"))
    found: list[dict[str, Any]] = []
    for part in (simulator, cold_start, start_up, steps, predictions, recording, memory, stock,
                 browser, ci):  # fmt: skip
        begin = time.perf_counter()
        found += part()
        print(f"  {part.__name__}: {time.perf_counter() - begin:.0f} s", flush=True)
    return found


def quiet_run(plan: pplab.Schedule | None, model: Any, **settings: Any) -> pplab.Run:
    """A run without display or record."""
    return pplab.run(plan, model, quiet=True, keep=False, **settings)


def one_f_one_b(stages: int = P, micro_batches: int = M) -> pplab.Schedule:
    """The schedule all figures here use."""
    return pplab.schedules.one_f_one_b(stages, micro_batches)


def median_of(times: int, measure: Callable[[], float]) -> float:
    """Median of some repetitions."""
    return statistics.median(measure() for _ in range(times))


def simulator() -> list[dict[str, Any]]:
    """65,536 operations."""
    plan = one_f_one_b(64, 512)
    begin = time.perf_counter()
    plan.simulate(forward=1, backward=2, latency=0.1)
    first = (time.perf_counter() - begin) * 1e3

    def again() -> float:
        begin = time.perf_counter()
        plan.simulate(forward=1, backward=2, latency=0.1)
        return (time.perf_counter() - begin) * 1e3

    return [
        entry("spine.sim_64x512_ms", median_of(21, again), "ms", 10, "lower",
              "built 1F1B, P=64, M=512; median of 21 simulations"),
        entry("spine.sim_first_ms", first, "ms", 300, "lower",
              "the same, first use: validation and dependency graph included"),
    ]  # fmt: skip


COLD = """
import time, pplab
begin = time.perf_counter()
plan = pplab.schedules.one_f_one_b(4, 8)
run = pplab.run(plan, pplab.models.gpt(**{gpt}), quiet=True, keep=False)
print(run.startup)
"""


def cold_start() -> list[dict[str, Any]]:
    """The first run of a session: the server has to import torch and DeepSpeed."""

    def once() -> float:
        code = COLD.format(gpt=GPT)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        )
        return float(done.stdout)

    how = "fresh Python, run() to first recorded operation, 4 ranks, small GPT; median of 3"
    return [entry("spine.cold_s", median_of(3, once), "s", 8, "lower", how)]


def start_up() -> list[dict[str, Any]]:
    """From the call to the first recorded operation, server warm."""
    model = pplab.models.gpt(**GPT)
    quiet_run(one_f_one_b(), model)

    def four() -> float:
        return quiet_run(one_f_one_b(), model, steps=1).startup

    def eight() -> float:
        return quiet_run(one_f_one_b(8, 8), model, steps=1).startup

    return [
        entry("spine.startup_s", median_of(7, four), "s", 0.6, "lower",
              "warm server, run() to first recorded operation, 4 ranks, small GPT; median of 7"),
        entry("spine.startup_8_s", median_of(5, eight), "s", 1.2, "lower",
              "the same with 8 ranks; median of 5"),
    ]  # fmt: skip


def torch_steps() -> list[float]:
    """Step times of torch.distributed.pipelining's 1F1B on the same layers."""
    numbers = [P, M, FORWARD, BACKWARD, 8]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.torch_1f1b", *map(str, numbers)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def steps() -> list[dict[str, Any]]:
    """Barrier to barrier, three engines taking turns on the same paced layers."""
    model = pplab.models.paced(FORWARD, BACKWARD)
    times: dict[str, list[float]] = {"ours": [], "deepspeed": [], "torch": []}
    for _ in range(4):
        settings = {"steps": 8, "zero": 0}
        times["ours"] += quiet_run(one_f_one_b(), model, **settings).step_times[1:]
        stock = quiet_run(None, model, engine="deepspeed", stages=P, micro_batches=M, **settings)
        times["deepspeed"] += stock.step_times[1:]
        times["torch"] += torch_steps()[1:]
    middle = {name: statistics.median(values) for name, values in times.items()}
    how = (
        f"paced {FORWARD * 1e3:.0f}/{BACKWARD * 1e3:.0f} ms, P={P}, M={M}, ZeRO-0, barrier to "
        "barrier; median of 28 steps in 4 runs, engines taking turns; "
        + ", ".join(f"{name} {value / IDEAL:.3f}" for name, value in middle.items())
    )
    return [
        entry("spine.step_over_ideal", middle["ours"] / IDEAL, "x", 1.08, "lower", how),
        entry("spine.deepspeed_over_ideal", middle["deepspeed"] / IDEAL, "x", None, "lower",
              "DeepSpeed's own engine and schedule, in the same run (our cheap layer seeding)"),
        entry("spine.torch_over_ideal", middle["torch"] / IDEAL, "x", None, "lower",
              "torch.distributed.pipelining Schedule1F1B, in the same run"),
        entry("spine.step_vs_deepspeed", middle["ours"] / middle["deepspeed"], "x", 1, "lower",
              "our step / DeepSpeed's"),
        entry("spine.step_vs_torch", middle["ours"] / middle["torch"], "x", 1, "lower",
              "our step / torch's"),
    ]  # fmt: skip


def predictions() -> list[dict[str, Any]]:
    """Simulated step from measured costs against the measured step."""
    found = []
    for id, model, target in (
        ("spine.sim_error_paced", pplab.models.paced(FORWARD, BACKWARD), 0.03),
        ("spine.sim_error_gpt", pplab.models.gpt(layers=8, width=128, context=64), 0.10),
    ):
        errors = []
        for _ in range(5):
            done = quiet_run(one_f_one_b(), model, steps=9)
            measured = statistics.median(
                done.timeline.only(step=s).step_time for s in done.timeline.steps[1:]
            )
            errors.append(abs(done.simulate().step_time / measured - 1))
        how = (
            f"P={P}, M={M}: |simulated / measured - 1|, costs measured in the same run, median "
            f"step of 8; median of 5 runs ({', '.join(f'{e:.1%}' for e in errors)})"
        )
        found.append(entry(id, statistics.median(errors), "share", target, "lower", how))
    return found


def recording() -> list[dict[str, Any]]:
    """What it costs to record a span per operation."""
    model = pplab.models.paced(FORWARD, BACKWARD)
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(8):
        for record in (True, False) if turn % 2 else (False, True):
            done = quiet_run(one_f_one_b(), model, steps=8, record=record)
            times[record] += done.step_times[1:]
    ratio = statistics.median(times[True]) / statistics.median(times[False]) - 1
    how = (
        f"median step of 56 with recording / without - 1, runs taking turns; medians "
        f"{statistics.median(times[True]) * 1e3:.1f} and "
        f"{statistics.median(times[False]) * 1e3:.1f} ms"
    )
    return [entry("spine.record_overhead", ratio, "share", 0.01, "lower", how)]


KERNEL_CELL = """
import pplab
plan = pplab.schedules.one_f_one_b(4, 8)
display(plan.simulate(forward=.01, backward=.02, unit="s"))
run = pplab.run(plan, pplab.models.gpt(**{gpt}), steps=100000, keep=False)
"""


def memory() -> list[dict[str, Any]]:
    """Proportional set size of everything one learner needs, in the middle of a run."""
    import psutil
    from jupyter_client import KernelManager

    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(cwd=str(ROOT))
    client = kernel.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        client.execute(KERNEL_CELL.format(gpt=GPT))
        top = psutil.Process(kernel.provisioner.process.pid)
        end = time.monotonic() + 60
        while len(top.children(recursive=True)) < 6 and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(4)
        everyone = [top, *top.children(recursive=True)]
        sizes = [p.memory_full_info().pss / 2**20 for p in everyone]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    how = (
        "PSS of notebook kernel, server, supervisor and 4 ranks in the middle of a small GPT run: "
        + " + ".join(f"{size:.0f}" for size in sizes)
    )
    value = float(np.sum(sizes)) if len(sizes) == 7 else None
    return [entry("spine.pss_4ranks_mb", value, "MiB", 500, "lower", how)]


def stock() -> list[dict[str, Any]]:
    """The whole run against the same work through the stock `deepspeed` command."""
    import shutil

    if not (shutil.which("g++") and shutil.which("ninja")):
        how = "the stock command compiles a C++ op, which needs g++ and ninja; they are not here"
        return [entry("spine.warm_vs_stock", None, "x", 0.125, "lower", how)]
    command = [
        str(Path(sys.executable).parent / "deepspeed"), "--num_gpus", str(P),
        "--module", "benchmarks.stock_train", "--stages", str(P), "--micro_batches", str(M),
        "--steps", "3", "--size", "4", *(str(x) for k, v in GPT.items() for x in (f"--{k}", v)),
    ]  # fmt: skip
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)}

    def theirs() -> float:
        begin = time.perf_counter()
        subprocess.run(command, env=environment, capture_output=True, check=True, cwd=ROOT)
        return time.perf_counter() - begin

    def ours() -> float:
        begin = time.perf_counter()
        quiet_run(one_f_one_b(), pplab.models.gpt(**GPT))
        return time.perf_counter() - begin

    first = theirs()  # compiles the op if it has not been compiled here yet
    pairs = [(ours(), theirs()) for _ in range(3)]
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    how = (
        f"whole run, 4 ranks, {M} micro-batches, 3 steps, small GPT: ours (warm) {mine:.2f} s, "
        f"`deepspeed` command {other:.1f} s (its first time here {first:.1f} s); median of 3 each"
    )
    return [entry("spine.warm_vs_stock", mine / other, "x", 0.125, "lower", how)]


def browser() -> list[dict[str, Any]]:
    """Repaint after a key press, and frames per second with 50,000 spans."""
    try:
        from benchmarks import browser as measured
    except ImportError as error:
        how = f"the browser kit is not here: {error}"
        return [
            entry("spine.repaint_ms", None, "ms", 60, "lower", how),
            entry("spine.fps_50k", None, "frames/s", 30, "higher", how),
        ]
    return measured.run()


def ci() -> list[dict[str, Any]]:
    """How long the last `.ci/run` took on this machine (it notes that itself)."""
    note = ROOT / "build" / "ci_seconds"
    if not note.exists():
        how = "no .ci/run has finished in this checkout (it writes build/ci_seconds)"
        return [entry("spine.ci_min", None, "min", 25, "lower", how)]
    minutes = float(note.read_text()) / 60
    return [entry("spine.ci_min", minutes, "min", 25, "lower", "duration of the last .ci/run")]
