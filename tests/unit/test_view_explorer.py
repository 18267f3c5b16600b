"""The explorer in the kernel: what it answers, and what it says when a schedule is wrong."""

from collections.abc import Iterator

import pytest

from pplab.core.ops import B, F, Op
from pplab.core.schedule import schedule
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.view.explorer import RANGES, explore, facts
from pplab.view.show import WIDGET


def wish(**changes: object) -> dict[str, object]:
    numbers = {"stages": 4, "micro_batches": 8, "backward": 2, "link": 0}
    return {"schedule": "1F1B", "seq": 1, **numbers, **changes}


@schedule(name="mine")
def hasty(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """A learner's slip: the backward pass comes first."""
    for m in range(micro_batches):
        yield B(m)
        yield F(m)


@schedule(name="picky")
def picky(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """Another one: it breaks for some numbers only."""
    if micro_batches > 8:
        raise IndexError("list index out of range")
    yield from one_f_one_b.generator(stage, stages, micro_batches)


def test_it_begins_with_1f1b_among_the_published_schedules() -> None:
    view = explore()
    assert view.params["schedule"] == "1F1B" and "GPipe" in view.choices
    assert view.timeline is not None and view.timeline.step_time == 33
    assert view.ranges["micro_batches"] == (1, 64, 1)


def test_a_question_from_the_page_is_answered_with_its_number() -> None:
    view = explore(gpipe)
    before = view.rev
    view._asked(None, wish(schedule="GPipe", stages=8, micro_batches=32, seq=7), [])
    assert (view.seq, view.rev) == (7, before + 1)
    assert view.timeline is not None and view.timeline.stages == 8
    assert view.meta["n"] == 2 * 8 * 32 and view.params["micro_batches"] == 32
    view._asked(None, {"nudge": 10}, [])
    assert view.rev == before + 1


def test_formula_and_peak() -> None:
    t = one_f_one_b(4, 8).simulate()
    (formula, meaning), (peak, where) = facts(t)
    assert formula == "27.3 %" and "3/11" in meaning
    assert peak == "4" and "rank 0" in where


def test_chunks_cost_their_part_of_a_stage() -> None:
    @schedule(name="two chunks", chunks=2)
    def two(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
        for chunk in range(2):
            for m in range(micro_batches):
                yield F(m, chunk)
        for chunk in (1, 0):
            for m in range(micro_batches):
                yield B(m, chunk)

    view = explore([two, gpipe], stages=2, micro_batches=4)
    assert view.timeline is not None
    assert view.timeline.measures.busy.tolist() == pytest.approx([12, 12])
    assert "peak activations of 1/2 stage" in view.meta["facts"][1][1]


def test_a_wrong_schedule_is_answered_in_sentences() -> None:
    view = explore(hasty)
    assert view.timeline is None and view.meta["lines"] == []
    assert view.meta["problems"][0] == "mine cannot run with these numbers:"
    assert "before its own F0" in view.meta["problems"][1]
    assert view.meta["problems"][-1].startswith("And ")
    data = view._repr_mimebundle_()
    assert set(data) == {WIDGET, "text/plain"} and "before its own F0" in data["text/plain"]


def test_a_schedule_that_raises_does_not_take_the_explorer_down() -> None:
    view = explore(picky)
    assert view.timeline is not None
    view._asked(None, wish(schedule="picky", micro_batches=9), [])
    assert view.meta["problems"] == [
        "picky with 4 stages and 9 micro-batches cannot be built: "
        "IndexError: list index out of range"
    ]
    view._asked(None, wish(schedule="picky", micro_batches=8, seq=2), [])
    assert view.timeline is not None and "problems" not in view.meta


def test_every_published_schedule_answers_at_the_ends_of_the_sliders() -> None:
    view = explore()
    for name in view.choices:
        for stages in (1, 4):
            for micro_batches in (1, 8):
                view.show(schedule=name, stages=stages, micro_batches=micro_batches)
                assert view.timeline is not None or view.meta["problems"][0]


def test_bundle_and_words() -> None:
    view = explore({"my own": gpipe}, stages=2, micro_batches=2)
    data = view._repr_mimebundle_()
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    assert data["text/plain"].splitlines()[1].startswith("33.3 %: (P-1)/(M+P-1) = 1/3")
    assert view.choices == ["my own"]


def test_numbers_outside_the_sliders() -> None:
    for name, (low, high, _) in RANGES.items():
        for value in (low - 1, high + 1):
            with pytest.raises(ValueError, match=f"{name} goes from"):
                explore(gpipe, **{name: value})
    with pytest.raises(ValueError, match="no schedule is called 'x'"):
        explore(gpipe, schedule="x")
    with pytest.raises(ValueError, match="at least one schedule"):
        explore([])
