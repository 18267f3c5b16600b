"""Names for profilers: a range around every operation, in torch.profiler and in NVTX.

The names are the operations' own (``F3``, ``B3.1``, ``R3`` for the wait before it, ``U``, ...), so
that ``pplab.traces`` reads them back; and ``step 2`` is around a step. Nothing is made when nothing
listens: not for torch.profiler without ``profile=True``, not for NVTX without a GPU or
``nsys=True``. On a GPU, NVTX ranges are always there (some hundred nanoseconds when no tool is
attached), for whoever starts pplab under Nsight Systems himself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from pplab.core.ops import WHOLE_STEP, Op
from pplab.runtime.job import Job

#: What a mark with our notes begins with; ``pplab.traces.nsys`` looks for it.
ABOUT = "pplab "


class Unnamed:
    """Names nothing, for the price of a call: what a run without a profiler uses."""

    def __call__(self, kind: str, micro_batch: int = WHOLE_STEP, chunk: int = 0) -> Any:
        """A context around an operation, or around a step (kind "step", its number)."""
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


class Named(Unnamed):
    """Names what happens in its contexts, with ranges made by `make`."""

    def __init__(self, make: Callable[[str], AbstractContextManager[Any]]) -> None:
        self.make = make

    def __call__(self, kind: str, micro_batch: int = WHOLE_STEP, chunk: int = 0) -> Any:
        if kind == "step":
            return self.make(f"step {micro_batch}")
        return self.make(str(Op(kind, micro_batch, chunk)))


def naming(job: Job, device: str) -> tuple[Unnamed, str]:
    """What names operations in this rank; and a warning when NVTX, asked for, is not there."""
    nvtx = _nvtx() if job.nsys or device == "cuda" else None
    warning = ""
    if job.nsys and nvtx is None:
        warning = (
            "the ranges of operations will be missing in the report of Nsight Systems: this torch "
            "is built without NVTX (no CUDA), and the package nvtx is not installed (pip install "
            "nvtx)"
        )
    if nvtx is None:
        return (Named(torch.profiler.record_function) if job.profile else Unnamed()), warning
    push, pop, _ = nvtx

    @contextlib.contextmanager
    def ranged(name: str) -> Any:
        push(name)
        try:
            yield
        finally:
            pop()

    if not job.profile:
        return Named(ranged), warning

    @contextlib.contextmanager
    def both(name: str) -> Any:
        with torch.profiler.record_function(name), ranged(name):
            yield

    return Named(both), warning


def _nvtx() -> tuple[Callable[[str], Any], Callable[[], Any], Callable[[str], Any]] | None:
    """(push, pop, mark) of torch's NVTX, else of NVIDIA's Python package; None without either."""
    try:
        torch.cuda.nvtx.mark("")
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop, torch.cuda.nvtx.mark
    except RuntimeError:  # a torch without CUDA
        pass
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx.push_range, nvtx.pop_range, nvtx.mark


def about(job: Job, place: dict[str, Any], where: dict[str, int]) -> dict[str, Any]:
    """What a trace of this rank should say of it, as plain JSON values."""
    from pplab.runtime.collect import source_label  # the notebook's side: only when it is needed

    layout = job.layout
    return {
        "rank": place["rank"],
        "world": job.world,
        "stage": where["stage"],
        "replica": where["replica"],
        "tensor": where.get("part", 0),
        "layout": {
            "stages": layout.stages, "chunks": layout.chunks, "placement": layout.placement,
        },
        "engine": job.engine,
        "schedule": job.schedule.name if job.schedule else "",
        "source": source_label(job, place) + ", seen by a profiler",
    }  # fmt: skip


def mark(notes: dict[str, Any]) -> None:
    """Put notes into the NVTX stream, where there is one."""
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx[2](ABOUT + json.dumps(notes))
