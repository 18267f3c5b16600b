"""Progress: kept, owned, never mixed, never lost, never in the way."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pplab.cli import main
from pplab.teach.progress import Progress, folder, learner
from pplab.teach.quizzes import CHAPTERS


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path / "progress"))
    monkeypatch.setenv("PPLAB_LEARNER", "ada")


def test_nothing_is_there_at_first_and_looking_makes_nothing():
    assert Progress().items() == {} and Progress().get("quiz 01.1") == {}
    assert not folder().exists()


def test_what_is_kept_survives_a_restart():
    Progress().answered("quiz 01.1", "wrong", answer="87.5", misconception="overhead-is-bubble")
    Progress().answered("quiz 01.1", "right", answer="46.7")
    item = Progress().get("quiz 01.1")
    assert (item["state"], item["tries"], item["answer"]) == ("right", 2, "46.7")
    assert item["misconceptions"] == {"overhead-is-bubble": 1}
    assert item["first"] <= item["last"]


def test_a_later_wrong_answer_does_not_undo_a_right_one():
    for state in ("right", "wrong", "blocked"):
        Progress().answered("lab 1.q1", state)
    assert Progress().get("lab 1.q1")["state"] == "right"


def test_not_attempted_is_no_try():
    Progress().answered("lab 1.q1", "not attempted")
    assert Progress().items() == {}


def test_only_the_owner_can_read_it():
    Progress().note("lab 1.q1", hints=1)
    mode = stat.S_IMODE(Progress().path.stat().st_mode)
    assert mode == 0o600 and stat.S_IMODE(folder().stat().st_mode) == 0o700


def test_two_learners_on_one_machine_do_not_mix():
    Progress("ada").answered("lab 1.q1", "right")
    Progress("bob").answered("lab 1.q2", "wrong")
    assert list(Progress("ada").items()) == ["lab 1.q1"]
    assert list(Progress("bob").items()) == ["lab 1.q2"]


def test_the_learner_is_named_by_the_first_that_is_set(monkeypatch):
    assert learner() == "ada"
    monkeypatch.delenv("PPLAB_LEARNER")
    monkeypatch.setenv("JUPYTERHUB_USER", "bob")
    assert learner() == "bob"
    monkeypatch.delenv("JUPYTERHUB_USER")
    assert learner()


@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=6, unique=True))
def test_every_name_has_a_file_of_its_own_inside_the_folder(names):
    paths = [Progress(name).path for name in names]
    assert len(set(paths)) == len(names)
    assert all(path.parent == folder() and not path.name.startswith(".") for path in paths)


COUNT = """
import sys
from pplab.teach.progress import Progress
for i in range(int(sys.argv[2])):
    Progress().change("shared", lambda item: item.update(n=item.get("n", 0) + 1))
    Progress().note(f"own {sys.argv[1]}.{i}", done=True)
"""


def test_notebooks_that_write_at_once_lose_nothing():
    writers = [
        subprocess.Popen([sys.executable, "-c", COUNT, str(number), "20"]) for number in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    items = Progress().items()
    assert items["shared"]["n"] == 80
    assert len(items) == 81
    assert sorted(path.suffix for path in folder().iterdir()) == [".json", ".lock"]


def test_a_file_that_cannot_be_read_is_set_aside_not_thrown_away():
    Progress().note("a", x=1)
    Progress().path.write_text('{"format": 1, "items": {"a"')
    with pytest.warns(UserWarning, match="kept as ada.unreadable"):
        assert Progress().items() == {}
    (aside,) = folder().glob("ada.unreadable-*")
    assert aside.read_text().startswith('{"format": 1')
    Progress().note("b", x=1)
    assert list(Progress().items()) == ["b"]


def test_a_newer_format_is_not_overwritten():
    folder().mkdir()
    Progress().path.write_text(json.dumps({"format": 2, "items": {}}))
    with pytest.warns(UserWarning, match="it has format 2"):
        Progress().note("a", x=1)
    assert len(list(folder().glob("ada.unreadable-*"))) == 1


def test_where_it_cannot_be_written_that_is_said_once_and_nothing_stops(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path / "file" / "below"))
    progress = Progress()
    with pytest.warns(UserWarning, match="progress is not kept.*PPLAB_PROGRESS"):
        progress.note("a", x=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        progress.answered("b", "right")


def test_an_interrupted_write_leaves_the_old_file(monkeypatch):
    Progress().note("a", x=1)

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="No space left"):
        Progress().note("b", x=1)
    assert list(Progress().items()) == ["a"]


def test_the_command_prints_it(capsys):
    Progress().answered("quiz 01.1", "right")
    Progress().answered("lab 2.q1", "wrong", misconception="gas-times-replicas")
    Progress().note("predict 01.alone", answer="50", after=False)
    assert main(["progress"]) == 0
    said = capsys.readouterr().out
    assert "Progress of ada" in said
    assert "1 of 5" in said and "0 of 7" in said
    assert "predictions: 1 given, 1 of them before" in said
    assert "GAS micro-batches a step" in said
    assert sum(line.startswith("chapter ") for line in said.splitlines()) == len(CHAPTERS)


def test_the_command_says_when_there_is_nothing(capsys):
    assert main(["progress"]) == 0
    said = capsys.readouterr().out
    assert "0 of 5" in said and "beliefs" not in said
