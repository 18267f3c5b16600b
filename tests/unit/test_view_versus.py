"""Schedules beside each other: the numbers, the table, the widget's answers."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pplab.core.ops import F, Op
from pplab.core.schedule import schedule
from pplab.core.schedules import SCHEDULES, gpipe, one_f_one_b, zb_h1
from pplab.view import Case, compare_schedules, which_schedule
from pplab.view.scoreboard import Scoreboard
from pplab.view.scores import Numbers, named, score
from pplab.view.show import WIDGET
from pplab.view.versus import RANGES
from pplab.view.versus_card import picture
from pplab.view.which import CASES

NUMBERS = Numbers(4, 8)


@schedule(name="broken")
def broken(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """A learner's slip."""
    yield F(0)


@schedule(name="raises")
def raises(stage: int, stages: int, micro_batches: int) -> Iterator[Op]:
    """Another one."""
    raise IndexError("list index out of range")


# -- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b", "interleaved", "zb-h1"])
def test_scores_are_those_of_the_literature(name: str) -> None:
    maker = SCHEDULES[name]
    one, theory = score(maker, NUMBERS), maker.theory(4, 8)
    assert one.bubble == pytest.approx(theory.bubble)
    chunks = one.chunks
    assert one.peak == pytest.approx(max(theory.peak) / chunks)
    assert one.step == pytest.approx((theory.work + theory.bubble_time) / chunks)
    assert one.versions == max(theory.versions) and not one.stream and one.stale == 0


def test_streams_are_scored_in_the_full_pipeline() -> None:
    one, other = score(SCHEDULES["pipedream"], NUMBERS), score(SCHEDULES["pipedream-2bw"], NUMBERS)
    for found in (one, other):
        assert found.stream and found.bubble == 0 and found.step == 24
        assert found.timeline is not None and found.timeline.step_time == 33
    assert (one.versions, one.stale) == (4, 3)
    assert (other.versions, other.stale) == (2, 1)
    few = score(SCHEDULES["pipedream-2bw"], Numbers(4, 2))
    assert few.stream and few.versions == 2 and few.step == 6


def test_zb_h2_is_quicker_when_steps_follow_back_to_back() -> None:
    one = score(SCHEDULES["zb-h2"], NUMBERS)
    assert one.step == 27 and one.span == 24
    assert Scoreboard((one,), NUMBERS).cells(one)[0].note == "24 back to back"


def test_chunks_are_counted_as_parts_of_a_stage() -> None:
    one = score(SCHEDULES["interleaved"], NUMBERS)
    assert one.peak == 5.5 and one.messages == 112
    assert score(one_f_one_b, NUMBERS).messages == 2 * 3 * 8


def test_what_cannot_run_says_why() -> None:
    one = score(SCHEDULES["interleaved"], Numbers(4, 6))
    assert not one.runs and "6 is no multiple of 4" in one.problem and math.isnan(one.step)
    assert score(broken, NUMBERS).problem.startswith("rank 0 never runs F1 (and ")
    assert score(raises, NUMBERS).problem == "IndexError: list index out of range"


def test_names() -> None:
    assert list(named(["gpipe", "ZB-H1", one_f_one_b])) == ["GPipe", "ZB-H1", "1F1B"]
    assert list(named("1f1b")) == ["1F1B"] and len(named(None)) == len(SCHEDULES)
    assert list(named({"my own": gpipe})) == ["my own"]
    with pytest.raises(ValueError, match="no schedule is called 'x'; there are gpipe, 1f1b"):
        named(["x"])
    with pytest.raises(ValueError, match="at least one schedule"):
        named([])


# -- the board ------------------------------------------------------------------------------------


def board(*names: str, cap: float | None = None, numbers: Numbers = NUMBERS) -> Scoreboard:
    return Scoreboard(tuple(score(SCHEDULES[name], numbers) for name in names), numbers, cap)


def test_the_fastest_must_fit_and_use_fresh_weights() -> None:
    assert [s.name for s in board("gpipe", "1f1b", "zb-h1", "pipedream").fastest] == ["ZB-H1"]
    assert [s.name for s in board("gpipe", "1f1b").fastest] == ["GPipe", "1F1B"]
    assert [s.name for s in board("gpipe", "1f1b", cap=4).fastest] == ["1F1B"]
    none = board("gpipe", "1f1b", cap=3)
    assert none.fastest == [] and none.verdict().startswith("No schedule runs under the cap")
    found = board("zb-h1", "pipedream", cap=4).verdict()
    assert found == "Fastest under the cap on fresh weights: ZB-H1, 27 units a step."


