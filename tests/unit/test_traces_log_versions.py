"""Lines of logs as versions, forks and launchers write them."""

from __future__ import annotations

import pytest

from pplab.cli import main
from pplab.traces import TraceError, read_log
from pplab.traces.log_lines import fields

GiB = 2**30


def read(tmp_path, text: str | bytes):
    path = tmp_path / "train.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (  # Megatron-LM until 2020: no colons
            " iteration        1/  500000 | elapsed time per iteration (ms): 5123.4 | learning "
            "rate 1.000E-05 | lm loss 1.095432E+01 | loss scale 65536.0 |",
            {"seconds": 5.1234, "learning_rate": 1e-5, "loss": 10.95432, "loss scale": 65536.0},
        ),
        (  # GPT-NeoX
            "10.0.0.7:  samples/sec: 12.345 | iteration        1/  320000 | elapsed time per "
            "iteration (ms): 2591.9 | approx flops per GPU: 33.1TFLOPS | lm_loss: 1.1E+01 |",
            {"samples_per_second": 12.345, "seconds": 2.5919, "tflops": 33.1, "loss": 11.0},
        ),
        (  # argonne-lcf/Megatron-DeepSpeed
            "[2024-06-21 10:50:42][INFO][training:1] - iteration=       1/ 320000 | "
            "consumed_samples=  768 | elapsed_time_per_iteration_ms=108893.2 | global_batch_size="
            "  768 | lm loss=11.13 | samples_per_second=7.053 |",
            {"consumed samples": 768, "seconds": 108.8932, "global_batch_size": 768,
             "loss": 11.13, "samples_per_second": 7.053},
        ),
        (
            " iteration       1/infinity | consumed samples: 80 | elapsed time per iteration (ms): "
            "100.0 |",
            {"consumed samples": 80, "seconds": 0.1},
        ),
        (  # diffusion-pipe, qlora-pipe
            "step:     1 /  2000 loss: 0.1234 iter time (s): 3.210 samples/sec: 1.246 eta: 1h45m ",
            {"loss": 0.1234, "seconds": 3.21, "samples_per_second": 1.246},
        ),
        (  # DeepSpeed until 2022
            "[2021-06-01 10:00:00,000] [INFO] [timer.py:154:stop] 0/1, SamplesPerSec=12.5",
            {"samples_per_second": 12.5},
        ),
        (
            "[timer.py:157:stop] 0/1, RunningAvgSamplesPerSec=12.6, CurrSamplesPerSec=12.7, "
            "MemAllocated=1.0GB, MaxMemAllocated=2.0GB",
            {"samples_per_second": 12.7},
        ),
    ],
)  # fmt: skip
def test_lines_of_an_iteration(tmp_path, line, row):
    (found,) = read(tmp_path, line + "\n").iterations
    assert found == pytest.approx({"iteration": 1, **row})


