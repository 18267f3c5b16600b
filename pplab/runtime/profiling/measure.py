"""Repeats and medians: what the process that was started for a profile does."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pplab.core import words
from pplab.core.profile import Floats
from pplab.runtime.job import Job
from pplab.runtime.profiling.build import build_chain
from pplab.runtime.profiling.chain import Chain
from pplab.runtime.profiling.meters import clock_for, meter_for
from pplab.runtime.profiling.passes import Found, Passes, unnamed
from pplab.runtime.status import Slot

BLOCK = 5  # repeats of one kind in a row
LEAST = 3  # repeats, however long they take

Report = Callable[[dict[str, Any], list[bytes]], None]


def measure(
    job: Job, task: dict[str, Any], place: dict[str, Any], status: Slot, report: Report
) -> None:
    """Profile the job's model as `task` says; reports one event "result"."""
    device = place["device"]
    torch.set_num_threads(job.threads)
    if device == "cuda":
        torch.cuda.set_device(0)
    status.say("builds the model")
    chain = build_chain(job, task, device)
    passes = Passes(chain, status, clock_for(device))
    found = passes.look()
    for _ in range(task["warmup"]):
        passes.cut(unnamed)
        passes.undivided()
    gc.collect()
    gc.disable()  # a collection in the middle of a layer would show as a longer layer
    times = repeat(chain, passes, task, device, report)
    status.say("reports its results")
    result = {
        "layers": rows(chain, found, times),
        "samples": chain.samples,
        "notes": [*chain.notes, *about(chain, times), *found.notes],
    }
    report({"event": "result", **result}, [])


class Times:
    """Seconds by repeat and layer, of F and of B, in pieces; and of the undivided model."""

    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.pieces: dict[str, list[Floats]] = {"F": [], "B": []}
        self.counts = {"F": np.zeros(layers), "B": np.zeros(layers)}
        self.whole: dict[str, list[float]] = {"F": [], "B": []}

    def add(self, repeats: list[dict[str, float]], counts: dict[str, int]) -> None:
        """Take over the ranges of a block."""
        names = range(self.layers)
        for ranges in repeats:
            for kind, rows in self.pieces.items():
                rows.append(np.array([ranges.get(f"{kind}{i}", 0.0) for i in names]))
        for kind in self.counts:
            self.counts[kind] = np.array([counts.get(f"{kind}{i}", 0.0) for i in names])

    def __len__(self) -> int:
        return len(self.pieces["F"])

    def extra(self, kind: str) -> float:
        """Seconds that cutting and profiling add to all layers' F, or B; never negative."""
        pieces = np.median(self.pieces[kind], axis=0).sum()
        return max(0.0, float(pieces - np.median(self.whole[kind])))

    def corrected(self, kind: str) -> Floats:
        """Seconds by repeat and layer without what cutting and profiling add; (repeats, layers).

        What they add is taken off by operation, but no layer gives up so much that less than half
        of its share of the whole is left: for layers of microseconds counting is too coarse.
        """
        pieces, extra = np.array(self.pieces[kind]), self.extra(kind)
        middle, counts = np.median(pieces, axis=0), self.counts[kind]
        if not extra or not counts.any():
            return pieces
        total = middle.sum()
        least = middle * (total - extra) / total / 2
        left = np.maximum(least, middle - extra * counts / counts.sum())
        left *= (total - extra) / left.sum()
        return pieces * np.divide(left, middle, out=np.ones_like(left), where=middle > 0)


def repeat(
    chain: Chain, passes: Passes, task: dict[str, Any], device: str, report: Report
) -> Times:
    """Blocks of repeats in pieces and undivided, in turn; the first pass of each is dropped."""
    times = Times(len(chain.layers))
    end = time.monotonic() + task["seconds"]
    while len(times) < task["repeats"] and (len(times) < LEAST or time.monotonic() < end):
        block = min(BLOCK, task["repeats"] - len(times))
        meter = meter_for(device)
        for _ in range(block + 1):
            passes.cut(meter.range)
        repeats, counts = meter.close()
        times.add(repeats[1:], counts)
        passes.undivided()
        for _ in range(block):
            forward, backward = passes.undivided()
            times.whole["F"].append(forward)
            times.whole["B"].append(backward)
        report({"event": "repeat", "done": len(times)}, [])
        gc.collect()
    return times


def rows(chain: Chain, found: Found, times: Times) -> list[dict[str, Any]]:
    """The fields of each layer's LayerProfile."""
    forward, backward = times.corrected("F"), times.corrected("B")
    low, high = np.percentile(forward + backward, (25, 75), axis=0)
    table = []
    for i, layer in enumerate(chain.layers):
        parameters = layer.parameters()
        table.append(
            {
                "name": layer.name,
                "forward": float(np.median(forward[:, i])),
                "backward": float(np.median(backward[:, i])),
                "spread": float(high[i] - low[i]) / 2,
                "parameters": sum(p.numel() for p in parameters if p.requires_grad),
                "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters),
                "activation_bytes": found.activations[i],
                "output_bytes": found.outputs[i],
                "kind": layer.kind,
                "tied": layer.tied,
            }
        )
    return table


def about(chain: Chain, times: Times) -> list[str]:
    """How it was measured, in sentences."""
    whole = sum(float(np.median(times.whole[kind])) for kind in "FB")
    extra = sum(times.extra(kind) for kind in "FB")
    loss = "the loss is counted with the last layer"
    if chain.loss is None:
        loss = "no loss was given: the backward pass starts with a gradient of ones"
    cost = extra / whole if whole else 0.0
    small = (
        "; layers this short are hard to tell apart: take a larger micro-batch"
        if cost > 0.5
        else ""
    )
    return [
        f"medians of {len(times)} repeats; {loss}",
        f"the cuts between the layers and the profiler's ranges made it {cost:.0%} slower than the "
        f"undivided model ({words.duration(whole, 's', 3)}); that is taken off again{small}",
    ]