def test_bars_share_a_scale_and_the_cap_lies_on_it() -> None:
    found = board("gpipe", "1f1b", cap=4)
    one, other = (found.cells(s) for s in found.scores)
    assert (one[2].share, other[2].share, found.cap_share) == (1, 0.5, 0.5)
    assert one[2].over and one[2].note == "over the cap" and not other[2].over
    assert board("1f1b", cap=16).cap_share == 1
    assert board("1f1b").cap_share is None


def test_the_board_in_words() -> None:
    found = board("gpipe", "interleaved", "pipedream", cap=6, numbers=Numbers(4, 6))
    lines = str(found).splitlines()
    assert lines[0].startswith("[simulated] 4 ranks, 6 micro-batches, F : B : W = 1 : 1 : 1, ")
    assert lines[1].startswith("Schedule") and len(lines) == 5
    assert "cannot run with these numbers: interleaved 1F1B sends" in lines[3]
    assert "0.0 % (once filled)" in lines[4] and "gradients up to 3 updates old" in lines[4]
    html = found._repr_html_()
    assert html.count("<tr>") == 4 and html.count("scope='row'") == 3 and "<caption" in html


def test_the_static_picture_says_all_of_it() -> None:
    words = [t.get_text() for t in picture(board("gpipe", "1f1b", cap=4)).texts]
    for expected in ("27.3 %", "over the cap", "| cap 4", "GPipe: 33 units, 27.3 % idle"):
        assert expected in words
    assert words.count("rank 3") == 2
    nothing = picture(board("interleaved", numbers=Numbers(4, 6)))
    assert "6 is no multiple of 4" in " ".join(t.get_text() for t in nothing.texts)


# -- the widget -----------------------------------------------------------------------------------


def wish(view: object, **changes: object) -> dict[str, object]:
    return {**view.params, "seq": 1, **changes}  # type: ignore[attr-defined]


def test_it_begins_with_the_schedules_asked_for_among_all() -> None:
    view = compare_schedules(["gpipe", broken, "1f1b"], cap=6)
    assert view.params["schedules"] == ["GPipe", "broken", "1F1B"]
    assert "ZB-H1" in view.choices and "broken" in view.choices
    assert [s["name"] for s in view.meta["scores"]] == ["GPipe", "1F1B", "broken"]
    assert view.meta["scores"][2]["cells"] is None
    assert "never runs F1" in view.meta["scores"][2]["remarks"]
    assert [g["title"] for g in view.meta["groups"]] == [
        "GPipe: 33 units, 27.3 % idle", "1F1B: 33 units, 27.3 % idle"
    ]  # fmt: skip


def test_it_answers_with_new_numbers() -> None:
    view = compare_schedules(["1f1b", "interleaved"])
    before = view.rev
    view._asked(None, wish(view, seq=5, micro_batches=6, cap=3), [])
    assert (view.seq, view.rev) == (5, before + 1)
    assert "6 is no multiple of 4" in view.meta["scores"][1]["remarks"]
    assert len(view.meta["groups"]) == 1 and view.meta["n"] == 2 * 4 * 6
    assert view.meta["scores"][0]["cells"][2].over
    view._asked(None, wish(view, schedules=["ZB-H1"]), [])
    assert [s["name"] for s in view.meta["scores"]] == ["ZB-H1"]
    view._asked(None, wish(view, schedules=[]), [])
    assert view.meta["lines"] == [] and view.meta["problems"] == ["Choose at least one schedule."]


def test_w_cannot_exceed_the_backward_pass_it_is_a_part_of() -> None:
    view = compare_schedules("zb-h1")
    view._asked(None, wish(view, backward=1, weight=3), [])
    assert view.params["weight"] == 1 and view.board.scores[0].runs
    with pytest.raises(ValueError, match="cannot exceed 2"):
        compare_schedules(backward=2, weight=3)


def test_the_stack_keeps_every_timeline_whole() -> None:
    view = compare_schedules(["gpipe", "zb-h1", "interleaved"], link=0.5)
    meta = view.meta
    assert meta["rows"] == [(k, rank) for k in range(3) for rank in range(4)]
    assert meta["n"] == 2 * 4 * 8 + 3 * 4 * 8 + 4 * 4 * 8
    ends = [group["windows"][0][1] for group in meta["groups"]]
    assert ends == pytest.approx([s.timeline.step_time for s in view.board.running])
    assert "only the input gradient where W is apart" in meta["whole"]


