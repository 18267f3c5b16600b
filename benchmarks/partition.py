"""Cutting a model: how fast, and never worse than the source's, DeepSpeed's and torchgpipe's ways.

Times are medians of several runs on one core. Quality is the largest stage of each method over the
least possible one, on random layer costs and on the PipeDream profiles where they are present
(``../shared/profiles/pipedream``, or under PPLAB_SHARED).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import partition_drag, partition_real
from benchmarks.report import entry
from pplab.core.partition import least_maximum, minimax, partition
from pplab.core.partition.block import block_partition
from pplab.core.partition.cuts import check_bounds, loads, uniform
from pplab.core.partition.deepspeed import partition_balanced
from pplab.core.partition.steps import STEPS
from pplab.core.profile import Profile

SHARED = Path(os.environ.get("PPLAB_SHARED", Path(__file__).parents[2] / "shared"))
MODELS = ("alexnet", "vgg16", "resnet50", "gnmt")

#: Costs as they come: equal blocks, blocks with heavy ends, anything, whole numbers.
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "uniform": lambda rng, n: rng.random(n),
    "whole numbers": lambda rng, n: rng.integers(1, 20, n).astype(float),
    "blocks": lambda rng, n: np.concatenate(([8.0], np.ones(n - 2), [20.0])),
}


def milliseconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return median(times)


def run() -> list[dict[str, Any]]:
    """All figures; growth and the ladder of the source's snippet are printed on the way."""
    found = [*_speed(), *_ladder(), *_others(), *_recorded(), *_step_times(), *partition_drag.run()]
    found += partition_real.run()
    _growth()
    return found


def _speed() -> Iterator[dict[str, Any]]:
    for name, n, parts, target in (("1kx64", 1_000, 64, 5), ("10kx256", 10_000, 256, 40)):
        rng = np.random.default_rng(7)
        worst, which = 0.0, ""
        for kind, make in KINDS.items():
            costs = make(rng, n)
            check_bounds(minimax(costs, parts), n, parts)
            spent = milliseconds(lambda: minimax(costs, parts), 7)  # noqa: B023
            if spent > worst:
                worst, which = spent, kind
        how = f"minimax({n:,} layers, {parts} stages), slowest of {len(KINDS)} kinds ({which})"
        yield entry(f"partition.{name}_ms", worst, "ms", target, "lower", how)


def _ladder() -> Iterator[dict[str, Any]]:
    """The source's snippet and what becomes of it, on the same costs."""
    rng = np.random.default_rng(8)
    spent: dict[tuple[str, int], float] = {}
    print("  ladder (ms):          " + "".join(f"{n:>5} x {p:<4}" for n, p in _LADDER))
    for name, step in STEPS:
        row = []
        for n, parts in _LADDER:
            costs = rng.random(n).tolist()
            if n > _AT_MOST[name]:
                row.append("          -")
                continue
            spent[name, n] = milliseconds(lambda: step(costs, parts), 3)  # noqa: B023
            row.append(f"{spent[name, n]:>11.3f}")
        print(f"    {name:20}" + "".join(row))
    ratio = spent["snippet", 120] / spent["parametric search", 120]
    how = "time of the source's cubic table over ours, 120 layers, 8 stages, equal values"
    yield entry("partition.faster_than_source", ratio, "x", None, "higher", how)


_LADDER = ((30, 8), (60, 8), (120, 8), (400, 16), (1_000, 64))
_AT_MOST = {
    "snippet": 120,
    "prefix sums": 400,
    "binary search": 1_000,
    "parametric search": 1_000,
}


def _others() -> Iterator[dict[str, Any]]:
    """DeepSpeed's balancer and torchgpipe's blocks: speed and largest stage, same costs."""
    try:
        from deepspeed.runtime.utils import partition_balanced as installed

        what = "the installed DeepSpeed's partition_balanced"
    except ImportError:
        installed, what = partition_balanced, "our array form of DeepSpeed's (not installed)"
    rng = np.random.default_rng(9)
    costs = rng.lognormal(size=300)
    ours = milliseconds(lambda: minimax(costs, 16))
    slow = milliseconds(lambda: installed(costs.tolist(), 16), 1)
    how = f"time of {what} over ours, 300 layers, 16 stages"
    yield entry("partition.faster_than_deepspeed", slow / ours, "x", None, "higher", how)
    large = rng.lognormal(size=1_000)
    ratio = milliseconds(lambda: block_partition(large, 64)) / milliseconds(
        lambda: minimax(large, 64)
    )
    how = "time of torchgpipe's algorithm (ours of it, in arrays) over ours, 1,000 x 64"
    yield entry("partition.faster_than_torchgpipe", ratio, "x", None, "higher", how)

    worst: dict[str, float] = {"deepspeed": 1.0, "torchgpipe": 1.0, "uniform": 1.0}
    never, cases = 0.0, 0
    for n, parts, repeats in ((8, 3, 150), (12, 5, 150), (48, 8, 40), (200, 16, 8), (1_000, 64, 1)):
        for make in KINDS.values():
            for _ in range(repeats):
                costs = make(rng, n)
                least = least_maximum(costs, parts)
                for name, bounds in _rivals(costs, parts):
                    ratio = float(loads(costs, bounds).max()) / least
                    worst[name], never = max(worst[name], ratio), max(never, 1 / ratio)
                cases += 1
    how = f"our largest stage over the best other method's, worst of {cases} random cases"
    yield entry("partition.worst_ratio_random", never, "ratio", 1.0, "lower", how)
    for name, ratio in worst.items():
        how = f"largest stage of {name} over the least possible, worst of {cases} random cases"
        yield entry(f"partition.{name}_excess", ratio, "ratio", None, "lower", how)


