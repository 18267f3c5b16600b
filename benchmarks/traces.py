"""A profiler trace of 100 MB: how long reading it takes and how much memory, beside ``json.load``.

The file is generated in the layout of Kineto (white space and all): 32 operations of a pipeline a
step, and between them thousands of operators, kernels and their launches, which a reader has to
get past. Both readers run in a process of their own, one after the other, on the same file.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import entry

SIZE = 100_000_000  # bytes
MICRO_BATCHES = 16
INSIDE = 150  # operators in an operation, each with a launch and a kernel
HEAD = """ {
    "schemaVersion": 1,
    "deviceProperties": [],
      "trace_id": "AB6C37FF26934810A20AA47EE2192A62",
      "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1, "pg_count": 1},
      "host_name": "host",
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
"""
EVENT = """
  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts:.3f}, "dur": {dur:.3f},
    "args": {{
      {args}
    }}
  }}"""
OPERATORS = (
    "aten::linear", "aten::addmm", "aten::gelu", "aten::native_layer_norm", "aten::add",
    "aten::scaled_dot_product_attention", "autograd::engine::evaluate_function: AddmmBackward0",
)  # fmt: skip
KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::Tensor"
    "IteratorBase&, at::native::GeluType)::{lambda()#1}, at::detail::Array<char*, 2> >(int)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat"
    "16_t> >(Flash_fwd_params)",
)
#: What runs in the process that is measured: prints seconds, peak bytes, and how much was found.
MEASURE = """
import json, resource, sys, time
path, how = sys.argv[1:]
if how == "pplab":
    from pplab.traces import load
else:
    load = None
begin = time.perf_counter()
if load is None:
    with open(path) as file:
        found = len(json.load(file)["traceEvents"])
else:
    found = len(load(path, progress=False).timeline)
seconds = time.perf_counter() - begin
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps([seconds, peak, found]))
"""


def run() -> list[dict[str, Any]]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank-0.json"
        operations, events = write_trace(path, SIZE)
        size = path.stat().st_size
        ours, plain = measured(path, "pplab"), measured(path, "json")
    if ours[2] != operations:
        raise AssertionError(f"{operations} operations were written, {ours[2]} found")
    how = (
        f"generated Kineto trace of {size / 1e6:.0f} MB, {events:,} events, {operations} of them "
        f"operations, all found; json.load of the same file: {plain[0]:.2f} s, "
        f"{plain[1] / 1e6:.0f} MB"
    )
    return [
        entry("traces.read_100mb_s", ours[0], "s", 10, "lower", how),
        entry(
            "traces.read_100mb_peak_mb", ours[1] / 1e6, "MB", 1000, "lower",
            "peak resident memory of that process, Python and numpy included",
        ),
        entry(
            "traces.read_over_json", ours[0] / plain[0], "ratio", None, "lower",
            "time of pplab.traces.load over time of json.load",
        ),
    ]  # fmt: skip


def measured(path: Path, how: str) -> tuple[float, int, int]:
    """(seconds, peak bytes, found) of one reader in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), how], capture_output=True, text=True, check=True
    )
    seconds, peak, found = json.loads(result.stdout)
    return seconds, peak, found


def write_trace(path: Path, size: int) -> tuple[int, int]:
    """Write a trace of about `size` bytes; (operations, events) in it."""
    written = operations = events = 0
    with path.open("w") as file:
        file.write(HEAD)
        for named, texts in _operations(random.Random(0)):
            block = ",".join(texts)
            file.write(block if not events else "," + block)
            written += len(block) + 1
            operations += named
            events += len(texts)
            if written > size and named == 0:  # the end of a step
                break
        file.write('\n  ],\n  "traceName": "rank-0.json"\n}\n')
    return operations, events


def _operations(pick: random.Random) -> Iterator[tuple[int, list[str]]]:
    """Texts of the events of one operation after the other; (0, ...) ends a step."""
    now, number = 5118942133386.696, 0
    while True:
        begin = now
        for name in [f"{kind}{m}" for m in range(MICRO_BATCHES) for kind in "FB"]:
            start, texts = now, []
            for _ in range(INSIDE):
                number += 1
                lasts = pick.uniform(5, 60)
                texts += _operator(pick, now, lasts, number)
                now += lasts
            texts.insert(0, _event("user_annotation", name, 4037, 4037, start, now - start, number))
            yield 1, texts
            now += 3.0
        step = _event("user_annotation", "ProfilerStep#7", 4037, 4037, begin, now - begin, number)
        yield 0, [step.replace("#7", f"#{number}")]


def _operator(pick: random.Random, now: float, lasts: float, number: int) -> list[str]:
    dims = '"Input Dims": [[4096, 1024], [1024, 4096], []], "Input type": ["c10::BFloat16", ""]'
    return [
        _event("cpu_op", pick.choice(OPERATORS), 4037, 4037, now, lasts, number, dims),
        _event("cuda_runtime", "cudaLaunchKernel", 4037, 4037, now + 1, 3, number,
               f'"cbid": 211, "correlation": {number}'),
        _event("kernel", pick.choice(KERNELS), 0, 7, now + 90, lasts, number,
               f'"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, '
               '"registers per thread": 32, "shared memory": 0, "grid": [128, 1, 1], '
               '"block": [128, 1, 1], "est. achieved occupancy %": 31'),
    ]  # fmt: skip


def _event(
    cat: str, name: str, pid: int, tid: int, ts: float, dur: float, number: int, more: str = ""
) -> str:
    args = f'"External id": {number}' + (f", {more}" if more else "")
    return EVENT.format(cat=cat, name=name, pid=pid, tid=tid, ts=ts, dur=dur, args=args)
