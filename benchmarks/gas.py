"""The GAS sweep: how far the throughput predicted from one run is from the measured one."""

from __future__ import annotations

from typing import Any

import pplab
from benchmarks.report import entry

COUNTS = (1, 2, 4, 8, 16, 32)
FORWARD, BACKWARD = 0.010, 0.020  # seconds per stage of the paced model
GPT = {"layers": 8, "width": 192, "heads": 4, "context": 64}  # real work: two ranks on two cores
REPEATS = 3  # runs of each point, taking turns; the fastest counts, on both sides
BATCH, LAUNCH, SAMPLE = 64, 0.002, 0.002  # a fixed batch: seconds of F per operation, per sample


def run() -> list[dict[str, Any]]:
    """Every figure of the group."""
    paced = swept(pplab.models.paced(FORWARD, BACKWARD), stages=4, steps=3)
    computed = swept(pplab.models.gpt(**GPT), stages=2, steps=4)
    fixed = swept(_paced_by_size, stages=4, steps=3, global_batch=BATCH, micro_batches=COUNTS[2:])
    both = {"paced, 4 ranks": paced, "computed GPT, 2 ranks": computed}
    worst = max(sweep.error for sweep in both.values())
    told = "; ".join(f"{name}: {_told(sweep)}" for name, sweep in both.items())
    how = (
        f"worst |simulated / measured - 1| of samples/s, 1F1B, M = {COUNTS[0]} to {COUNTS[-1]}, "
        f"all costs from the run with M = 2P, the fastest of {REPEATS} runs a point; {told}"
    )
    found = [entry("gas.curve_error", 100 * worst, "%", 10, "lower", how)]
    for name, sweep in (("paced", paced), ("computed", computed)):
        how = (
            f"knee predicted at M = {sweep.knee}, measured at M = {sweep.measured_knee} (doublings)"
        )
        found.append(entry(f"gas.curve_error_{name}", 100 * sweep.error, "%", None, "lower", how))
    how = (
        f"a batch of {BATCH} cut into more and more micro-batches, paced, costs from the first "
        f"and last run: {_told(fixed)}; fastest at M = {_at(fixed.best)}, predicted "
        f"{_at(fixed.predicted_best)}, formula {pplab.batch.best_cut(4, BATCH, LAUNCH, SAMPLE):.1f}"
    )
    found.append(entry("gas.fixed_batch_error", 100 * fixed.error, "%", None, "lower", how))
    return found


def swept(model: Any, **settings: Any) -> pplab.Sweep:
    """A sweep of 1F1B without display; the picture's table is printed."""
    settings = {"micro_batches": COUNTS, **settings}
    sweep = pplab.sweep("1f1b", model, repeats=REPEATS, quiet=True, **settings)
    print(sweep, flush=True)
    return sweep


def _paced_by_size(samples: int) -> pplab.models.Model:
    forward = LAUNCH + SAMPLE * samples
    return pplab.models.paced(forward, 2 * forward)


def _told(sweep: pplab.Sweep) -> str:
    return " ".join(f"{m}: {error:+.1%}" for m, error in sweep.errors.items())


def _at(point: Any) -> str:
    return str(point.micro_batches) if point else "none"