def _rivals(costs: np.ndarray, parts: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "uniform", uniform(len(costs), parts)
    yield "deepspeed", partition_balanced(costs, parts)
    yield "torchgpipe", block_partition(costs, parts)


def _profiles() -> list[tuple[str, Profile]]:
    paths = [(m, SHARED / "profiles" / "pipedream" / f"{m}.graph.txt") for m in MODELS]
    return [(model, Profile.load(path)) for model, path in paths if path.exists()]


def _recorded() -> Iterator[dict[str, Any]]:
    """The PipeDream profiles, P = 2 .. 8: largest stage of each method in ms, printed."""
    name = "partition.worst_ratio"
    profiles = _profiles()
    if not profiles:
        how = f"no PipeDream profiles under {SHARED}"
        yield entry(name, None, "ratio", 1.0, "lower", how)
        return
    never = 0.0
    print("  largest stage (ms); deepspeed, torchgpipe: their algorithms given the measured times")
    print("    model               P   minimax  by param.  uniform deepspeed torchgpipe")
    for model, profile in profiles:
        for parts in range(2, 9):
            least = least_maximum(profile.times, parts)
            cuts = dict(_rivals(profile.times, parts))
            cuts["parameters"] = partition_balanced(profile.column("parameters"), parts)
            most = {n: float(loads(profile.times, cut).max()) for n, cut in cuts.items()}
            never = max(never, *(least / value for value in most.values()))
            shown = [most[n] for n in ("parameters", "uniform", "deepspeed", "torchgpipe")]
            row = "".join(f"{value * 1e3:>10.2f}" for value in (least, *shown))
            print(f"    {model:18} {parts:>2}{row}")
    how = "our largest stage over the best other method's, 4 PipeDream profiles x 2..8 stages"
    yield entry(name, never, "ratio", 1.0, "lower", how)


def _step_times() -> Iterator[dict[str, Any]]:
    """Least step time instead of least largest stage: what it brings, how sure, how long."""
    gain, gap, proven, cases, slowest = 0.0, 0.0, 0, 0, 0.0
    rng = np.random.default_rng(10)
    models: list[Any] = [profile for _, profile in _profiles()]
    models += [make(rng, n) for make in KINDS.values() for n in (24, 48, 96)]
    for model in models:
        for stages, micro_batches in ((4, 4), (4, 16), (8, 8), (8, 32)):
            start = time.perf_counter()
            best = partition(model, stages, micro_batches=micro_batches)
            slowest = max(slowest, time.perf_counter() - start)
            least = partition(model, stages, "minimax", micro_batches=micro_batches)
            gain = max(gain, least.step / best.step - 1)
            gap, proven = max(gap, best.gap or 0.0), proven + (best.gap == 0)
            cases += 1
    how = f"step of the minimax cut over the step-optimal one - 1, largest of {cases} cases (1F1B)"
    yield entry("partition.step_over_minimax", gain * 100, "%", None, "higher", how)
    how = f"share of {cases} cases in which the least step time is proven; the rest is bounded"
    yield entry("partition.proven", proven / cases * 100, "%", None, "higher", how)
    how = "largest shortening of the step that the bounds leave open, over the same cases"
    yield entry("partition.open_gap", gap * 100, "%", None, "lower", how)
    how = "longest of the same searches for the least step time"
    yield entry("partition.step_search_s", slowest, "s", None, "lower", how)


def _growth() -> None:
    rng = np.random.default_rng(11)
    sizes, stages = (100, 1_000, 10_000, 100_000), (8, 64, 256, 1_024)
    print("  growth (ms):  layers " + "".join(f"{f'P = {p}':>11}" for p in stages))
    for n in sizes:
        costs = rng.lognormal(size=n)
        row = [
            f"{milliseconds(lambda: minimax(costs, p), 3):>11.3f}" if p <= n else "          -"  # noqa: B023
            for p in stages
        ]
        print(f"    {n:>17,} " + "".join(row))
