"""One moment of a timeline: what every rank runs, waits for and holds."""

from dataclasses import replace

import numpy as np
import pytest
from core_strategies import schedules
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.costs import Costs
from pplab.core.ops import CODE, B, F
from pplab.core.schedule import Schedule, ScheduleError
from pplab.core.schedules import gpipe, interleaved, one_f_one_b, zb_h1
from pplab.core.timeline import Timeline
from pplab.view import moment, play
from pplab.view.moments import middle
from pplab.view.show import WIDGET

TIMELINE = one_f_one_b(4, 8).simulate(latency=0.5)


def test_a_moment_of_1f1b() -> None:
    now = moment(TIMELINE, 5.0)
    assert [row.doing for row in now] == [
        "waits for B0 of rank 1 (not started)",
        "waits for B0 of rank 2 (not started)",
        "waits for B0 of rank 3 (not started)",
        "runs F0",
    ]
    assert now[0].held == (F(0), F(1), F(2), F(3)) and now[0].next == B(0)
    assert now[3].running == F(0) and now[0].awaited == (B(0), 1)
    assert now.table()[1] == (
        "rank 0", "waits for B0 of rank 1 (not started)", "4 activations: 0 1 2 3", "B0"
    )  # fmt: skip


def test_how_far_the_awaited_operation_is() -> None:
    states = [moment(TIMELINE, time)[1].doing for time in (0.2, 1.2)]
    assert states == ["waits for F0 of rank 0 (running)", "waits for F0 of rank 0 (on its way)"]


def test_before_and_after_the_step() -> None:
    after = moment(TIMELINE, 1000)
    assert {row.cells() for row in after} == {("done", "0 activations", "nothing")}
    assert {row.doing for row in moment(TIMELINE, -1)} == {"idle"}


def test_w_pending() -> None:
    t = zb_h1(4, 8).simulate()
    last = moment(t, 9.0)[3]
    assert last.pending == (F(0), F(1), F(2)) and last.held == (*last.pending, F(3))
    assert last.holds() == "4 activations: 0 1 2 3; W pending: 0 1 2"


@given(schedules(), st.floats(0, 1))
def test_what_is_held_is_what_the_measures_count(plan: Schedule, share: float) -> None:
    t = plan.simulate(Costs(1, 2, 0.5, latency=0.3))
    time = share * t.step_time
    for row in moment(t, time):
        times, counts = t.measures.in_flight(row.rank)
        known = np.searchsorted(times, time + 1e-9 * t.step_time, side="right")
        assert len(row.held) == (counts[known - 1] if known else 0)


@given(schedules(), st.floats(0, 1))
def test_a_rank_runs_what_the_timeline_says(plan: Schedule, share: float) -> None:
    t = plan.simulate(Costs(1, 2, 0.5, latency=0.3))
    time = share * t.step_time
    for row in moment(t, time):
        mine = t.rank == row.rank
        now = time + 1e-9 * t.end.max()
        here = mine & (t.start <= now) & (t.end > now)
        assert (row.running is not None) == bool(here.any())
        later = t.start[mine & (t.start > now)]
        assert (row.next is not None) == bool(len(later))
        if row.running is None and row.next is None:
            assert row.doing == "done"


def test_many_activations_are_listed_in_runs() -> None:
    t = gpipe(2, 20).simulate()
    assert moment(t, 20)[0].holds() == "20 activations: 0–19"
    chunks = moment(interleaved(4, 8).simulate(), 11)[0]
    assert chunks.holds() == "11 activations: 0–3 0.1–3.1 4–6"
    assert moment(interleaved(2, 2).simulate(), 4)[0].holds() == "4 activations: 0 1 0.1 1.1"


