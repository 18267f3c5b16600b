"""The config checker: cases from the field found, false alarms on legal configs, and how long.

The cases are those of tests/unit/test_check_cases.py and test_check_configs.py (shared/cases.md,
sections A and B, rewritten).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import entry
from pplab.advise.check import check
from pplab.advise.check.finding import SEVERITIES
from tests.unit.test_check_cases import CASES
from tests.unit.test_check_configs import CONFIGS


def run() -> list[dict[str, Any]]:
    """All figures."""
    return [*_field(), *_speed()]


def _field() -> Iterator[dict[str, Any]]:
    found, missed = 0, []
    for case in CASES:
        report = check(case.config, **case.job)
        said = [
            f for f in report.findings
            if f.rule == case.rule and case.key in ("", f.key)
            and SEVERITIES.index(f.severity) <= SEVERITIES.index(case.severity)
        ]  # fmt: skip
        found += bool(said)
        missed += [] if said else [case.id]
    faulty = [one for one in CONFIGS if one.rules]
    for one in faulty:
        said = set(one.rules) <= check(one.config, **one.job).rules()
        found += said
        missed += [] if said else [one.id]
    total = len(CASES) + len(faulty)
    how = f"cases and faulty configs with the right finding, of {total}"
    how += f"; missed: {', '.join(missed)}" if missed else ""
    yield entry("check.open_found", 100 * found / total, "%", 95, "higher", how)

    legal = [one for one in CONFIGS if not one.rules]
    alarms = [one.id for one in legal if not check(one.config, **one.job).ok]
    how = f"legal configs with anything worse than a note, of {len(legal)}"
    how += f": {', '.join(alarms)}" if alarms else ""
    yield entry("check.false_alarms", len(alarms), "configs", 0, "lower", how)


def _speed() -> Iterator[dict[str, Any]]:
    config = {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 3},
        "pipeline": {"enabled": True, "pipe_parallel_size": 4},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ds_config.json"
        path.write_text(json.dumps(config))
        command = [sys.executable, "-m", "pplab.advise.check.cli", str(path), "--gpus", "8"]
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([*command, "--stages", "4", "--layers", "24"], capture_output=True)
            times.append(time.perf_counter() - start)
    how = "one config from the command line, process start to end, median of 7"
    yield entry("check.cli_s", median(times), "s", 0.5, "lower", how)
    rng, many = random.Random(3), []
    for _ in range(300):
        many.append({**config, "train_batch_size": rng.randint(1, 4096)})
    start = time.perf_counter()
    for one in many:
        check(one, ranks=8, stages=4, layers=24)
    spent = (time.perf_counter() - start) / len(many) * 1e3
    yield entry("check.one_ms", spent, "ms", None, "lower", "one config in a running process")
