"""Table 5 of the Zero Bubble paper, all twelve rows, and why interleaved 1F1B seemed to be off."""

import pytest

from pplab.core.schedules import interleaved, one_f_one_b
from pplab.core.schedules.zb_table import CASES, SCHEDULE_NAMES, rate, rows

by_row = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.model}-m{c.micro_batches}")


@by_row
@pytest.mark.parametrize("name", ["1F1B", "ZB-H1", "ZB-H2"])
def test_published_rates_to_four_decimals(case, name):
    assert round(rate(case, name), 4) == case.published[name]


@by_row
def test_interleaved_to_four_decimals_as_the_authors_counted_it(case):
    assert round(rate(case, "1F1B-I", wrap="first"), 4) == case.published["1F1B-I"]


@by_row
def test_interleaved_with_every_message_counted_is_a_little_worse(case):
    surplus = rate(case, "1F1B-I") - case.published["1F1B-I"]
    assert 0 < surplus < 0.004


def test_all_rows_are_there():
    table = rows()
    assert len(table) == len(CASES) * len(SCHEDULE_NAMES) == 48
    assert all(round(value, 4) == published for _, value, published in table)
    assert table[0][0] == "1.5B p8 m24 1F1B"


def test_free_messages_would_miss_the_table():
    """Trap: (p-1)/(m+p-1) alone gives .2258 where the paper has .2431."""
    case = CASES[0]
    P, M = case.stages, case.micro_batches
    bare = one_f_one_b(P, M).simulate(forward=case.forward, backward=case.backward + case.weight)
    assert bare.bubble == pytest.approx((P - 1) / (M + P - 1)) == pytest.approx(0.2258, abs=1e-4)
    assert rate(case, "1F1B") - bare.bubble > 0.01


def test_without_message_times_the_wrap_makes_no_difference():
    from dataclasses import replace

    case = replace(CASES[0], message=0.0)
    all_, first = (rate(case, "1F1B-I", wrap=wrap) for wrap in ("all", "first"))
    assert all_ == pytest.approx(first)
    theory = interleaved.theory(case.stages, case.micro_batches, chunks=case.chunks)
    assert all_ == pytest.approx(theory.bubble)
