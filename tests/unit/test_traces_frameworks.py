"""What other programs call their passes, and what can be told where they call them nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pplab
from pplab.cli import main
from pplab.core.schedules import dualpipev, interleaved, one_f_one_b, zb_h1
from pplab.core.timeline import Span
from pplab.traces import TraceError, load
from pplab.traces.functions import called
from pplab.traces.named import Named
from pplab.traces.names import conventions, from_options, step_number
from tests.unit.kineto_files import document, event, write_ranks
from tests.unit.test_traces_kineto import same, simulated


def parsed(name: str) -> set[Named]:
    return {named for convention in conventions(None) for named in convention.parse(name)}


@pytest.mark.parametrize(
    ("name", "kind", "m", "more"),
    [
        ("2F10", "F", 10, {"stage": 2}),
        ("PP:0SEND_B3", "S", 3, {"stage": 0, "of": "B"}),
        ("F3.1.0", "F", 3, {"chunk": 1}),
        ("B3.0.2", "B", 3, {"chunk": 0, "part": 2}),
        ("W_clear.1.0", "W", -1, {"chunk": 1}),
        ("W", "W", -1, {"chunk": 0}),
        ("forward_step", "F", None, {}),
        ("backward-recv", "R", None, {"of": "B"}),
        ("send_forward_recv_backward", "R", None, {"of": "B"}),
        ("mb_12_BackwardStepTask", "B", 12, {}),
        ("mb_12_ForwardPreprocessTask", "R", 12, {"of": "F"}),
        ("mb_12_BackwardPostprocessTask", "S", 12, {"of": "B"}),
    ],
)
def test_names_of_other_programs(name, kind, m, more):
    assert Named(kind, m, **more) in parsed(name)


@pytest.mark.parametrize("name", ["", "F", "mb_1_ForwardStep", "W_clear", "W_clear.1", "forward",
                                  "FF0", "0F", "PP:F0"])  # fmt: skip
def test_what_is_no_pass_stays_none(name):
    assert not {named for named in parsed(name) if named.micro_batch != -1}


def test_iterations_of_zero_bubble_are_steps():
    assert step_number("iter_3_17") == 17  # iter_<rank>_<number>
    assert step_number("iter_3") == 3 and step_number("iter_a_3") is None


def zero_bubble(span: Span) -> str | None:
    op = span.op
    return None if op.kind == "U" else f"{op.kind}{op.micro_batch}.{op.chunk}.0"


def test_a_trace_of_zero_bubble(tmp_path):
    timeline = simulated(zb_h1(3, 6)).only(kinds="FBW")
    found = load(write_ranks(tmp_path, timeline, name=zero_bubble, marks=True))
    assert found.notes == () and found.details["convention"] == "Zero Bubble's Megatron-LM"
    same(found.timeline, timeline)


def test_weight_gradients_that_were_left_for_the_end_are_shared_out(tmp_path):
    """W1 and W2 of rank 0 are done at once by W_clear."""
    events = [
        *(event(f"F{m}.0.0", m, m + 1) for m in range(3)),
        *(event(f"B{m}.0.0", 3 + m, 4 + m) for m in range(3)),
        event("W0.0.0", 6, 7), event("W_clear.0.0", 7, 10),
    ]  # fmt: skip
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    rows = [(str(s.op), s.start, s.end) for s in load(tmp_path / "rank0.json").timeline]
    assert rows[-3:] == [("W0", 6, 7), ("W1", 7, 8.5), ("W2", 8.5, 10)]


def test_pieces_of_sequences_count_as_micro_batches(tmp_path):
    names = ["F0.0.0", "F0.0.1", "F1.0.0", "F1.0.1", "B1.0.1", "B1.0.0", "B0.0.1", "B0.0.0"]
    events = [event(name, i, i + 1) for i, name in enumerate(names)]
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    found = load(tmp_path / "rank0.json")
    assert [str(s.op) for s in found.timeline] == [
        "F0", "F1", "F2", "F3", "B3", "B2", "B1", "B0"
    ]  # fmt: skip
    assert "each micro-batch is cut into 2 sequences" in found.notes[0]


@pytest.mark.parametrize("plan", [dualpipev(2, 4), interleaved(2, 4)], ids=["v", "loop"])
def test_second_chunks_show_whether_they_lie_as_a_v(tmp_path, plan):
    """Names with chunks but no stages: the order of the passes tells."""
    timeline = simulated(plan)
    found = load(write_ranks(tmp_path, timeline, name=lambda s: str(s.op)))
    assert found.timeline.layout == timeline.layout and found.notes == ()
    same(found.timeline, timeline)


def test_messages_that_are_not_numbered_are_counted_each_way(tmp_path):
    """Megatron's timers in the middle of a pipeline: two receives and two sends a micro-batch."""
    timeline = simulated(one_f_one_b(3, 4))
    words = {"F": "forward-compute", "B": "backward-compute", "U": "optimizer"}

    def around(rank: int) -> list[dict]:
        mine = [s for s in timeline if s.rank == rank and s.op.kind in "FB"]
        way = {"F": "forward", "B": "backward"}
        return [
            event(f"{way[s.op.kind]}-{what}", 100 + at - 1e-5, 100 + at)
            for s in mine
            for what, at in (("recv", s.start), ("send", s.end + 1e-5))
        ]

    found = load(write_ranks(tmp_path, timeline, name=lambda s: words[s.op.kind], after=around))
    assert found.timeline.micro_batches == 4
    same(found.timeline.only(kinds="FBU"), timeline)