@pytest.mark.parametrize("prefix", ["12: ", "[default0]:", "n1: [2023-06-21 03:45:55,424] [INFO] ",
                                    "2024-01-01T00:00:00Z stdout F ", "\x1b[32m"])  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", "\x1b[0m\n"])
def test_what_launchers_put_around_a_line_does_not_matter(tmp_path, prefix, end):
    line = "steps: 20 loss: 2.2 iter time (s): 0.500 samples/sec: 128.000"
    assert read(tmp_path, prefix + line + end).step_time == 0.5


def test_lines_within_a_progress_bar(tmp_path):
    line = " iteration {}/ 5 | elapsed time per iteration (ms): {}.0 | lm loss: 1.0 |"
    text = f"  0%|  | 0/10\r 10%|# |{line.format(1, 90)}\r 20%|## \r{line.format(2, 80)}\n"
    assert [row["seconds"] for row in read(tmp_path, text).iterations] == [0.09, 0.08]


def test_lines_of_both_programs_make_one_row(tmp_path):
    """Megatron-DeepSpeed without a pipeline: DeepSpeed's timer and Megatron's line."""
    record = read(tmp_path, "".join(
        f"[timer.py:260:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=58.7,"
        " CurrSamplesPerSec=61.3, MemAllocated=6.01GB, MaxMemAllocated=19.52GB\n"
        f" iteration   {n}/  317892 | elapsed time per iteration (ms): 14287.5 | lm loss: 5.9 |\n"
        for n in (199, 200)
    ))  # fmt: skip
    assert [row["iteration"] for row in record.iterations] == [199, 200]
    assert all({"seconds", "micro_step", "loss"} <= row.keys() for row in record.iterations)
    assert record.peak == pytest.approx(19.52 * GiB)
    assert "at most 21.0 GB on rank 0" in str(record)


REPORT = (
    "[Rank {}] (after 1 iterations) memory (MB) | allocated: 100.0 | max allocated: {}.0 | "
    "reserved: 300.0 | max reserved: 400.0"
)


def test_reports_of_ranks_that_print_at_once(tmp_path):
    text = REPORT.format(2, 200) + REPORT.format(6, 250) + " | device usage: 9.0\n\n"
    rows = read(tmp_path, text).memory
    assert [(row["rank"], row["max_allocated"] / 2**20) for row in rows] == [(2, 200), (6, 250)]


def test_reports_of_other_versions(tmp_path):
    old = (
        "after 10 iterations memory (MB) | allocated: 1.5 | max allocated: 2.5 | cached: 3.0 | max "
    )
    (row,) = read(tmp_path, old + "cached: 4.0\n").memory
    assert row == {"rank": 0, "iteration": 10, "allocated": 1.5 * 2**20,
                   "max_allocated": 2.5 * 2**20, "reserved": 3 * 2**20,
                   "max_reserved": 4 * 2**20}  # fmt: skip
    short = "[Rank 1] (after 1 iterations) memory (MB) | allocated: 956.1 | max allocated: 957.1\n"
    place = "{ProcessCoord(pipe=0, data=0): 0, ProcessCoord(pipe=1, data=0): 1}\n"
    record = read(tmp_path, place + short)
    assert record.stage_memory[1]["max_allocated"] == pytest.approx(957.1 * 2**20)
    assert "most memory on stage 1" in str(record)


def test_memory_that_only_rank_0_tells(tmp_path):
    record = read(tmp_path, (
        "[utils.py:801:see_memory_usage] MA 0.05 GB         Max_MA 1.5 GB         CA 0.07 GB  \n"
        "[utils.py:801:see_memory_usage] MA 0.05 GB | Max_MA 1.25 GB | CA 0.07 GB\n"
        "steps: 10 loss: nan iter time (s): 0.512 samples/sec: 124.977\n"
    ))  # fmt: skip
    assert record.peak == 1.5 * GiB and record.memory == []


def test_timers_show_uneven_ranks(tmp_path):
    text = (
        " iteration 1/ 5 | elapsed time per iteration (ms): 900.0 |\n"
        "(min, max) time across ranks (ms):\n"
        "    forward-compute ................................: (106.82, 180.28)\n"
        "    train/valid/test-data-iterators-setup ..........: (114.59, 114.59)\n"
    )
    record = read(tmp_path, text)
    assert record.timers["forward-compute"] == pytest.approx((0.10682, 0.18028))
    assert "106.8 ms on the quickest rank and 180.3 ms on the slowest" in str(record)
    assert "quickest" not in str(read(tmp_path, text.replace("180.28", "108.0")))


def test_fields_that_are_no_numbers_are_left_out():
    assert fields(" lm loss: nonsense | mode: train | epoch 3 | | grad norm: nan") == (
        pytest.approx({"epoch": 3, "grad_norm": float("nan")}, nan_ok=True)
    )


def test_other_logs_are_refused_with_the_lines_that_are_known(tmp_path, capsys):
    """torchtitan's and picotron's tell no time of an iteration."""
    for line in ("[titan] - root - INFO - step: 10  loss:  7.2  tps: 5,012  mfu: 12.1%\n",
                 "[rank 0] Step: 1 | Loss: 10.9 | Tokens/s: 1.2K | MFU: 1.20%\n"):  # fmt: skip
        with pytest.raises(TraceError, match=r"it knows lines such as 'iteration 5/ 100 \|"):
            read(tmp_path, line)
        assert main(["trace", str(tmp_path / "train.log")]) == 1
        assert "lines such as 'iteration 5/ 100 |" in capsys.readouterr().err


def test_a_log_cannot_be_diagnosed_but_summed_up(tmp_path, capsys):
    read(tmp_path, "steps: 10 loss: 2.3 iter time (s): 0.512 samples/sec: 124.977\n")
    assert main(["diagnose", str(tmp_path / "train.log")]) == 2
    assert "`pplab trace train.log`" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "train.log")]) == 0
    assert "iteration 10, typical 512 ms" in capsys.readouterr().out
