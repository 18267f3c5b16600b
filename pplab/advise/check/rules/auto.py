""" "auto": numbers that transformers or Accelerate put in before DeepSpeed reads the config.

DeepSpeed itself drops the word from the sections it reads into models, and stops at it anywhere
else. One finding for all of them: a config for the Trainer has a dozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.advise.check.reader import dotted
from pplab.core.batch import KEYS

#: Top-level numbers; the autotuner sets those of the batch, too.
NUMBERS = ("gradient_clipping", "gradient_predivide_factor", "steps_per_print")


def words(job: Job) -> list[tuple[str, ...]]:
    """Paths of the values that somebody has to replace, in the order of the file."""
    top = NUMBERS if job.enabled("autotuning") else (*NUMBERS, *KEYS.values())
    found: list[tuple[str, ...]] = []
    for name, value in job.config.items():
        if name in top and value == "auto":
            found.append((name,))
        params = value.get("params") if isinstance(value, dict) else None
        if name in ("optimizer", "scheduler") and isinstance(params, dict):
            found += [(name, "params", key) for key, inner in params.items() if inner == "auto"]
    return found


def _told(paths: list[tuple[str, ...]]) -> str:
    """The keys as a person would list them: "lr and betas in optimizer.params"."""
    groups = groupby(sorted(paths, key=lambda path: dotted(path[:-1])), lambda path: path[:-1])
    told = []
    for section, inside in groups:
        names = [path[-1] for path in inside]
        text = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
        told.append(f"{text} in {dotted(section)}" if section else text)
    return "; ".join(told)


def auto(job: Job) -> Iterator[Finding]:
    """Values that are "auto" where DeepSpeed calculates with them."""
    paths = words(job)
    if not paths:
        return
    keys = f'"auto" for {_told(paths)}: transformers and Accelerate put numbers there'
    if job.pipeline:
        yield job.finding(
            "auto-value", "error", paths[0],
            f"{keys}, and neither of them drives a PipelineModule: DeepSpeed takes the word for "
            "text and stops.",
            "Write numbers. Where one of them starts the job there is no pipeline: check with "
            "--no-pipeline.",
            evidence=("runtime/config.py:607", "B05", "B21"),
        )  # fmt: skip
    else:
        yield job.finding(
            "auto-value", "note", paths[0],
            f"{keys} before DeepSpeed reads them; DeepSpeed itself would stop.",
            "Leave them where one of the two starts the job, else write numbers.",
            evidence=("runtime/config.py:607", "B21"),
        )  # fmt: skip


RULES = (auto,)
