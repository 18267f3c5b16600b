"""A model named on the command line: ``FILE.py:NAME``, or a config.json of Hugging Face."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

NAME = "pplab_profiled"  # what the file is called while it runs: its functions travel by value


def load(model: str, sample: str | None) -> tuple[Any, Any]:
    """The named objects of a Python file, which is run once; or the path of a config.

    ValueError says what is not there. Errors of the file itself are raised as they are.
    """
    path, colon, name = model.rpartition(":")
    if not colon or not path.endswith(".py"):
        if not model.endswith(".json"):
            raise ValueError(f"{model!r} is neither FILE.py:NAME nor a config.json")
        if sample is not None:
            raise ValueError("--sample names something in FILE.py; a config brings its own")
        return model, None
    if not Path(path).exists():
        raise ValueError(f"there is no file {path}")
    sys.path.insert(0, str(Path(path).resolve().parent))
    names = runpy.run_path(path, run_name=NAME)
    for wanted in filter(None, (name, sample)):
        if wanted not in names:
            raise ValueError(f"{path} defines no {wanted!r}")
    return names[name], names[sample] if sample else None