def test_bundle() -> None:
    view = compare_schedules(stages=2, micro_batches=4)
    data = view._repr_mimebundle_()
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    assert len(view._esm) < 25_000 and len(view._css) < 8_000
    view._asked(None, wish(view, schedules=[]), [])
    assert "image/png" not in view._repr_mimebundle_()


def test_numbers_outside_the_sliders() -> None:
    for name, (low, high, _) in RANGES.items():
        for value in (low - 1, high + 1):
            with pytest.raises(ValueError, match=f"{name} goes from"):
                compare_schedules(**{name: value})


# -- which schedule when --------------------------------------------------------------------------


def test_every_answer_is_the_fastest_that_is_allowed() -> None:
    for choice in which_schedule():
        case = choice.case
        able = [s for s in choice.scores if s.runs and not case.forbids(s)]
        assert bool(able) == (choice.best is not None)
        if choice.best:
            assert case.time(choice.best) == pytest.approx(min(map(case.time, able)))
            assert choice.best.fits(case.cap)
            assert not (choice.best.split and not case.split)
            assert not (choice.best.stream and not case.old)


def test_each_schedule_that_is_good_for_something_is_an_answer() -> None:
    best = {choice.best.name if choice.best else "none" for choice in which_schedule()}
    assert best == {"1F1B", "Eager-1F1B", "Interleaved 1F1B", "ZB-H1", "ZB-H2", "DualPipeV",
                    "PipeDream-2BW", "none"}  # fmt: skip


def test_reasons() -> None:
    cases = [
        Case(4, 8),
        Case(4, 8, cap=4),
        Case(4, 8, split=True, chunks=False, cap=4),
        Case(4, 8, cap=2),
    ]
    one, capped, split, nothing = which_schedule(cases, schedules=["gpipe", "1f1b", "zb-h1"])
    assert one.reason == (
        "as fast as GPipe, with 4 activations instead of 8; "
        "faster, but out: needs B and W apart (ZB-H1)"
    )
    assert capped.reason == "faster, but out: needs B and W apart (ZB-H1)"
    assert split.best and split.best.name == "ZB-H1" and "1F1B takes 22.2% longer" in split.reason
    assert nothing.best is None and "1F1B needs least, 4 activations" in nothing.reason
    odd = which_schedule([Case(4, 6)], schedules=["1f1b", "interleaved"])[0]
    assert odd.reason == "cannot run with these numbers: Interleaved 1F1B"
    alike = which_schedule([Case(1, 4)], schedules={"a": gpipe, "b": gpipe})[0]
    assert alike.reason == "no better and no worse than b"


def test_the_table_shows_what_differs_and_says_what_does_not() -> None:
    found = which_schedule([Case(4, 8), Case(4, 8, cap=4)], schedules=[gpipe, one_f_one_b, zb_h1])
    assert [row[0] for row in found.table()] == ["Case", "no cap", "cap 4"]
    assert "(P = 4, M = 8, F = 1, B + W = 2, W = 1)" in found.caption()
    assert str(found).startswith("[simulated] The fastest schedule under the cap")
    assert found._repr_html_().count("<tr>") == 3
    everything = which_schedule()
    assert len(everything) == len(CASES) and everything.table()[1][0] == "M = 32, no cap"
    with pytest.raises(ValueError, match="at least one case"):
        which_schedule([])


def test_without_a_wait_at_the_end_the_ranks_own_part_counts() -> None:
    case = Case(4, 8, split=True, chunks=False, sync=False)
    best = which_schedule([case, replace(case, sync=True)])
    assert [choice.best.name for choice in best if choice.best] == ["ZB-H2", "ZB-H1"]


def test_remarks_are_large_enough_to_read_and_move_the_next_row_down() -> None:
    figure = picture(compare_schedules(["1f1b", "zb-h1", "dualpipev"], cap=4).board)
    texts = [*figure.texts, *(text for ax in figure.axes for text in ax.texts)]
    assert min(text.get_fontsize() for text in texts) >= 7
    place = {text.get_text(): text.get_position()[1] for text in reversed(figure.texts)}
    last = min(y for text, y in place.items() if text in ("needs B and W apart", "W apart"))
    assert place["DualPipeV"] < last
