"""The traces of the straggler study: their published answers, and files that cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import pplab
from pplab.advise.diagnose.imported import network_of_trace
from pplab.advise.diagnose.parts import replayed_span
from pplab.cli import main
from pplab.traces.files import TraceError
from pplab.traces.straggler import events_of, read_events, read_straggler

DATA = Path(__file__).parents[3] / "shared" / "traces" / "straggler"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the straggler traces are not here")
TRUTH = {"ST": ("imbalance", {"stage": 3}), "AR": ("slow worker", {"replica": 0, "rank": 0})}


def trace(name: str) -> Path:
    return DATA / f"timeline-{name}.json.gz"


@needs_data
@pytest.mark.parametrize("name", TRUTH)
def test_the_published_answers_come_out(name: str) -> None:
    published = json.loads((DATA / f"result-{name}.json").read_text())
    found = pplab.diagnose(trace(name))
    cause, where = TRUTH[name]
    assert found.first is not None and found.first.name == cause
    assert where.items() <= found.first.where.items()
    ideal = next(iter(published["step_t_noblk"].values()))
    assert found.ideal == pytest.approx(ideal, rel=1e-4)  # asked for: 1 %
    assert found.step == pytest.approx(np.mean(list(published["step_t_base"].values())), rel=1e-3)
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.step)
    # what removing the cause leaves, as published: Ms (last stage), Mw (slowest workers)
    kind = "ms" if name == "ST" else "mw"
    without = json.loads((DATA / f"{kind}-{name}.json").read_text())["trem"]
    delay = found.step - np.mean(list(published["step_t_nodelay"].values()))
    assert found.step - delay - found.first.saving == pytest.approx(without, rel=0.08)


@needs_data
@pytest.mark.parametrize("name", TRUTH)
def test_the_replay_is_the_published_one_and_near_the_record(name: str) -> None:
    published = json.loads((DATA / f"result-{name}.json").read_text())["step_t_nodelay"]
    net = network_of_trace(read_events(trace(name)))
    without_delays = net.step_times(delay=0.0)
    theirs = [published[str(step)] for step in net.steps]
    np.testing.assert_allclose(without_delays, theirs, rtol=5e-4)
    replayed, recorded = replayed_span(net)
    np.testing.assert_allclose(replayed, recorded, rtol=0.005)


@needs_data
def test_such_a_trace_is_a_timeline() -> None:
    timeline = read_straggler(trace("ST"))
    assert (timeline.stages, timeline.micro_batches, timeline.replicas) == (4, 4, (0, 1))
    assert len(timeline.steps) == 32
    forward = (timeline.end - timeline.start)[timeline.is_kind("F") & (timeline.rank == 3)]
    assert np.median(forward) == pytest.approx(0.1397, rel=0.01)  # numbers.md
    # every message is received where it is used, and once
    got = timeline.is_kind("R")
    assert got.sum() == 32 * 2 * 3 * 4 * 2
    # as a timeline alone, without the names of its collectives, it tells the same cause
    assert pplab.diagnose(timeline).first.what == pplab.diagnose(trace("ST")).first.what


def small() -> list[dict]:
    """Two ranks, one micro-batch, in the study's layout."""
    names = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": t,
         "args": {"name": f"PP rank {t // 2}, TP rank 0, {'pp-comm' if t % 2 else 'compute'}"}}
        for t in range(4)
    ]  # fmt: skip

    def event(name: str, tid: int, start: float, lasts: float) -> dict:
        m = 0 if "compute" in name else -1
        args = {"step": 5, "model_chunk": 0, "mb_id": m, "seq_id": 0}
        return {"ph": "X", "name": name, "pid": 0, "tid": tid, "ts": start * 1e3,
                "dur": lasts * 1e3, "args": args}  # fmt: skip

    return [
        *names,
        event("forward-compute", 0, 0, 10), event("forward-send", 1, 10, 1),
        event("forward-recv", 3, 10, 1), event("forward-compute", 2, 11, 20),
        event("backward-compute", 2, 31, 40), event("backward-send", 3, 71, 1),
        event("backward-recv", 1, 71, 1), event("backward-compute", 0, 72, 20),
        event("optimizer", 0, 92, 3), event("optimizer", 2, 71, 3),
    ]  # fmt: skip


def test_a_small_trace_reads_to_the_last_millisecond(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small()))
    found = pplab.diagnose(path)
    assert found.step == pytest.approx(0.095)
    assert found["useful"].seconds == pytest.approx(0.045)
    assert found["communication"].seconds == pytest.approx(0.002)
    assert found["optimizer and reduction"].seconds == pytest.approx(0.003)
    assert found["overhead"].seconds == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: e.append(e[5]), "2 forward-send events for 1 computations"),
        (lambda e: e[4].pop("args"), "lacks what it should have"),
        (lambda e: e[4].update(dur=-1.0), "lacks what it should have"),
        (lambda e: e[4].update(ts="soon"), "lacks what it should have"),
        (lambda e: e[4].update(tid=77), "lacks what it should have"),
        (lambda e: e[5].update(name="forward-sent"), "not an event"),
    ],
)
def test_a_damaged_trace_is_refused_with_a_sentence(change, says: str) -> None:
    events = small()
    change(events)
    with pytest.raises(TraceError, match=says):
        events_of(events, "small")


# -- the command --------------------------------------------------------------------------------


def test_the_command_names_the_cause(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path, image = tmp_path / "heavy.json.gz", tmp_path / "d.png"
    plan = pplab.schedules.one_f_one_b(2, 6)
    pplab.traces.write(plan.simulate(forward=[1, 2], backward=[2, 4], unit="s"), path)
    assert main(["diagnose", str(path), "--picture", str(image)]) == 1
    text = capsys.readouterr().out
    assert "stage 1 is 2.0x heavier" in text and "fill and drain" in text
    assert image.read_bytes().startswith(b"\x89PNG")
    assert main(["diagnose", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["causes"][0]["name"] == "imbalance"
    assert sum(part["time"] for part in found["parts"]) == pytest.approx(found["step"])


def test_the_command_is_content_with_a_balanced_step(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "fine.json"
    timeline = pplab.schedules.one_f_one_b(3, 4).simulate(forward=1, backward=2)
    pplab.traces.write(timeline, path)
    assert main(["diagnose", str(path)]) == 0
    assert "No cause costs 1%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        (b"", "empty"),
        (b"hello", "no format that pplab reads"),
        (json.dumps(small()).encode()[:900], "cut short"),
        (gzip.compress(json.dumps(small()).encode())[:-20], "cut short"),
        (b"[]", ""),
        (b'[{"mb_id": 1, "model_chunk": 0}]', ""),
        (json.dumps(small()[:4]).encode(), ""),
    ],
)
def test_files_that_cannot_be_diagnosed_are_refused_with_a_sentence(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("pplab diagnose: ") and says in said and "Traceback" not in said
    assert main(["diagnose", str(path), "--json"]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_a_directory_that_is_no_record_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "run.json").write_text('{"format": 1}')
    assert main(["diagnose", str(tmp_path)]) == 2
    assert "not a record of pplab" in capsys.readouterr().err
