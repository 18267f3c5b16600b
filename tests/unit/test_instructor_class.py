"""The progress of a class: read from any folder, nobody mixed up, names only where wanted."""

from __future__ import annotations

import io
import json
import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pplab.cli import main
from pplab.teach.classroom import Classroom, classroom
from pplab.teach.heat_map import FILL, png
from pplab.teach.progress import RANKED, Progress
from pplab.view import colours


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path / "teacher" / "progress"))


@pytest.fixture
def files(tmp_path):
    """Three learners, two of one name."""
    folder = tmp_path / "class"
    folder.mkdir()
    ada = Progress("Ada", folder)
    ada.answered("quiz 01.1", "wrong", misconception="overhead-is-bubble")
    ada.answered("quiz 01.1", "right")
    ada.answered("quiz 01.2", "right")
    ada.answered("lab 1.q1", "blocked")
    Progress("Ada", folder / "other room").answered("quiz 01.1", "wrong",
                                                    misconception="overhead-is-bubble")  # fmt: skip
    grace = Progress("Grace Hopper", folder)
    grace.answered("quiz 01.1", "right")
    grace.note("lab 1.q2", solution=True)
    return folder


def test_a_table_of_who_has_done_what(files):
    room = classroom(files)
    heading, *rows = room.rows()
    assert heading == ["learner", "chapter 01", "lab 1", "last seen"]
    assert [row[:3] for row in rows] == [
        ["Ada (Ada.json)", "2 of 5", "0 of 7"],
        ["Ada (other room/Ada.json)", "0 of 5", "-"],
        ["Grace Hopper", "1 of 5", "-"],
    ]
    assert room.remarks == ()


def test_two_learners_of_one_name_are_kept_apart(files):
    first, second, _ = classroom(files).learners
    assert first.state("quiz 01.1") == "right" and second.state("quiz 01.1") == "wrong"


def test_marks_say_tries_and_solutions(files):
    ada, _, grace = classroom(files).learners
    assert [ada.mark(key) for key in ("quiz 01.1", "quiz 01.2", "lab 1.q1", "lab 1.q3")] == [
        "✓2", "✓", "◇", "·",
    ]  # fmt: skip
    assert grace.mark("lab 1.q2") == "s"


def test_it_says_what_to_talk_about(files):
    room = classroom(files)
    assert room.hardest() == [("quiz 01.1", 2, 3)]
    assert room.beliefs() == {"overhead-is-bubble": 2}
    assert '"(P-1)/M is the bubble." (met by 2)' in str(room)
    assert "hardest: quiz 01.1, right for 2 of 3 who tried" in room.sentence()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read as JSON"),
        ('{"format": 1, "lear', "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "no progress file of pplab"),
        ('{"cells": []}', "no progress file of pplab"),
        ('{"format": 9, "learner": "x", "items": {}}', "it has format 9, and this pplab reads 1"),
        ('{"format": 1, "learner": 5, "items": {}}', "not what pplab writes"),
        ('{"format": 1, "learner": "x", "items": {"quiz 01.1": 3}}', "not what pplab writes"),
        ('{"format": 1, "learner": "x", "items": {"a": {"state": "great"}}}', "not what pplab"),
        ('{"format": 1, "learner": "x", "items": {"a": {"state": []}}}', "not what pplab writes"),
        ('{"format": 1, "learner": "x", "items": {"a": {"tries": "9"}}}', "not what pplab writes"),
    ],
)
def test_a_broken_or_foreign_file_is_named_and_left_out(files, text, reason):
    (files / "broken.json").write_text(text)
    room = classroom(files)
    (remark,) = room.remarks
    assert remark.startswith("broken.json is left out: ") and reason in remark
    assert len(room.learners) == 3


def test_bytes_that_are_no_text_and_a_file_that_is_far_too_large(files):
    (files / "a.json").write_bytes(b"\xff\xfe\x00")
    with (files / "b.json").open("wb") as file:
        file.truncate(6 << 20)
    assert [r.partition(" is")[0] for r in classroom(files).remarks] == ["a.json", "b.json"]


def test_a_copy_of_a_file_counts_once(files):
    (files / "copy.json").write_bytes((files / "Ada.json").read_bytes())
    room = classroom(files)
    assert len(room.learners) == 3
    assert room.remarks == ("copy.json is left out: it is a copy of Ada.json",)


def test_homes_of_a_hub_are_looked_into(tmp_path):
    for name in ("ada", "bob"):
        home = tmp_path / "homes" / name / ".local" / "state" / "pplab" / "progress"
        Progress(name, home).answered("quiz 00.1", "right")
    assert [one.name for one in classroom(tmp_path / "homes").learners] == ["ada", "bob"]


