"""Who waited for whom, checked by hand on small pipelines."""

import numpy as np
import pytest

from pplab.core.layout import Layout
from pplab.core.ops import CODE
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.core.timeline import Timeline
from pplab.view.waits import Waits


def rows_by_name(t: Timeline) -> dict[tuple[int, str], int]:
    return {(span.rank, str(span.op)): i for i, span in enumerate(t)}


def test_producers_of_two_stages() -> None:
    t = gpipe(2, 2).simulate()
    row, producers = rows_by_name(t), Waits(t).producers
    assert producers[row[1, "F1"]] == row[0, "F1"]
    assert producers[row[0, "B0"]] == row[1, "B0"]
    assert producers[row[0, "F0"]] == -1  # the data come from the loader
    assert producers[row[1, "B0"]] == -1  # the loss is on its own rank


def test_producer_across_chunks_is_the_slice_before() -> None:
    layout = Layout(2, 2)
    spans = {
        "rank": [0, 0, 1, 1],
        "kind": [0, 0, 0, 0],
        "micro_batch": [0, 0, 0, 0],
        "chunk": [0, 1, 0, 1],
        "start": [0, 2, 1, 3],
        "end": [1, 3, 2, 4],
    }
    t = Timeline.of(spans, layout)
    row, producers = rows_by_name(t), Waits(t).producers
    assert producers[row[0, "F0.1"]] == row[1, "F0"]
    assert producers[row[1, "F0.1"]] == row[0, "F0.1"]


def test_waits_of_one_f_one_b() -> None:
    t = one_f_one_b(4, 8).simulate(forward=1, backward=2)
    row, w = rows_by_name(t), Waits(t)
    assert w.waits[row[0, "F0"]] == 0
    assert w.waits[row[3, "F0"]] == 3  # from the beginning of the step
    assert w.waits[row[0, "B0"]] == 6  # F3 ends at 4, B0 of rank 1 at 10
    assert w.waits[row[3, "B0"]] == 0


def test_a_late_message_counts_even_when_its_producer_ended_early() -> None:
    t = one_f_one_b(2, 4).simulate(forward=1, backward=1, latency=0.25)
    w = Waits(t)
    assert w.waits.sum() == pytest.approx(w.gaps.sum())  # nothing else keeps a rank idle


def test_gaps_and_work_and_tail_fill_the_step() -> None:
    t = one_f_one_b(4, 6).simulate(forward=1, backward=2, latency=0.1)
    gaps = Waits(t).gaps
    for rank in range(4):
        mine = t.rank == rank
        work = (t.end - t.start)[mine].sum()
        assert gaps[mine].sum() + work == pytest.approx(t.end[mine].max())


def test_recorded_waits_are_taken_as_recorded() -> None:
    spans = {
        "rank": [0, 1, 1],
        "kind": [CODE["F"], CODE["R"], CODE["F"]],
        "micro_batch": [0, 0, 0],
        "start": [0.0, 0.5, 1.0],
        "end": [0.9, 1.0, 2.0],
    }
    t = Timeline.of(spans, Layout(2))
    w = Waits(t)
    assert w.waits.tolist() == [0, 0, 0.5]  # the gap is 1, of which 0.5 was spent waiting
    assert w.following.tolist() == [0, 2, 2]


def test_steps_and_replicas_do_not_mix() -> None:
    one = gpipe(2, 2).simulate()
    parts = []
    for step in range(2):
        for replica in range(2):
            columns = one.columns()
            columns["step"] = np.full(len(one), step)
            columns["replica"] = np.full(len(one), replica)
            columns["start"] = one.start + 100 * step
            columns["end"] = one.end + 100 * step
            parts.append(columns)
    many = Timeline.of({k: np.concatenate([p[k] for p in parts]) for k in parts[0]}, one.layout)
    w, producers = Waits(many), Waits(many).producers
    found = np.flatnonzero(producers >= 0)
    assert len(found) == 4 * np.sum(Waits(one).producers >= 0)
    assert np.array_equal(many.step[producers[found]], many.step[found])
    assert np.array_equal(many.replica[producers[found]], many.replica[found])
    assert w.gaps.max() == Waits(one).gaps.max()


def test_nothing_in_nothing_out() -> None:
    empty = gpipe(2, 2).simulate().where(np.zeros(8, dtype=bool))
    w = Waits(empty)
    for array in (w.producers, w.following, w.gaps, w.waits):
        assert len(array) == 0
