"""Schedules on real ranks: step times against the simulator, and how many equal the plain loop."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import pplab
from benchmarks.report import entry
from pplab.core.schedules import SCHEDULES
from pplab.core.schedules.weights import updates_midway

P, M = 4, 8
UNIT = 0.020  # seconds of F, of B and of W of a whole stage
REPEATS = 3  # runs of each schedule, taking turns, so that noise hits both sides of a ratio
GPT = pplab.models.gpt(layers=8, width=32, heads=2, context=16)


def run() -> list[dict[str, Any]]:
    """Every figure of the group."""
    return [*step_times(), *equal_to_the_loop()]


def plan_of(name: str, stages: int = P, micro_batches: int = M) -> pplab.Schedule:
    """A published schedule; the asynchronous ones are streams of `micro_batches`."""
    return SCHEDULES[name](stages, micro_batches)


def step_times() -> list[dict[str, Any]]:
    """Each schedule paced with F = B = W, against its simulation and against 1F1B."""
    measured: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    predicted: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    ideal = {}
    for _ in range(REPEATS):
        for name in SCHEDULES:
            plan = plan_of(name)
            part = UNIT / plan.chunks
            model = pplab.models.paced(part, 2 * part, layers=P * plan.chunks)
            zero = 0 if updates_midway(plan) else 1
            done = pplab.run(plan, model, zero=zero, steps=5, quiet=True, keep=False)
            measured[name].append(done.step_time)
            predicted[name].append(done.simulate().step_time)
            ideal[name] = plan.simulate(forward=part, backward=2 * part).step_time
    took = {name: statistics.median(times) for name, times in measured.items()}
    found = []
    for name in SCHEDULES:
        from_costs = statistics.median(
            m / p for m, p in zip(measured[name], predicted[name], strict=True)
        )
        how = (
            f"P={P}, M={M}, F=B=W={UNIT * 1e3:g} ms a stage, paced: {took[name] * 1e3:.1f} ms; set "
            f"times simulated: {ideal[name] * 1e3:.1f} ms; over measured costs simulated: "
            f"{from_costs:.3f}"
        )
        value = took[name] / ideal[name]
        found.append(entry(f"schedules.step_{name}", value, "ratio", None, "lower", how))
    for name, key in (("zb-h1", "zbh1"), ("interleaved", "interleaved")):
        real = took[name] / took["1f1b"]
        simulated = ideal[name] / ideal["1f1b"]
        how = f"step of {name} over step of 1F1B: measured {real:.4f}, simulated {simulated:.4f}"
        error = abs(real / simulated - 1)
        found.append(entry(f"schedules.{key}_ratio_error", error, "", 0.03, "lower", how))
    return found


def equal_to_the_loop() -> list[dict[str, Any]]:
    """Every published schedule on the small GPT: simulated, run, equal to its one-process loop."""
    ran = equal = 0
    worst, about = 0.0, []
    for name in SCHEDULES:
        plan = plan_of(name)
        settings: dict[str, Any] = {"optimizer": "SGD", "lr": 0.1, "keep_parameters": True}
        settings |= {"quiet": True, "keep": False, "zero": 0}
        plan.simulate(forward=1, backward=2)
        real = pplab.run(plan, GPT, **settings)
        loop = pplab.run(plan, GPT, engine="plain", **settings)
        ran += 1
        error = max(
            float(np.abs(real.parameters[key] - value).max() / np.abs(value).max())
            for key, value in loop.parameters.items()
        )
        worst = max(worst, error)
        equal += error <= 1e-5
        about.append(f"{name} {error:.0e}")
    how = f"of {ran} simulated and run on {P} ranks, parameters equal to 1e-5: {', '.join(about)}"
    return [entry("schedules.real", equal, "", len(SCHEDULES), "higher", how)]
