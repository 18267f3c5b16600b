"""The diagnosis: published answers of real traces, and faults planted in real runs.

The traces are those of the straggler study (arXiv 2505.05713), in ../shared/traces/straggler. A
planted fault is measured twice: with it, and without; the difference is what the diagnosis of the
run with the fault had to foretell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pplab
from benchmarks.report import entry
from pplab.advise.diagnose.imported import network_of_trace
from pplab.advise.diagnose.parts import replayed_span
from pplab.traces.straggler import read_events

TRACES = Path(__file__).parents[2] / "shared" / "traces" / "straggler"
TRUTH = {"ST": ("imbalance", "stage", 3), "AR": ("slow worker", "rank", 0)}
F, B = 0.010, 0.020  # seconds of a stage
REPEATS, STEPS = 2, 6
PLAN = pplab.schedules.one_f_one_b(4, 8)
EVEN = pplab.models.paced(F, B)
LAYERS = pplab.models.paced(F / 2, B / 2, layers=10)


@dataclass(frozen=True)
class Fault:
    """A fault in a run of ``PLAN``, and what the diagnosis should say first."""

    name: str
    cause: str
    model: Any
    settings: dict[str, Any]
    clean: dict[str, Any]
    where: tuple[str, Any]


FAULTS = (
    Fault("slow rank", "slow worker", EVEN,
          {"replicas": 2, "faults": {"slow": {"rank": 2, "replica": 1, "factor": 1.6}}},
          {"replicas": 2}, ("rank", 2)),
    Fault("heavy stage", "imbalance", LAYERS, {"bounds": (0, 2, 4, 6, 10)}, {}, ("stage", 3)),
    Fault("slow link", "communication", EVEN, {"faults": {"link": (0, 0.020, 0)}}, {},
          ("link", (1, 2))),
    Fault("slow loader", "data loading", EVEN, {"faults": {"loading": 0.012}}, {},
          ("ranks", [0, 3])),
)  # fmt: skip
#: Beyond the four: told as well, not part of the figures.
MORE = (
    Fault("rank slow at times", "slow worker", EVEN,
          {"faults": {"slow": {"rank": 1, "factor": 2.5, "part": 0.4}}}, {}, ("rank", 1)),
    Fault("unequal micro-batches", "sequence length", EVEN,
          {"faults": {"lengths": (0.5, 1.5, 0.7, 1.3, 0.6, 2.0, 0.4)}}, {}, ("longest", None)),
)  # fmt: skip


def run() -> list[dict[str, Any]]:
    """All figures."""
    return [*published(), *planted()]


def published() -> list[dict[str, Any]]:
    """The traces of the study against its own answers."""
    if not TRACES.is_dir():
        how = f"the traces are not at {TRACES}"
        return [
            entry(f"diagnose.{name}", None, "", None, "lower", how)
            for name in ("ideal_error", "replay_error", "traces_named")
        ]
    ideal_errors, replay_errors, named, ideals, spans = [], [], 0, [], []
    for name, (cause, key, value) in TRUTH.items():
        path = TRACES / f"timeline-{name}.json.gz"
        found = pplab.diagnose(path)
        theirs = json.loads((TRACES / f"result-{name}.json").read_text())["step_t_noblk"]
        ideal = float(np.mean(list(theirs.values())))
        ideal_errors.append(abs(found.ideal / ideal - 1))
        ideals.append(f"{name} {found.ideal:.4f} s for {ideal:.4f} s")
        replayed, recorded = replayed_span(network_of_trace(read_events(path)))
        replay_errors.append(float(np.max(np.abs(replayed / recorded - 1))))
        spans.append(f"{name} {replayed.mean():.4f} s for {recorded.mean():.4f} s")
        first = found.first
        named += first is not None and first.name == cause and first.where[key] == value
    return [
        entry("diagnose.ideal_error", max(ideal_errors), "", 0.01, "lower",
              f"ideal step against the published one: {', '.join(ideals)}"),
        entry("diagnose.replay_error", max(replay_errors), "", 0.005, "lower",
              "worst step: first F to last B, replayed from the trace's own operations and "
              f"messages without launch delays; means: {', '.join(spans)}"),
        entry("diagnose.traces_named", named, "of 2", 2, "higher",
              "known cause named first: ST last stage too heavy, AR replica 0 rank 0 slow"),
    ]  # fmt: skip


def planted() -> list[dict[str, Any]]:
    """Faults in real runs: named first? And is the saving what removing them really saves?"""
    right, errors, told = 0, [], []
    for fault in (*FAULTS, *MORE):
        ok, error, text = one(fault)
        if fault in FAULTS:
            right += ok
            errors.append(error)
            told.append(text)
        else:
            print(f"    also: {text}{'' if ok else ' NOT NAMED'}", flush=True)
    how = f"paced runs, P=4, M=8, F {F * 1e3:g} ms, B {B * 1e3:g} ms: " + ", ".join(
        fault.name for fault in FAULTS
    )
    return [
        entry("diagnose.planted_found", right, "of 4", 4, "higher", how),
        entry("diagnose.saving_error", max(errors), "", 0.15, "lower",
              f"worst of four, {REPEATS} runs each with and without: {'; '.join(told)}"),
    ]  # fmt: skip


def one(fault: Fault) -> tuple[bool, float, str]:
    """(named first every time, error of the saving, both in words)."""
    ok, foretold, with_it, without = True, [], [], []
    for _ in range(REPEATS):
        found = diagnosed(fault.model, fault.settings)
        first = found.first
        key, value = fault.where
        ok &= first is not None and first.name == fault.cause
        ok &= first is not None and value in (None, first.where.get(key))
        foretold.append(first.saving if first is not None else 0.0)
        with_it.append(found.step)
        clean = dict(fault.clean)
        if fault.name == "heavy stage" and first is not None:
            clean["bounds"] = first.where.get("bounds", (0, 3, 6, 8, 10))  # as it was told to
        without.append(diagnosed(fault.model, clean).step)
    real = float(np.mean(with_it) - np.mean(without))
    error = abs(float(np.mean(foretold)) / real - 1)
    text = f"{fault.name} {np.mean(foretold) * 1e3:.1f} ms foretold, {real * 1e3:.1f} ms saved"
    return bool(ok), error, text


def diagnosed(model: Any, settings: dict[str, Any]) -> Any:
    """The diagnosis of a run."""
    return pplab.diagnose(pplab.run(PLAN, model, steps=STEPS, quiet=True, keep=False, **settings))