def test_sends_of_activations_and_gradients_do_not_begin_a_step(tmp_path):
    """A middle slice of torch sends its activation and its gradient under one number."""
    events = []
    for step in range(2):
        for i, name in enumerate(("RECV_F0", "F0", "SEND_F0", "RECV_B0", "B0", "SEND_B0")):
            events.append(event(f"PP:1{name}", 10 * step + i, 10 * step + i + 1))
    (tmp_path / "rank1.json").write_text(json.dumps(document(events, 1, 2)))
    timeline = load(tmp_path / "rank1.json").timeline
    assert timeline.steps == (0, 1)
    assert np.all(timeline.step == (timeline.start >= 10))


# -- functions ------------------------------------------------------------------------------------

ENGINE = "deepspeed/runtime/pipe/engine.py"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{ENGINE}(699): _exec_forward_pass", "F"),
        (f"/opt/site-packages/{ENGINE}(792): _exec_backward_pass", "B"),
        ("C:\\py\\deepspeed\\runtime\\pipe\\engine.py(1): _exec_send_grads", "S"),
        ("torch/distributed/pipelining/stage.py(857): forward_one_chunk", "F"),
        ("torch/distributed/pipelining/stage.py(1064): backward_weight_one_chunk", "W"),
        ("megatron/core/pipeline_parallel/schedules.py(411): backward_step", "B"),
        ("megatron/schedules.py(100): forward_step", "F"),
        ("/home/me/pretrain_gpt.py(80): forward_step", ""),
        (f"{ENGINE}(332): train_batch", ""),
        ("torch/nn/modules/module.py(1): forward_one_chunk", ""),
    ],
)
def test_functions_of_engines(name, kind):
    assert [named.kind for named in called(name)] == list(kind)


def recorded(rank: int, *, ranges: bool = False) -> list[dict]:
    """Functions of DeepSpeed's engine in two steps of two micro-batches on two ranks."""
    order = "FF BB".replace(" ", "") if rank == 0 else "FBFB"
    start = {("F", 0): (0, 1), ("F", 1): (1, 3), ("B", 0): (4, 2), ("B", 1): (6, 4)}
    words = {"F": "_exec_forward_pass", "B": "_exec_backward_pass"}
    events, count = [], {"F": 0, "B": 0}
    for step in range(2):
        count = dict.fromkeys(count, 0)
        for kind in order:
            at = 10 * step + start[kind, count[kind]][rank]
            count[kind] += 1
            events.append(event(f"{ENGINE}(9): {words[kind]}", at, at + 1, "python_function"))
            if ranges and (kind == "F" or rank == 1):
                called = {"F": "forward", "B": "backward"}[kind]
                events.append(event(f"DeepSpeedEngine.{called}", at + 0.1, at + 0.9))
        end = 10 * step + 8
        events.append(event(f"{ENGINE}(5): _exec_optimizer_step", end, end + 1, "python_function"))
        events.append(event("torch/nn/linear.py(5): forward", end, end + 1, "python_function"))
    return events


