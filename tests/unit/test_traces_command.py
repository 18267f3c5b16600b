"""``pplab trace``: a summary, notes, conversion, and an exit code."""

from __future__ import annotations

import pytest

from pplab.cli import main
from pplab.core.schedules import one_f_one_b
from pplab.traces import read
from tests.unit.kineto_files import write_ranks
from tests.unit.test_traces_kineto import simulated
from tests.unit.test_traces_logs import MEGATRON


@pytest.fixture
def files(tmp_path):
    return [str(path) for path in write_ranks(tmp_path, simulated(one_f_one_b(2, 3)))]


def test_a_summary_and_a_conversion(files, tmp_path, capsys):
    for ending in ("json", "json.gz", "csv", "npz", "png"):
        out = tmp_path / f"out.{ending}"
        assert main(["trace", *files, "--out", str(out)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "2 ranks, 2 steps of 3 micro-batches" in said and f"wrote {out}" in said
        if ending == "png":
            assert out.read_bytes().startswith(b"\x89PNG")
        else:
            assert read(out) == read(files)


def test_notes_are_printed(files, capsys):
    assert main(["trace", files[0]]) == 0
    assert "note: rank 1 of 2 is missing" in capsys.readouterr().out


def test_names_of_the_learner(tmp_path, capsys):
    timeline = simulated(one_f_one_b(2, 3))
    names = {"F": "forward pass", "B": "backward pass"}
    write_ranks(tmp_path, timeline, name=lambda s: names.get(s.op.kind), marks=True)
    assert main(["trace", str(tmp_path)]) == 1
    assert "no pipeline in this trace" in capsys.readouterr().err
    arguments = ["--name", "forward pass=F", "--name", "backward pass=B", "--no-align"]
    assert main(["trace", str(tmp_path), *arguments]) == 0
    assert "2 steps of 3 micro-batches" in " ".join(capsys.readouterr().out.split())
    assert main(["trace", str(tmp_path), "--name", "forward"]) == 1
    assert "write REGEX=KIND" in capsys.readouterr().err


def test_a_log(tmp_path, capsys):
    (tmp_path / "log").write_text(MEGATRON)
    assert main(["trace", str(tmp_path / "log")]) == 0
    assert "iterations 1 to 3" in capsys.readouterr().out
    assert main(["trace", str(tmp_path / "log"), "--out", str(tmp_path / "x.csv")]) == 1
    assert "no spans to write" in capsys.readouterr().err


def test_what_cannot_be_read_or_written_is_said(files, tmp_path, capsys):
    assert main(["trace", str(tmp_path / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert main(["trace", *files, "--out", str(tmp_path / "x.docx")]) == 1
    assert "has to end in one of" in capsys.readouterr().err
