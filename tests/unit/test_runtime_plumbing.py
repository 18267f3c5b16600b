"""The parts of the runtime that need no process: messages, jobs, explanations, records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pplab
from pplab.core.ops import CODE
from pplab.core.schedules import interleaved, one_f_one_b
from pplab.runtime import wire
from pplab.runtime.collect import waits_taken_out
from pplab.runtime.failure import explain
from pplab.runtime.job import Job, merged
from pplab.runtime.models import Model, gpt, own, paced
from pplab.runtime.nets.build import equal_bounds
from pplab.runtime.status import Board

# -- messages ---


@given(
    st.lists(st.tuples(st.text(max_size=20), st.lists(st.binary(max_size=50), max_size=3))),
    st.integers(1, 40),
)
def test_messages_survive_any_cutting_of_the_stream(
    sent: list[tuple[str, list[bytes]]], size: int
) -> None:
    data = b"".join(wire.pack({"text": text}, blobs) for text, blobs in sent)
    inbox, got = wire.Inbox(), []
    for i in range(0, len(data), size):
        got += list(inbox.feed(data[i : i + size]))
    assert got == [({"text": text}, blobs) for text, blobs in sent]


def test_arrays_travel_and_objects_do_not() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    about, blob = wire.array_to_blob(array)
    about = json.loads(json.dumps(about))
    assert np.array_equal(wire.array_from_blob(about, blob), array)
    with pytest.raises(ValueError, match="Python objects"):
        wire.array_from_blob({"dtype": "|O", "shape": [1]}, b"12345678")


def test_a_rank_says_what_it_does() -> None:
    board = Board(2)
    assert board.read(1).changes == 0
    slot = board.slot(1)
    slot.say("waits for F3 of rank 0, to run F3")
    slot.say("x" * 500)
    assert board.read(1).changes == 2 and set(board.read(1).text) == {"x"}
    assert board.read(0).changes == 0


# -- jobs ---


def job(**settings: Any) -> Job:
    return Job(**{"model": gpt(), "stages": 2, "micro_batches": 4, **settings})


def test_a_job_reads_back_from_json() -> None:
    plan = interleaved(2, 4, chunks=2)
    one = job(schedule=plan, config={"fp16": {"enabled": False}}, bounds=(0, 2, 4, 6, 10))
    again = Job.from_json(json.loads(json.dumps(one.as_json())))
    assert again == one and again.schedule.layout == plan.layout


def test_the_deepspeed_json_is_explicit() -> None:
    config = job(micro_batch_size=3, lr=0.5).deepspeed_config()
    assert config["train_micro_batch_size_per_gpu"] == 3
    assert config["gradient_accumulation_steps"] == 4
    assert config["gradient_clipping"] == 0.0  # DeepSpeed's default became 1.0
    assert config["optimizer"]["params"]["torch_adam"] is True
    assert "pipeline" not in config and "bf16" not in config
    assert job(dtype="bf16").deepspeed_config()["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "data_types" not in job(dtype="bf16", zero=0).deepspeed_config()
    checkpointed = job(activation_checkpoint_interval=2).deepspeed_config()
    assert checkpointed["pipeline"]["activation_checkpoint_interval"] == 2


def test_a_learners_config_is_merged_section_by_section() -> None:
    config = job(config={"zero_optimization": {"overlap_comm": False}, "seed": 3})
    zero = config.deepspeed_config()["zero_optimization"]
    assert zero == {"stage": 1, "overlap_comm": False}
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}) == {
        "a": {"b": 3, "c": 2},
        "d": 4,
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"engine": "megatron"}, "engine is one of pplab, deepspeed"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"engine": "plain"}, "the plain loop is one process"),
        ({"schedule": one_f_one_b(4, 4)}, "the schedule is for 4 stages and 4 micro-batches"),
        ({"schedule": one_f_one_b(2, 4), "engine": "deepspeed"}, "has its own schedule"),
        ({"bounds": (0, 5)}, "rising layer numbers"),
    ],
)
def test_a_wrong_job_is_refused_in_a_sentence(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        job(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"micro_batchsize": 3},
            "a run has no setting 'micro_batchsize': did you mean micro_batch_size?",
        ),
        ({"zero_stage": 1}, "did you mean zero?"),
        ({"colour": "red"}, "a run has no setting 'colour': help(pplab.run) tells what there is"),
    ],
)
def test_a_setting_that_does_not_exist_is_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError) as caught:
        pplab.run(one_f_one_b(2, 4), **settings)
    assert says in str(caught.value)


def test_without_a_schedule_the_counts_are_asked_for() -> None:
    with pytest.raises(ValueError, match="say how many: stages and micro_batches"):
        pplab.run(engine="deepspeed")
    with pytest.raises(ValueError, match="say how many: micro_batches"):
        pplab.run(engine="zero", replicas=2)


def test_samples_count_replicas() -> None:
    assert job(micro_batch_size=2, replicas=3).samples_per_step == 2 * 4 * 3
    assert job(replicas=3).world == 6


# -- models ---


def test_models_are_described_without_torch() -> None:
    assert gpt(layers=2, width=8, heads=2).settings["layers"] == 2
    assert paced([0.1, 0.2], 0.3).settings["layers"] == 2
    assert paced().paced and not gpt().paced
    with pytest.raises(ValueError, match="heads must divide width"):
        gpt(width=10, heads=4)
    with pytest.raises(ValueError, match="disagree about the number of layers"):
        paced([0.1, 0.2], [0.1])
    with pytest.raises(ValueError, match="cannot be negative"):
        paced(-1.0)
    with pytest.raises(ValueError, match="own layers need data"):
        own([])


def test_a_model_keeps_the_learners_source() -> None:
    def layers() -> list[Any]:
        return ["this very text"]

    model = own(layers, data=lambda index: None)
    assert "this very text" in model.settings["source"]
    assert model == Model("own", model.settings)  # what is compared can be written as JSON


def test_equal_bounds_keep_embedding_and_head_with_their_neighbours() -> None:
    assert equal_bounds(10, 4, (1, 1)) == (0, 3, 5, 7, 10)
    assert equal_bounds(4, 4) == (0, 1, 2, 3, 4)
    assert equal_bounds(5, 4, (1, 1)) == (0, 1, 2, 3, 5)  # too few blocks: all layers count


# -- failures ---


def failed(*ranks: dict[str, Any], kind: str = "rank", **more: Any) -> dict[str, Any]:
    rows = [
        {
            "rank": i, "was": "alive", "doing": f"runs F{i}", "for": 1.0, "error": None,
            "exit_code": None, "finished": False, **row,
        }
        for i, row in enumerate(ranks)
    ]  # fmt: skip
    return {"kind": kind, "ranks": rows, "launcher_exit": None, "logs": {}, **more}


def error(text: str, time: float, peer: bool = False) -> dict[str, Any]:
    return {
        "type": "ValueError", "text": text, "time": time, "peer": peer, "line": "",
        "traceback": "Traceback",
    }  # fmt: skip


def test_the_cause_is_not_the_neighbours_complaint() -> None:
    event = failed(
        {"error": error("Connection closed by peer", 1.0, peer=True)},
        {"error": error("rotten", 2.0)},
    )
    assert explain(event, None).cause == "rank 1 failed while running F1: ValueError: rotten"


def test_a_killed_rank_comes_before_complaints() -> None:
    event = failed(
        {"error": error("Connection closed by peer", 1.0, peer=True)},
        {"was": "ended", "exit_code": -9},
    )
    assert explain(event, None).cause.startswith("rank 1 was killed by SIGKILL")
    assert any(line.startswith("rank 0: runs F0") for line in explain(event, None).details)


def test_complaints_only_still_name_the_first() -> None:
    event = failed(
        {"error": error("Connection closed by peer", 2.0, peer=True)},
        {"error": error("Broken pipe", 1.0, peer=True)},
    )
    assert explain(event, None).cause.startswith("rank 1 failed")


def test_a_hang_in_which_all_wait() -> None:
    event = failed(
        {"doing": "waits for B0 of rank 1"}, {"doing": "waits for F0 of rank 0"}, kind="hang"
    )
    assert explain(event, None).cause.endswith("every rank waits for another")


def test_the_launcher_that_fails_is_quoted() -> None:
    event = failed({"doing": ""}, launcher_exit=2, logs={"deepspeed": "usage\nno such option\n"})
    text = explain(event, None).cause
    assert text == "the deepspeed command ended with exit code 2: no such option"


def test_a_notebook_shows_the_message_and_the_ranks_traceback() -> None:
    event = failed({"error": error("rotten", 1.0)}, {})
    lines = explain(event, Path("/runs/1"))._render_traceback_()
    assert lines[0].startswith("RunError: rank 0 failed") and lines[-1] == "Traceback"


# -- timelines of the stock engine ---


def test_the_stock_optimizer_step_begins_when_the_last_rank_is_done() -> None:
    columns = {
        "step": np.array([0, 0, 0, 0]),
        "kind": np.array([CODE["B"], CODE["U"], CODE["B"], CODE["U"]]),
        "rank": np.array([0, 0, 1, 1]),
        "start": np.array([0.0, 9.0, 0.0, 4.0]),
        "end": np.array([9.0, 10.0, 4.0, 10.0]),
    }
    after = waits_taken_out(columns)
    u = after["kind"] == CODE["U"]
    assert after["start"][u].tolist() == [9.0, 9.0]
    g = after["kind"] == CODE["G"]
    assert (after["rank"][g], after["start"][g], after["end"][g]) == (1, 4.0, 9.0)


def test_names_of_the_package() -> None:
    assert {"run", "compare", "explore", "models", "schedules", "holds"} <= set(dir(pplab))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pplab.nonsense
