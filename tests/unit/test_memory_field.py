"""The memory model against recorded runs: a 64-GPU log, and the BigScience A100 tables."""

import os
from pathlib import Path

import numpy as np
import pytest

from pplab.core.memory import Transformer, transformer_memory
from pplab.traces import read_log

SHARED = Path(os.environ.get("PPLAB_SHARED", Path(__file__).parents[3] / "shared"))
LOG = SHARED / "traces" / "bigscience" / "gpt2-pp16-tp4-gas256.log"
MiB = 2**20

#: 52B GPT-2 of the log: TP4 PP16, micro-batch 4, GAS 256, fp16, ZeRO-0, every layer checkpointed.
GPT = Transformer(64, 8192, 32, 1024, vocabulary=50688, positions=1024)

#: D8 of numbers.md; hidden size, heads and vocabulary from the same notes (BigScience,
#: train/tr11-200B-ml/chronicles-prequel.md). They fixed the hidden size and changed the layers so
#: that the stages divide them: the counts here are the multiples that give the printed sizes.
#: (layers, hidden, heads, replicas, stages, GB at micro-batch 1, 2, 4, 8); TP8, sequence 2048,
#: vocabulary 250k, fp16, ZeRO-1. GB as nvidia-smi shows them.
A100_SIZES = [
    (78, 14400, 96, 8, 6, (39, 45, 56, 75)),
    (80, 14400, 96, 4, 10, (35, 43, 55, 76)),
    (77, 14400, 96, 4, 11, (32, 41, 53, 75)),
    (72, 14336, 64, 4, 12, (29, 37, 49, 69)),
]
#: The same for micro-batch 1 over layouts: (layers, replicas, stages, GB); hidden 14400.
A100_LAYOUTS = [
    (80, 12, 4, 47), (80, 9, 5, 44), (78, 8, 6, 39), (77, 6, 7, 39), (80, 6, 8, 36),
    (81, 5, 9, 37), (80, 4, 10, 35), (77, 4, 11, 32), (72, 4, 12, 30),
]  # fmt: skip
#: What a process needs beside its tensors: CUDA context, NCCL, buckets, fragmentation.
PROCESS = 8.5


def recorded():
    """(allocated, max allocated) in bytes by stage, from the log; each is the mean of 4 ranks."""
    memory = read_log(LOG).stage_memory
    return np.array([(row["allocated"], row["max_allocated"]) for row in memory.values()])


def stage_parameters():
    """Parameters by stage, from the log."""
    found = read_log(LOG).parameters
    return [found[stage, 0] for stage in range(16)]


@pytest.fixture(scope="module")
def log():
    """The recorded memory, and the prediction."""
    if not LOG.exists():
        pytest.skip(f"no log at {LOG} (set PPLAB_SHARED)")
    memory = transformer_memory(GPT, 16, 256, 4, tensor=4, recompute="full")
    return recorded(), memory


def test_parameters_of_every_stage(log):
    _, memory = log
    assert [int(rank.parameters) for rank in memory.ranks] == stage_parameters()


def test_the_staircase(log):
    """272 MB a stage from stage 1 to 8, then flat: the update needs more than the backward pass."""
    measured, memory = log
    steps = np.diff([rank.peak for rank in memory.ranks])[1:8] / MiB
    assert steps == pytest.approx(np.diff(measured[:, 1])[1:8] / MiB, abs=0.5)
    assert steps == pytest.approx(-272, abs=0.01)
    phases = [rank.phase for rank in memory.ranks]
    assert phases[1:9] == ["backward"] * 8 and phases[9:15] == ["update"] * 6


def test_peaks_of_every_stage(log):
    """Middle stages within 1 %; the last one also keeps logits that the model does not count."""
    measured, memory = log
    ratio = np.array([rank.peak for rank in memory.ranks]) / measured[:, 1]
    assert np.abs(ratio[:15] - 1).max() < 0.01
    assert abs(ratio[15] - 1) < 0.05
    rest = np.array([rank.rest for rank in memory.ranks]) / measured[:, 0]
    assert np.abs(rest[:15] - 1).max() < 0.01


def a100(layers, hidden, heads, replicas, stages, micro_batch):
    """Predicted peak in GB."""
    model = Transformer(layers, hidden, heads, 2048, vocabulary=250_880, positions=2048)
    gas = 2048 // (replicas * micro_batch)
    memory = transformer_memory(
        model, stages, gas, micro_batch, tensor=8, zero=1, replicas=replicas, recompute="full"
    )
    return memory.peak / 1e9


def test_a100_layouts():
    """Nine ways to spread 200B over 48 nodes: one constant for the process, the rest predicted."""
    left = [gb - a100(n, 14400, 96, d, p, 1) for n, d, p, gb in A100_LAYOUTS]
    assert np.mean(left) == pytest.approx(PROCESS, abs=0.5)
    assert np.ptp(left) < 3.0  # of 17 GB between the largest and the smallest


@pytest.mark.parametrize("row", A100_SIZES, ids=lambda row: f"p{row[4]}")
def test_a100_growth_with_the_micro_batch(row):
    """GB a sample more in the micro-batch, from 2 to 8: within 15 %."""
    *shape, measured = row
    predicted = [a100(*shape, b) for b in (1, 2, 4, 8)]
    slope = (predicted[3] - predicted[1]) / 6
    assert slope == pytest.approx((measured[3] - measured[1]) / 6, rel=0.15)
    for gb, told in zip(measured, predicted, strict=True):
        assert told + PROCESS == pytest.approx(gb, rel=0.12)


def test_104b_on_32_gb():
    """18 bytes a parameter: 17 GB with and 15 GB without the embedding (TP4 PP32, tr8)."""
    model = Transformer(64, 11600, 80, 2048, 50257)
    with_embedding = 2 * model.layer_share(4) + model.embedding_share(4)
    assert 18 * with_embedding / 1e9 == pytest.approx(17.2, abs=0.1)
    assert 18 * 2 * model.layer_share(4) / 1e9 == pytest.approx(14.5, abs=0.1)
