"""Lines of logs that say something of a pipeline: what they look like, and what they hold.

Known lines (the wording of their sources; whatever a launcher puts before them does not matter):

- Megatron-LM and Megatron-DeepSpeed, training.py: `` iteration 5/ 100 | elapsed time per iteration
  (ms): 137805.9 | lm loss: ... |``, fields between bars; until 2020 without colons (``lm loss
  1.09E+01``), of GPT-NeoX with ``samples/sec: 12.3 |`` before it, of argonne-lcf's fork as
  ``iteration= 5/ 100 | elapsed_time_per_iteration_ms=137805.9 |``;
- DeepSpeed, runtime/pipe/engine.py: ``steps: 5 loss: 2.3017 iter time (s): 0.512 samples/sec:
  124.9``, of diffusion-pipe and qlora-pipe ``step: 5 / 100 loss: ...``; utils/timer.py:
  ``epoch=0/micro_step=8/global_step=2, RunningAvgSamplesPerSec=...``, until 2022 ``0/8,
  SamplesPerSec=...``; runtime/pipe/module.py: ``stage=0 layers=7`` and ``Using topology:
  {ProcessCoord(pipe=0, ...``; runtime/utils.py, rank 0 only: ``MA 0.05 GB Max_MA 0.06 GB ...``;
- ``report_memory``: ``[Rank 5] (after 1 iterations) memory (MB) | allocated: ... | max allocated:
  ... |``, in units of 2^20 bytes; until 2021 of rank 0 alone, and cached for reserved;
- timers: ``forward-compute .....: (106.8, 180.3)``, the least and the most of all ranks (ms);
- `` > number of parameters on (tensor, pipeline) model parallel rank (2, 12): 805560320``.
"""

from __future__ import annotations

import re
from typing import Any

MiB, GiB = 2**20, 2**30

_ITERATION = re.compile(r"(?:samples/sec: (\S+) \| )?iteration[= ]\s*(\d+)/\s*(?:\d+|infinity) \|")
_PIPE = re.compile(
    r"steps?:\s+(\d+)(?: /\s*\d+)? loss: (\S+) .*?iter time \(s\): ([\d.]+) samples/sec: ([\d.]+)"
)
_SPEED = re.compile(
    r"(?:epoch=\d+/micro_step=(\d+)/global_step=| \d+/)(\d+), (?:RunningAvg)?SamplesPerSec=([\d.]+)"
    r"(?:, CurrSamplesPerSec=([\d.]+))?(?:.*MaxMemAllocated=([\d.]+)GB)?"
)
_MEMORY = re.compile(
    r"(?:\[Rank (\d+)\] )?\(?after (\d+) iterations\)? memory \(MB\)"
    r"((?: \| [a-z ]+: \d+(?:\.\d+)?)+)"
)
_USAGE = re.compile(r"\bMA [\d.]+ GB[ |]+Max_MA ([\d.]+) GB")
_TIMER = re.compile(r"([a-z][\w/-]+) \.{2,}: \(([\d.]+), ([\d.]+)\)")
_STAGE = re.compile(r"stage=(\d+) layers=(\d+)")
_COORD = re.compile(r"ProcessCoord\(([^)]*)\): (\d+)")
_PARAMETERS = re.compile(
    r"number of parameters on \(tensor, pipeline\) model parallel rank \((\d+), (\d+)\): (\d+)"
)
SIGNS = (_ITERATION, _PIPE, _SPEED, _MEMORY, _STAGE, _COORD, _PARAMETERS)
#: What a refusal says of them.
KNOWN = (
    "lines such as 'iteration 5/ 100 | elapsed time per iteration (ms): ...', 'steps: 5 loss: ... "
    "iter time (s): ...', '[Rank 5] (after 1 iterations) memory (MB) | allocated: ...'"
)

