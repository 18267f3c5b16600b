"""Activations in flight, measured in the ranks: of one micro-batch, and at the worst moment."""

from __future__ import annotations

from typing import Any

import pytest

import pplab
from pplab.core.partition.inflight import in_flight
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import gpipe, interleaved, one_f_one_b, pipedream, zb_h1

SMALL = pplab.models.gpt(layers=4, width=32, heads=2, context=16)


def measured(plan: pplab.Schedule | None, **settings: Any) -> tuple[list[int], list[int]]:
    """(bytes of one micro-batch, bytes at the worst moment) of every rank."""
    run = pplab.run(plan, SMALL, steps=2, quiet=True, keep=False, zero=0, **settings)
    return (
        [rank.get("activation_bytes", 0) for rank in run.memory],
        [rank["activation_peak"] for rank in run.memory],
    )


@pytest.mark.parametrize("make", [one_f_one_b, gpipe, pipedream], ids=lambda make: make.name)
@pytest.mark.parametrize("micro_batches", [2, 6])
def test_the_peak_is_one_micro_batch_times_those_in_flight(
    make: ScheduleMaker, micro_batches: int, clean: str
) -> None:
    plan = make(3, micro_batches)
    one, peak = measured(plan)
    held = [int(rows.max()) for rows in in_flight(plan)]
    if make is one_f_one_b:
        assert held == [min(3 - s, micro_batches) for s in range(3)]
    elif make is gpipe:
        assert held == [micro_batches] * 3
    assert min(one) > 0
    assert peak == [n * bytes_ for n, bytes_ in zip(held, one, strict=True)]


def test_chunks_add_up_and_w_holds_what_b_left(clean: str) -> None:
    one, peak = measured(interleaved(2, 4))
    rows = [row.sum() for row in in_flight(interleaved(2, 4))[0]]
    assert one[0] < peak[0] <= max(rows) * one[0]
    # W keeps its micro-batch: as many in flight as the plan says, freed only after W
    one, peak = measured(zb_h1(3, 6))
    assert [round(p / o) for p, o in zip(peak, one, strict=True)][:2] == [3, 3]
    assert 2 * one[2] < peak[2] <= 3 * one[2]  # B frees what lies behind its last weight


def test_deepspeed_s_own_1f1b_holds_as_much(clean: str) -> None:
    _, own = measured(None, engine="deepspeed", stages=3, micro_batches=6)
    _, ours = measured(one_f_one_b(3, 6))
    assert own == ours
