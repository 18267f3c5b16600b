"""A simulated class, the parts without processes: what each learner must keep, and the figures."""

from __future__ import annotations

import json

import pytest

from benchmarks.learner import Learner, strangers
from benchmarks.learners import LEARNERS, NEED, SPARE, Outcome, figures, no_room, presses, total
from pplab.teach.progress import Progress
from tests.notebooks import timing


def learner(number, folder):
    """A learner whose run has shown something."""
    one = Learner(number, folder, "mark", steps=2)
    one.shown = {"losses": [5.0 + number, 4.0], "bubble": 0.2 + number / 1000}
    return one


def do(one):
    """Keep what the cells of a learner keep, without a kernel."""
    progress, own = Progress(one.name, one.state / "progress"), one.own
    progress.note("predict workshop", answer=str(own["guess"]), after=False)
    for _ in range(own["wrong"]):
        progress.answered("lab 1.q6", "wrong")
    if own["mistaken"]:
        progress.answered("lab 1.own", "wrong", misconception="overhead-is-bubble")
    progress.answered("lab 1.own", "right")
    progress.note("predict workshop", result=one.shown["bubble"])
    record = {"job": {"seed": own["seed"], "micro_batches": own["micro_batches"]}}
    place = one.state / "runs" / one.name
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps(record | {"losses": one.shown["losses"]}))


@pytest.fixture
def three(tmp_path):
    """Learners 1 and 3 share an account; 2 has one of their own. All have done their part."""
    found = [learner(number, tmp_path) for number in (1, 2, 3)]
    for one in found:
        do(one)
    return found


def test_no_two_learners_do_the_same(tmp_path):
    done = [learner(number, tmp_path).expected() for number in range(LEARNERS)]
    assert len({json.dumps(items, sort_keys=True) for items in done}) == LEARNERS
    assert len({learner(number, tmp_path).own["seed"] for number in range(LEARNERS)}) == LEARNERS


def test_nothing_lost_nothing_mixed(three):
    assert [one.problems() for one in three] == [[], [], []] and strangers(three) == []
    assert three[0].state == three[2].state != three[1].state


def test_an_answer_under_another_name_is_seen_on_both_sides(three):
    wrong_name = Progress(three[2].name, three[2].state / "progress")
    wrong_name.answered("lab 1.q6", "wrong")
    wrong_name.note("lab 1.q1", hints=1)
    assert three[0].problems() == []
    q1, q6 = three[2].problems()
    assert "lab 1.q1 is {'hints': 1}, not None" in q1 and "'tries': 5" in q6


def test_what_is_lost_is_seen(three):
    one, two, other = three
    Progress(one.name, one.state / "progress").path.unlink()
    assert "no progress file" in one.problems()[0]
    for path in two.state.glob("runs/*/run.json"):
        path.write_text(path.read_text().replace("7.0", "7.5"))
    assert two.problems() == [f"{two.name}: the record holds other losses than the notebook showed"]
    for path in other.state.glob("runs/learner 03/run.json"):
        path.unlink()
    assert other.problems() == [f"{other.name}: 0 records of the one run"]


def test_a_file_of_another_learner_is_seen(three):
    one, _, other = three
    folder = one.state / "progress"
    Progress(one.name, folder).path.write_bytes(Progress(other.name, folder).path.read_bytes())
    assert f"{one.name}: the progress file is that of {other.name}" in one.problems()
    (folder / "someone.new-12").write_text("")
    assert strangers(three) == ["a file that is nobody's: someone.new-12"]


def test_a_class_that_does_not_fit_is_refused_with_what_is_missing():
    assert no_room(30 * NEED + SPARE, 30) == ""
    sentence = no_room(2000, 30)
    assert "30 learners may need 15000 MB, and 2000 MB are free" in sentence


def test_everybody_presses_within_the_time_and_not_at_once():
    moments = presses(30, 60)
    assert moments == presses(30, 60) and min(moments) == 0 and 40 < max(moments) <= 60
    assert len(set(moments)) == 30 and moments != sorted(moments)


def test_the_figures_count_who_kept_everything_and_what_is_left(three):
    outcome = Outcome(three, lost={1: [], 2: ["learner 02: lost"], 3: []}, left=["a process"])
    memory = {"kernel": 100.0, "server": 50.0, "supervisor": 10.0, "ranks": 80.0, "count": 2.0}
    for one in three:
        one.seconds = {"open": 1.0, "run": 2.0 + one.number, "check": 0.5}
        outcome.peak[one.number] = outcome.rest[one.number] = memory
    assert total(memory) == 240
    found = {e["id"]: e for e in figures(outcome, 60)}
    assert found["labs.learner_mb"]["value"] == 240 and found["labs.learner_s"]["value"] == 4
    assert "worst 5.0 s" in found["labs.learner_s"]["how"]
    assert (found["labs.learners_kept"]["value"], found["labs.learners_kept"]["met"]) == (2, False)
    assert "learner 02: lost" in found["labs.learners_kept"]["how"]
    assert found["labs.learners_left"]["met"] is False


# -- the seconds of the notebooks -----------------------------------------------------------------


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A repository with two notebooks, and where their seconds are noted."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    for folder in timing.FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.ipynb").write_text("{}")
    return tmp_path, tmp_path / "build" / "note.json"


def test_seconds_are_kept_per_notebook_and_summed(house):
    root, note = house
    assert timing.minutes(note, root) == (
        None,
        "no nbval session has noted its times (make live writes note.json)",
    )
    assert timing.write({root / "chapters/a.ipynb": (90.0, 7)}, note, root) == ["chapters/a.ipynb"]
    minutes, how = timing.minutes(note, root)
    assert minutes is None and how.startswith("1 of 2") and "labs/source/a.ipynb" in how
    timing.write({root / "labs/source/a.ipynb": (30.0, 3)}, note, root)
    minutes, how = timing.minutes(note, root)
    assert minutes == 2 and "longest: chapters/a.ipynb, 90 s" in how and "changed" not in how


def test_a_notebook_changed_since_is_named_and_a_removed_one_forgotten(house):
    root, note = house
    both = {root / folder / "a.ipynb": (30.0, 3) for folder in timing.FOLDERS}
    timing.write(both, note, root)
    (root / "chapters/a.ipynb").write_text("{ }")
    assert "changed since: chapters/a.ipynb" in timing.minutes(note, root)[1]
    (root / "chapters/a.ipynb").unlink()
    assert timing.minutes(note, root)[0] == 0.5
    timing.write({root / "labs/source/a.ipynb": (60.0, 3)}, note, root)
    assert list(timing.read(note)) == ["labs/source/a.ipynb"]


def test_notebooks_of_others_and_those_that_share_the_cores_are_not_noted(house, monkeypatch):
    root, note = house
    assert timing.write({root / "elsewhere.ipynb": (1.0, 1)}, note, root) == []
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert timing.write({root / "chapters/a.ipynb": (1.0, 1)}, note, root) == []
    assert not note.exists()


def test_a_note_that_cannot_be_read_counts_as_none(house):
    _, note = house
    note.parent.mkdir()
    for text in ("", "[1]", '{"a": 3}'):
        note.write_text(text)
        assert timing.read(note) == {}