#: Field of an iteration line, with blanks for underscores -> our name; the rest keeps its own.
_FIELDS = {
    "elapsed time per iteration (ms)": "seconds",
    "elapsed time per iteration ms": "seconds",
    "lm loss": "loss",
    "lm-loss": "loss",
    "grad norm": "grad_norm",
    "learning rate": "learning_rate",
    "global batch size": "global_batch_size",
    "throughput per GPU (TFLOP/s/GPU)": "tflops",
    "TFLOPs": "tflops",
    "approx flops per GPU": "tflops",
    "samples per second": "samples_per_second",
}
_SIZES = {
    "allocated": "allocated",
    "max allocated": "max_allocated",
    "reserved": "reserved",
    "max reserved": "max_reserved",
    "cached": "reserved",
    "max cached": "max_reserved",
}
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_FIELD = re.compile(rf"\s*(.*?)\s*[:=\s]\s*({_NUMBER})(?:TFLOPS)?\s*")


def take(line: str, record: dict[str, Any]) -> None:
    """Add what a line says to the fields of a LogRecord."""
    if match := _ITERATION.search(line):
        speed, number = match.groups()
        row = fields(line[match.end() :])
        _add(record, int(number), row | (_float("samples_per_second", speed) if speed else {}))
    elif match := _PIPE.search(line):
        step, loss, seconds, speed = match.groups()
        _add(record, int(step), {"seconds": float(seconds), "samples_per_second": float(speed),
                                 **_float("loss", loss)})  # fmt: skip
    elif match := _SPEED.search(line):
        micro, step, average, now, most = match.groups()
        micro_steps = {"micro_step": int(micro)} if micro else {}
        _add(record, int(step), {**micro_steps, "samples_per_second": float(now or average)})
        record["peak"] = max(record["peak"], float(most or 0) * GiB)
    elif "memory (MB)" in line:
        for match in _MEMORY.finditer(line):  # ranks that print at once share a line
            sizes: dict[str, float] = {"rank": int(match[1] or 0), "iteration": int(match[2])}
            for part in match[3].split(" | ")[1:]:
                name, _, size = part.partition(": ")
                if name in _SIZES:
                    sizes[_SIZES[name]] = float(size) * MiB
            record["memory"].append(sizes)
    elif match := _USAGE.search(line):
        record["peak"] = max(record["peak"], float(match[1]) * GiB)
    elif match := _TIMER.search(line):
        record["timers"][match[1]] = float(match[2]) / 1e3, float(match[3]) / 1e3
    elif match := _STAGE.search(line):
        record["layers"][int(match[1])] = int(match[2])
    elif match := _PARAMETERS.search(line):
        record["parameters"][int(match[2]), int(match[1])] = int(match[3])
    elif "ProcessCoord(" in line:
        for match in _COORD.finditer(line):
            axes = (item.split("=") for item in match[1].split(","))
            record["place"][int(match[2])] = {name.strip(): int(at) for name, at in axes}


def _add(record: dict[str, Any], number: int, row: dict[str, float]) -> None:
    """Add to the row of an iteration, when the last one is of the same (DeepSpeed and Megatron
    each write a line in one log), else begin one."""
    iterations = record["iterations"]
    same = iterations and iterations[-1]["iteration"] == number
    if same and not ("seconds" in row and "seconds" in iterations[-1]):
        iterations[-1].update(row)
    else:
        iterations.append({"iteration": number, **row})


def fields(text: str) -> dict[str, float]:
    """The numbers between the bars of an iteration line, by our names."""
    row: dict[str, float] = {}
    for part in text.split("|"):
        match = _FIELD.fullmatch(part)
        if match:
            name = match[1].replace("_", " ")
            row |= _float(_FIELDS.get(name, name), match[2])
    if "seconds" in row:
        row["seconds"] /= 1e3
    return row


def _float(name: str, text: str) -> dict[str, float]:
    try:
        return {name: float(text)}
    except ValueError:
        return {}
