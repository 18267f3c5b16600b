"""Run the benchmarks: prints a table and writes build/bench.json.

``python -m benchmarks [GROUP]``, or ``make bench ONLY=GROUP``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from benchmarks.report import table

#: Group -> module with a function ``run() -> list of entries``. Groups of later issues join here.
GROUPS = {
    "spine": "benchmarks.spine",
    "schedules": "benchmarks.schedules",
    "partition": "benchmarks.partition",
    "check": "benchmarks.check",
    "memory": "benchmarks.memory",
    "labs": "benchmarks.labs",
    "traces": "benchmarks.traces",
    "gas": "benchmarks.gas",
    "diagnose": "benchmarks.diagnose",
    "tune": "benchmarks.tune",
    "hub": "benchmarks.hub",
}
OUT = Path("build/bench.json")


def main() -> int:
    """Measure the chosen groups; 0 whatever the figures are (they are measurements, not tests)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("group", nargs="?", choices=GROUPS, help="one group only")
    chosen = parser.parse_args().group
    groups = [chosen] if chosen else list(GROUPS)
    found = []
    for group in groups:
        print(f"== {group}", flush=True)
        entries = importlib.import_module(GROUPS[group]).run()
        print(table(entries), flush=True)
        found += entries
    kept = []
    if chosen and OUT.exists():  # keep what other groups measured before
        names = {e["id"] for e in found}
        kept = [e for e in json.loads(OUT.read_text()) if e["id"] not in names]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(kept + found, indent=1))
    missed = [e["id"] for e in found if e["met"] is False]
    print(f"\n{len(found)} figures; " + (f"not met: {', '.join(missed)}" if missed else "all met"))
    print(f"wrote {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