@pytest.mark.parametrize("ranges", [False, True])
def test_functions_tell_the_passes_that_have_no_ranges(tmp_path, ranges):
    for rank in range(2):
        about = document(recorded(rank, ranges=ranges), rank, 2)
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(about))
    found = load(tmp_path)
    (note,) = found.notes
    assert "told from the functions that the profiler recorded" in note
    assert found.timeline.steps == (0, 1) and found.timeline.micro_batches == 2
    assert pplab.diagnose(found.timeline).step == pytest.approx(9)


def test_ranges_come_before_functions(tmp_path):
    timeline = simulated(one_f_one_b(2, 2))
    file = "torch/distributed/pipelining/stage.py(1): "

    def functions(rank: int) -> list[dict]:
        words = {"F": "forward_one_chunk", "B": "backward_one_chunk"}
        return [
            event(file + words[s.op.kind], 100 + s.start, 100 + s.end, "python_function")
            for s in timeline.only(kinds="FB") if s.rank == rank
        ]  # fmt: skip

    found = load(write_ranks(tmp_path, timeline, after=functions))
    assert found.details["convention"] == "pplab" and found.notes == ()


# -- names that leave something out ---------------------------------------------------------------


def test_deepspeed_names_backward_passes_on_the_last_stage_only(tmp_path, capsys):
    timeline = simulated(one_f_one_b(2, 3))

    def name(span: Span) -> str | None:
        words = {"F": "DeepSpeedEngine.forward"}
        words |= {"B": "DeepSpeedEngine.backward"} if span.rank else {}
        return words.get(span.op.kind)

    paths = write_ranks(tmp_path, timeline, name=name, marks=True)
    note = load(paths).notes[-1]
    assert note.startswith("trace-rank-0.json: forward passes have names but backward") and (
        "idle shares are too high" in note
    )
    assert main(["diagnose", *map(str, paths)]) == 2
    said = capsys.readouterr().err
    assert "rank 0: no backward pass was recorded at all" in said and "with_stack=True" in said


def test_a_refusal_says_what_is_understood_and_how_to_name_ones_own(tmp_path):
    paths = write_ranks(tmp_path, simulated(one_f_one_b(2, 2)), name=lambda s: f"pass {s.op}")
    with pytest.raises(TraceError) as caught:
        load(paths)
    said = str(caught.value)
    for part in ("'pass F0' (4)", "--name 'fwd (\\d+)=F'", "PP:1F3", "forward-compute",
                 "with_stack=True", "Schedule1F1B names nothing"):  # fmt: skip
        assert part in said
    with pytest.raises(TraceError) as caught:
        load(paths, names={"x(\\d)": "F"})
    assert "by the names given" in str(caught.value)
    assert "Understood without help" not in str(caught.value)


def test_the_only_group_of_a_name_is_the_micro_batch(tmp_path, capsys):
    timeline = simulated(one_f_one_b(2, 4))
    words = {"F": "my fwd", "B": "my bwd"}

    def name(span: Span) -> str | None:
        word = words.get(span.op.kind)
        return f"{word} {span.op.micro_batch}" if word else None

    paths = write_ranks(tmp_path, timeline, name=name)
    options = ["--name", r"my fwd (\d+)=F", "--name", r"my bwd (\d+)=B"]
    names = from_options(options[1::2])
    same(load(paths, names=names).timeline, timeline.only(kinds="FB"))
    # a group that holds no number only groups
    loose = load(paths, names={r"(my|your) fwd .*": "F", r"my bwd .*": "B"}).timeline
    assert loose.steps == (0,) and loose.micro_batches == 8
    assert main(["trace", *map(str, paths), *options]) == 0
    assert main(["diagnose", *map(str, paths), *options, "--least", "90"]) == 0
    assert "2 ranks, 4 micro-batches" in capsys.readouterr().out
    assert main(["diagnose", *map(str, paths), "--name", "fwd"]) == 2
    assert "write REGEX=KIND" in capsys.readouterr().err