def recorded() -> Timeline:
    """A stand-in for a run, whose ranks note their waits, sends and reductions."""
    plain = one_f_one_b(2, 2).simulate(Costs(0.01, 0.02, unit="s"))
    columns = {name: column.tolist() for name, column in plain.columns().items()}
    more = [(0, 0, 1, "R", 0, 0, 0.0, 0.0099), (0, 0, 1, "G", -1, 0, 0.08, 0.085),
            (0, 0, 0, "S", 0, 0, 0.0101, 0.0102), (0, 0, 0, "L", -1, 0, 0.091, 0.092)]  # fmt: skip
    for row in more:
        for name, value in zip(columns, row, strict=True):
            columns[name].append(CODE[value] if name == "kind" else value)
    return Timeline.of(columns, plain.layout, source="measured: paced", schedule="1F1B")


def test_a_recorded_run_says_what_it_recorded() -> None:
    t = recorded()
    assert moment(t, 0.005)[1].doing == "waits for F0 of rank 0 (running)"
    assert moment(t, 0.082)[1].doing == "reduces gradients"
    assert moment(t, 0.0915)[0].doing == "loads data"
    assert moment(t, 0.0101)[0].doing == "runs F1", "a rank that works and sends works"
    text = str(moment(t, 0.005)).splitlines()
    assert text[0] == "[measured] At 5 ms:" and all(x.startswith("[measured] ") for x in text)


def test_several_steps_are_seen_as_the_typical_one() -> None:
    one = TIMELINE.columns()
    columns = {name: np.concatenate([column, column]) for name, column in one.items()}
    columns["step"] = np.repeat([0, 1], len(TIMELINE))
    columns["start"][len(TIMELINE) :] += 100
    columns["end"][len(TIMELINE) :] += 100
    both = Timeline.of(columns, TIMELINE.layout)
    assert str(moment(both, 5.0)).splitlines()[1:] == str(moment(TIMELINE, 5.0)).splitlines()[1:]


# -- the player -----------------------------------------------------------------------------------


def test_a_player_of_a_schedule_a_timeline_and_a_run() -> None:
    plan = one_f_one_b(4, 8)
    player = play(plan, latency=0.5)
    assert str(player) == str(play(TIMELINE))
    data = player._repr_mimebundle_()
    assert set(data) == {WIDGET, "image/png", "text/plain"}
    assert "At 19.5 units:" in data["text/plain"] and "rank 3 " in data["text/plain"]

    class Run:
        timeline = replace(TIMELINE, source="measured: paced")

    assert "[measured] At" in str(play(Run()))
    assert play(plan, at=5.0, latency=0.5).moment[0].next == B(0)


def test_a_player_begins_with_an_operation_or_at_a_time() -> None:
    player = play(TIMELINE)
    begin = player.meta["begin"]
    start = np.frombuffer(player.spans, "<f8", player.meta["n"])
    assert start[begin] == pytest.approx(middle(TIMELINE)) and player.meta["at"] is None
    assert play(TIMELINE, at=7).meta["at"] == 7
    empty = TIMELINE.where(np.zeros(len(TIMELINE), dtype=bool))
    assert play(empty).meta["at"] == 0.0


def test_what_a_player_refuses() -> None:
    with pytest.raises(ScheduleError, match="deadlock"):
        play(Schedule.of(["F0 B0 F1 B1", "F0 F1 B0 B1"]))
    with pytest.raises(TypeError, match="only a schedule is simulated: forward"):
        play(TIMELINE, forward=2)
    with pytest.raises(ValueError, match="one timeline, not 2"):
        play(TIMELINE).show(TIMELINE, TIMELINE)


def test_the_static_picture_has_the_line_and_the_table() -> None:
    from pplab.view.static import picture

    figure = picture(TIMELINE, now=moment(TIMELINE, 5.0))
    words = [text.get_text() for text in figure.texts]
    assert "At 5 units" in words and "4 activations: 0 1 2 3" in words
    marks = [line for ax in figure.axes for line in ax.lines if line.get_xdata()[0] == 5.0]
    assert len(marks) == 1