def test_an_empty_folder_and_none_at_all(tmp_path):
    room = classroom(tmp_path)
    assert room == Classroom(()) and "no progress file here" in str(room)
    assert room._repr_mimebundle_()["image/png"]
    with pytest.raises(NotADirectoryError, match="there is no folder"):
        classroom(tmp_path / "nowhere")


def test_with_pseudonyms_no_name_appears_anywhere(files):
    (files / "Linus.json").write_text("{")
    (files / "copy.json").write_bytes((files / "Ada.json").read_bytes())
    room = classroom(files, pseudonyms=True)
    shown = room._repr_mimebundle_()
    text = str(room) + shown["text/html"] + shown["text/plain"]
    for name in ("Ada", "Grace", "Hopper", "Linus", "other room", "copy.json"):
        assert name not in text
    assert len({learner.name for learner in room.learners}) == 3
    assert "a file is left out: it cannot be read as JSON" in text


def test_a_pseudonym_stays_and_is_another_on_another_machine(files, tmp_path, monkeypatch):
    def names():
        return {learner.name for learner in classroom(files, pseudonyms=True).learners}

    first = names()
    assert names() == first
    key = tmp_path / "teacher" / "class-key"
    assert key.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path / "elsewhere" / "progress"))
    assert names().isdisjoint(first)


def test_nothing_is_sent_anywhere(files, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a connection")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    classroom(files)._repr_mimebundle_()


def test_answers_are_not_shown(files):
    Progress("Eve", files).answered("quiz 01.2", "wrong", answer="my secret answer")
    shown = classroom(files)._repr_mimebundle_()
    assert "secret" not in shown["text/plain"] + shown["text/html"]


def test_a_name_is_text_and_nothing_else(files):
    Progress("<script>alert(1)</script> $x_1$ \x1b[31m", files).answered("quiz 01.1", "right")
    room = classroom(files)
    assert "\x1b" not in str(room)
    html = room._repr_mimebundle_()["text/html"]
    assert "<script" not in html and "&lt;script&gt;alert(1)&lt;/script&gt; $x_1$" in html
    assert len(png(room)) > 1000  # no formula, no error


def test_the_heat_map_has_a_cell_for_each_question_in_the_colour_of_its_state(files):
    html = classroom(files)._repr_mimebundle_()["text/html"]
    assert html.count("<td style='background") == 3 * (5 + 7)
    for state, count in (("right", 3), ("wrong", 1), ("blocked", 1)):
        assert html.count(f"background:{FILL[state]}") == count
    picture = np.asarray(Image.open(io.BytesIO(png(classroom(files)))).convert("RGB"), dtype=int)
    assert picture.shape[1] > 700 and picture.shape[0] < 400
    wanted = [int(FILL["wrong"][i : i + 2], 16) for i in (1, 3, 5)]
    assert (abs(picture - wanted).max(axis=2) < 9).sum() > 100


@pytest.mark.parametrize("state", RANKED)
def test_signs_can_be_read_on_their_colour(state):
    assert colours.contrast(colours.ink_on(FILL[state]), FILL[state]) >= 4.5


def test_the_command(files, tmp_path, capsys):
    out = tmp_path / "map.png"
    assert main(["progress", "--class", str(files), "--out", str(out)]) == 0
    assert "Grace Hopper" in capsys.readouterr().out
    assert out.read_bytes().startswith(b"\x89PNG")
    assert main(["progress", "--class", str(files), "--pseudonyms"]) == 0
    assert "Grace" not in capsys.readouterr().out
    assert main(["progress", "--class", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert main(["progress", "--out", "x.png"]) == 2
    assert "--class FOLDER" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is a PNG"):
        classroom(files).save(tmp_path / "map.pdf")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_items = st.dictionaries(
    st.sampled_from(["quiz 01.1", "lab 1.q1", "predict 01.alone", "lab 99.q1", ""]),
    st.fixed_dictionaries(
        {},
        optional={"state": st.sampled_from(RANKED) | _json, "tries": st.integers() | _json,
                  "last": _json, "misconceptions": _json, "solution": _json},
    )
    | _json,
    max_size=3,
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.fixed_dictionaries({"format": st.just(1), "learner": st.text(max_size=9),
                                       "items": _items}) | _json, max_size=4))  # fmt: skip
def test_whatever_is_in_the_files_it_is_a_table_or_a_remark(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("class")
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_text(json.dumps(content))
    room = classroom(folder)
    assert len(room.learners) + len(room.remarks) == len(contents)
    assert len(room.rows()) == len(room.learners) + 1
    str(room)
