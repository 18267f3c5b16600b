"""Sweeps on real ranks: memory against GAS, an interrupt, a rank that fails."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import pplab
from pplab import models, schedules

MS = 1e-3
COUNTS = (1, 2, 4, 8, 16)


@pytest.fixture(scope="module")
def both() -> pplab.Sweeps:
    """GPipe and 1F1B with real activations, on three ranks."""
    model = models.gpt(layers=3, width=32, heads=2, context=16)
    return pplab.sweep(
        [schedules.gpipe, schedules.one_f_one_b], model, stages=3, micro_batches=COUNTS, steps=2,
        quiet=True,
    )  # fmt: skip


def test_1f1b_does_not_keep_more_with_more_micro_batches_and_gpipe_does(both: pplab.Sweeps) -> None:
    gpipe, one = both["GPipe"], both["1F1B"]
    for stage in range(3):
        each = one.runs[1].memory[stage]["activation_bytes"]
        assert [p.memory[stage] for p in gpipe.points] == [m * each for m in COUNTS]
        assert [p.memory[stage] for p in one.points] == [min(m, 3 - stage) * each for m in COUNTS]
    for sweep in both:
        for point in sweep.points:
            assert sweep.predicted(point.micro_batches).memory == pytest.approx(point.memory)


def test_losses_do_not_depend_on_the_order_of_operations(both: pplab.Sweeps) -> None:
    for m in COUNTS:
        assert both["GPipe"][m].loss == pytest.approx(both["1F1B"][m].loss, rel=1e-5)


def test_a_fixed_batch_is_the_same_training_however_it_is_cut(clean: str) -> None:
    model = models.gpt(layers=2, width=32, heads=2, context=16)
    sweep = pplab.sweep(
        "1f1b", model, stages=2, global_batch=16, micro_batches=(2, 8), quiet=True, steps=2
    )
    assert [(p.micro_batches, p.micro_batch_size) for p in sweep.points] == [(2, 8), (8, 2)]
    assert {p.samples for p in sweep.points} == {16}
    assert sweep[8].peak == pytest.approx(sweep[2].peak / 4, rel=0.05)
    assert sweep.costs_from == "the runs with M = 2 and 8" and len(sweep.curve) == 3


def test_an_interrupt_keeps_the_points_and_leaves_no_process(clean: str) -> None:
    def interrupt(sweep: pplab.Sweep, point: object) -> None:
        if len(sweep) == 2:
            threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()

    sweep = pplab.sweep(
        "1f1b", models.paced(100 * MS, 100 * MS), stages=2, micro_batches=(1, 2, 64), steps=2,
        measure_on=2, on_point=interrupt, quiet=True,
    )  # fmt: skip
    assert sweep.stopped and [p.micro_batches for p in sweep.points] == [1, 2]
    assert sweep.missing() == "Stopped before M = 64."


def test_a_rank_that_fails_costs_one_point(clean: str) -> None:
    def layers():
        from torch import nn

        return [nn.Linear(4, 4), nn.Linear(4, 4)]

    def batch(index):
        import torch

        if index >= 8:
            raise MemoryError("no room for micro-batch 8")
        return torch.ones(2, 4), torch.ones(2, 4)

    sweep = pplab.sweep(
        "1f1b", models.own(layers, data=batch), stages=2, micro_batches=(2, 4, 16), steps=2,
        quiet=True,
    )  # fmt: skip
    assert [p.micro_batches for p in sweep.points] == [2, 4]
    assert "no room for micro-batch 8" in sweep.problems[16] and not sweep.stopped
