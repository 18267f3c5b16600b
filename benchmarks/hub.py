"""One server for a class: what a learner takes of its memory, and how long a first run takes.

A real hub with the configuration of deploy/, on this machine; `LEARNERS` open a chapter at once and
each run two real ranks. Memory is PSS: a page that several processes share counts in parts, so that
the sum over all learners is what the machine really gives.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import entry
from tests.runs.hub import Hub, missing, running_hub
from tests.runs.processes import marked

LEARNERS = ("ada", "bob", "cy", "dee")
IDS = ("hub.base_mb", "hub.learner_open_mb", "hub.learner_mb", "hub.learner_s")
_RUN = """import pplab
plan = pplab.schedules.one_f_one_b(stages={ranks}, micro_batches=4)
model = pplab.models.gpt(layers=4, width=128, context=64)
print(len(pplab.run(plan, model, steps={steps}, quiet=True).losses))"""


def run() -> list[dict[str, Any]]:
    """All figures; without values, and with the reason, where no hub can be started."""
    if reason := missing():
        return [entry(name, None, "MB", None, "lower", reason) for name in IDS]
    with (
        tempfile.TemporaryDirectory(prefix="pplab-hub-") as folder,
        running_hub(Path(folder), PPLAB_MAX_RANKS="2") as hub,
    ):
        return _measure(hub)


def _measure(hub: Hub) -> list[dict[str, Any]]:
    many = len(LEARNERS)
    base = _megabytes(marked(hub.mark))
    begin = time.monotonic()
    hub.start(*LEARNERS)
    kernels = [hub.kernel(name, "chapters/01_bubbles.ipynb") for name in LEARNERS]
    first = [kernel.send(_RUN.format(ranks=2, steps=2)) for kernel in kernels]
    for kernel, number in zip(kernels, first, strict=True):
        said = kernel.finish(number)
        assert said.strip() == "2", said
    seconds = time.monotonic() - begin
    opened = (_megabytes(marked(hub.mark)) - base) / many
    long = [kernel.send(_RUN.format(ranks=2, steps=150)) for kernel in kernels]
    peak, ends = 0.0, time.monotonic() + 12
    while time.monotonic() < ends:
        peak = max(peak, _megabytes(marked(hub.mark)))
        time.sleep(0.3)
    for kernel, number in zip(kernels, long, strict=True):
        assert kernel.finish(number).strip() == "150"
    how = f"PSS, {many} learners on one hub"
    return [
        entry("hub.base_mb", base, "MB", None, "lower", "PSS of the hub, its proxy and its culler"),
        entry("hub.learner_open_mb", opened, "MB", None, "lower",
              f"{how}: server, kernel and process server of each, between runs"),
        entry("hub.learner_mb", (peak - base) / many, "MB", None, "lower",
              f"{how}, all running two ranks (GPT, 4 layers of 128) at once: the peak, a learner"),
        entry("hub.learner_s", seconds, "s", None, "lower",
              f"from asking for {many} servers at once to the end of everybody's first run, "
              f"{psutil.cpu_count()} cores"),
    ]  # fmt: skip


def _megabytes(processes: list[psutil.Process]) -> float:
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended
            continue
    return total / 1e6


if __name__ == "__main__":
    from benchmarks.report import table

    print(table(run()))
