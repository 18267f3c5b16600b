"""How long each notebook took when `make live` last ran it: build/nbval_seconds.json.

Kept for notebooks of this repository (chapters, labs/source) that ran from the first cell to the
last without failing, and alone: under pytest-xdist notebooks share the cores, and their seconds
would say nothing. A digest of the file tells whether it has changed since. Read by
benchmarks/labs.py.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTE = ROOT / "build" / "nbval_seconds.json"
#: Folders whose notebooks are compared with what they print (NOTEBOOKS of the Makefile).
FOLDERS = ("chapters", "labs/source")


def notebooks(root: Path = ROOT) -> list[str]:
    """The notebooks of the repository that nbval runs, relative to it."""
    found = [path for folder in FOLDERS for path in (root / folder).glob("*.ipynb")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def digest(path: Path) -> str:
    """What tells one version of a notebook from another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def read(note: Path = NOTE) -> dict[str, dict[str, Any]]:
    """Notebook -> {"seconds", "cells", "digest"}; {} when there is no note to read."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return {str(name): dict(item) for name, item in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write(
    took: Mapping[Path, tuple[float, int]], note: Path = NOTE, root: Path = ROOT
) -> list[str]:
    """Note seconds and cells of notebooks; those of other notebooks stay. The names noted."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return []
    known = {root / name: name for name in notebooks(root)}
    new = {
        known[path]: {"seconds": round(seconds, 3), "cells": cells, "digest": digest(path)}
        for path, (seconds, cells) in took.items()
        if path in known
    }
    if new:
        kept = {name: item for name, item in read(note).items() if name in known.values()}
        note.parent.mkdir(exist_ok=True)
        beside = note.with_suffix(f".new-{os.getpid()}")
        beside.write_text(json.dumps(dict(sorted((kept | new).items())), indent=1))
        os.replace(beside, note)
    return sorted(new)


def minutes(note: Path = NOTE, root: Path = ROOT) -> tuple[float | None, str]:
    """Minutes that all notebooks take one after another, and how that is known; None, and the
    reason, when the seconds of one are missing."""
    kept, names = read(note), notebooks(root)
    if not kept:
        return None, f"no nbval session has noted its times (make live writes {note.name})"
    missing = [name for name in names if name not in kept]
    if missing:
        listed = ", ".join(missing)
        return None, f"{len(missing)} of {len(names)} have not yet passed under nbval: {listed}"
    changed = [name for name in names if kept[name]["digest"] != digest(root / name)]
    longest = max(names, key=lambda name: kept[name]["seconds"])
    how = (
        f"{len(names)} notebooks under nbval, one after the other, when `make live` last ran each; "
        f"longest: {longest}, {kept[longest]['seconds']:.0f} s"
    )
    if changed:
        how += f"; changed since: {', '.join(changed)}"
    return sum(kept[name]["seconds"] for name in names) / 60, how
