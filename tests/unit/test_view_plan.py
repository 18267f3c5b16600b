"""A schedule as the value of a cell, and the pictures of those that cannot run."""

import base64
import io

import pytest
from PIL import Image

from pplab.core.ops import Op
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, interleaved, one_f_one_b
from pplab.view import how_far, plan, schedule_bundle, show
from pplab.view.show import WIDGET
from pplab.view.stuck_card import picture

CROSSED = Schedule.of(["F0 B0 F1 B1", "F0 F1 B0 B1"], name="mine")


def words_of(figure: object) -> list[str]:
    return [text.get_text() for text in figure.texts]  # type: ignore[attr-defined]


def test_a_valid_schedule_is_its_timeline_and_its_operations() -> None:
    data = schedule_bundle(one_f_one_b(2, 3))
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    assert data["text/plain"].splitlines() == [
        "[simulated] 2 ranks, 3 micro-batches, 1F1B: step 12 units, 25% idle, all ranks alike.",
        "1F1B: 2 stages, 3 micro-batches",
        "rank 0: F0 F1 B0 F2 B1 B2",
        "rank 1: F0 B0 F1 B1 F2 B2",
    ]


def test_an_invalid_schedule_says_why_and_how_far_it_gets() -> None:
    data = schedule_bundle(CROSSED)
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    text = data["text/plain"]
    assert text.startswith("Deadlock: 2 of 8 operations run.\n1. rank 0 waits in B0 for B0")
    assert text.endswith("rank 1: F0 F1 B0 B1")
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert image.width > 900 and len(data["image/png"]) < 60_000


def test_the_widget_gets_ghosts_arrows_and_sentences() -> None:
    meta = how_far(CROSSED).meta
    assert meta["lines"][0]["bubble"] == "Deadlock"
    assert meta["ghosts"] == [
        (0, "B0", 1, 0, 0, False), (0, "F1", 0, 1, 0, False),
        (1, "F1", 0, 0, 0, False), (1, "B0", 1, 1, 0, False),
    ]  # fmt: skip
    assert meta["arrows"] == [(1, 0, 3), (2, 2, 1)]
    assert meta["awaits"] == [1, 0]
    assert meta["problems"][0] == (1, "rank 0 waits in B0 for B0 of rank 1,")


def test_the_static_picture_prints_the_same() -> None:
    words = words_of(picture(how_far(CROSSED).reach))
    for expected in ("Deadlock", "2 of 8 operations run", "Next in line, never starts", "then"):
        assert expected in words
    assert words.count("1") >= 2 and words.count("2") >= 2, "on the arrow and at the sentence"
    assert "rank 0 waits in B0 for B0 of rank 1," in words


def test_long_sentences_are_wrapped() -> None:
    wrong = Schedule.of([f"F{m} B{m}" for m in (10**40, 10**40 + 1)], 1)
    figure = picture(how_far(wrong).reach)
    assert max(map(len, words_of(figure))) < 120


def test_a_schedule_of_nothing_but_mistakes_has_a_picture() -> None:
    data = schedule_bundle(Schedule.of(["B0 F0", "B0 F0"]))
    assert "0 of 4 operations run" in data["text/plain"] and "image/png" in data


def test_blocking_sends_that_do_no_harm() -> None:
    view = how_far(gpipe(2, 3), blocking=True)
    assert view.meta["lines"][0]["bubble"] == "25.0 %" and view.meta["ghosts"] == []
    assert "No rank is stuck." in str(view)
    assert "25.0 %" in words_of(picture(view.reach))
    assert how_far(one_f_one_b(2, 3), blocking=True).meta["lines"][0]["bubble"] == "Deadlock"


def test_long_lists_of_operations_are_cut() -> None:
    lines = plan.operations(interleaved(40, 40)).splitlines()
    assert lines[0] == "Interleaved 1F1B: 40 stages, 40 micro-batches, 2 chunks a rank (loop)"
    assert len(lines) == plan.ROWS + 2 and lines[-1] == "... and 8 more ranks"
    assert lines[1].endswith(f" ... and {4 * 40 - plan.ALONG} more")


def test_a_huge_schedule_is_words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MOST", 10)
    data = schedule_bundle(one_f_one_b(2, 3))
    assert set(data) == {"text/plain"} and "12 operations, too many" in data["text/plain"]


def test_the_first_picture_in_a_notebook_warms_the_server_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pplab.runtime import client, progress

    calls: list[int] = []
    monkeypatch.setattr(show, "_warmed", False)
    monkeypatch.setattr(client, "warm", lambda: calls.append(1))
    show.timeline_bundle(gpipe(2, 2).simulate())
    assert calls == [], "not in a terminal, not in a test"
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    show.timeline_bundle(gpipe(2, 2).simulate())
    schedule_bundle(gpipe(2, 2))
    assert calls == [1]


def test_a_server_that_cannot_start_harms_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from pplab.runtime import client, progress

    def broken() -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(show, "_warmed", False)
    monkeypatch.setattr(client, "warm", broken)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    assert WIDGET in show.timeline_bundle(gpipe(2, 2).simulate())


def test_an_operation_out_of_range_is_a_ghost_of_its_own() -> None:
    rows = [list(row) for row in gpipe(2, 2).ops]
    rows[0][1] = Op("F", 7)
    view = how_far(Schedule.of(rows, 2))
    assert view.meta["ghosts"][0][:2] == (0, "F7") and view.meta["ghosts"][0][-1] is True
    assert view.meta["briefs"][0] == "which does not exist"
