"""Logs of Megatron-LM and DeepSpeed become tables, and never timelines."""

from __future__ import annotations

import gzip
import math

import pytest

from pplab.traces import TraceError, read, read_log
from tests.unit.test_memory_field import LOG

MEGATRON = """\
 > number of parameters on (tensor, pipeline) model parallel rank (0, 1): 805560320
 [2024-05-01 10:00:00] iteration        1/     100 | consumed samples:          128 | elapsed time \
per iteration (ms): 2500.0 | throughput per GPU (TFLOP/s/GPU): 90.1 | learning rate: 1.0E-05 | \
global batch size:   128 | lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 9.5 | number of \
skipped iterations:   0 |
[Rank 3] (after 1 iterations) memory (MB) | allocated: 100.5 | max allocated: 200.0 | reserved: \
300.0 | max reserved: 400.0
 iteration        2/     100 | elapsed time per iteration (ms): 1500.0 | lm loss: 1.0E+01 |
 iteration        3/     100 | elapsed time per iteration (ms): 1600.0 | lm loss: nonsense |
"""
DEEPSPEED = """\
Using topology: {ProcessCoord(pipe=0, data=0): 0, ProcessCoord(pipe=0, data=1): 1, \
ProcessCoord(pipe=1, data=0): 2, ProcessCoord(pipe=1, data=1): 3}
stage=0 layers=3
     0: Linear
stage=1 layers=4
steps: 10 loss: 2.3017 iter time (s): 0.512 samples/sec: 124.977
steps: 20 loss: 2.1000 moe_loss: 0.1 iter time (s): 0.500 samples/sec: 128.000
[2026-01-01 10:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step=160/global_step=20, \
RunningAvgSamplesPerSec=126.1, CurrSamplesPerSec=127.5, MemAllocated=0.1GB, MaxMemAllocated=0.2GB
"""


def test_lines_of_megatron(tmp_path):
    (tmp_path / "log").write_text(MEGATRON)
    record = read_log(tmp_path / "log")
    first = record.iterations[0]
    assert (first["iteration"], first["seconds"], first["loss"]) == (1, 2.5, 11.0)
    assert (first["tflops"], first["global_batch_size"], first["grad_norm"]) == (90.1, 128, 9.5)
    assert "loss" not in record.iterations[2]
    assert record.step_time == pytest.approx(1.55)
    (report,) = record.memory
    assert (report["rank"], report["max_allocated"]) == (3, 200 * 2**20)
    assert record.parameters == {(1, 0): 805560320}
    assert "iterations 1 to 3" in str(record) and "at most 0.2 GB on a rank" in str(record)
    assert math.isnan(record.column("loss")[2])


def test_lines_of_deepspeed(tmp_path):
    (tmp_path / "log.gz").write_bytes(gzip.compress(DEEPSPEED.encode()))
    record = read_log(tmp_path / "log.gz")
    assert record.stages == 2 and record.layers == {0: 3, 1: 4}
    assert record.place[2] == {"pipe": 1, "data": 0} and record.stage_of(3) == 1
    assert [row["iteration"] for row in record.iterations] == [10, 20]
    assert record.iterations[0]["seconds"] == 0.512
    assert record.iterations[1] == {
        "iteration": 20, "seconds": 0.5, "samples_per_second": 127.5, "loss": 2.1,
        "micro_step": 160,
    }  # fmt: skip
    assert "2 stages, 4 ranks" in str(record)


def test_a_log_is_no_timeline(tmp_path):
    (tmp_path / "x").write_text("some launcher talks\n" * 50_000 + MEGATRON)
    with pytest.raises(TraceError, match=r"it has no spans.*read_log"):
        read(tmp_path / "x")


def test_a_file_of_other_lines_is_refused(tmp_path):
    (tmp_path / "x").write_text("hello\nworld\n")
    with pytest.raises(TraceError, match="none of its 2 lines"):
        read_log(tmp_path / "x")


def test_the_recorded_run(log):
    """64 GPUs, 16 stages: what the file says."""
    record = read_log(LOG)
    assert record.stages == 16 and len(record.place) == 64
    assert [record.layers[stage] for stage in range(16)] == [7, *[4] * 14, 8]
    assert record.iterations[0]["seconds"] == pytest.approx(159.7789)
    times = record.column("seconds")[1:]
    assert times.min() == pytest.approx(125.6433) and times.max() == pytest.approx(141.0968)
    memory = record.stage_memory
    mib = {stage: round(memory[stage]["max_allocated"] / 2**20) for stage in (0, 1, 8, 9, 15)}
    assert mib == {0: 19961, 1: 17462, 8: 15558, 9: 15447, 15: 18175}
    assert "most memory on stage 0" in str(record)


@pytest.fixture
def log():
    if not LOG.exists():
        pytest.skip(f"no log at {LOG} (set PPLAB_SHARED)")
