"""Which ranks form a pipeline: what the files list, and what the order of the passes shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pplab
from pplab.core.schedules import one_f_one_b
from pplab.core.timeline import Timeline
from pplab.traces import TraceError, load
from pplab.traces.chains import arrangement, linked
from pplab.traces.rows import natural, rank_in_text
from tests.unit.kineto_files import document, event
from tests.unit.test_traces_kineto import same, simulated, torch_names

WORDS = {"F": "forward-compute", "B": "backward-compute", "U": "optimizer"}
MEGATRON, MESH = "PIPELINE_MODEL_PARALLEL_GROUP", "mesh_pp"


def write(
    folder: Path, timeline: Timeline, stage_of: list[int],
    groups: dict[int, list[int]] | None = None, *, desc: str = MESH,
    name=lambda span: WORDS[span.op.kind], late: float = 0.0, only: list[int] | None = None,
) -> None:  # fmt: skip
    """A file for every rank of a job, in which rank r runs what stage_of[r] runs; `groups`: the
    ranks of its pipeline."""
    for rank, stage in enumerate(stage_of):
        if only is not None and rank not in only:
            continue
        # replicas are a little apart, clocks may be more
        ahead = 100 + 1e-5 * rank + late * rank
        events = [
            event(name(s), s.start + ahead, s.end + ahead) for s in timeline if s.rank == stage
        ]
        about = document(events, rank, len(stage_of))
        if groups:
            about["distributedInfo"]["pg_config"] = [
                {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(len(stage_of)))},
                {"pg_name": "1", "pg_desc": desc, "ranks": groups[rank]},
                {"pg_name": "2", "pg_desc": "mesh_dp", "ranks": [rank]},
            ]
        (folder / f"rank{rank}_trace.json").write_text(json.dumps(about))


@pytest.mark.parametrize("desc", [MEGATRON, MESH])
@pytest.mark.parametrize("order", ["apart", "in a row"])
def test_groups_of_ranks_are_taken_from_the_files(tmp_path, desc, order):
    timeline = simulated(one_f_one_b(2, 4))
    stage_of = [0, 0, 1, 1] if order == "apart" else [0, 1, 0, 1]
    chains = [[0, 2], [1, 3]] if order == "apart" else [[0, 1], [2, 3]]
    groups = {rank: chain for chain in chains for rank in chain}
    write(tmp_path, timeline, stage_of, groups, desc=desc)
    found = load(tmp_path)
    assert found.notes == () and found.timeline.replicas == (0, 1)
    for replica in range(2):
        mine = found.timeline.only(replica=replica)
        assert (mine.stages, mine.micro_batches) == (2, 4)
    assert pplab.diagnose(tmp_path).first.name == "communication"  # and no circle of waits
    # what the learner says goes first
    assert load(tmp_path, stages=4).timeline.stages == 4


def test_one_replica_of_a_larger_job_is_whole(tmp_path):
    """With groups, and with stages in the names, on ranks 0 and 2 of 4."""
    timeline = simulated(one_f_one_b(2, 4))
    groups = {0: [0, 2], 1: [1, 3], 2: [0, 2], 3: [1, 3]}
    write(tmp_path, timeline, [0, 0, 1, 1], groups, only=[0, 2])
    assert load(tmp_path).missing == () and load(tmp_path).notes == ()
    names = torch_names(timeline.layout)
    write(tmp_path, timeline, [0, 0, 1, 1], name=names, only=[0, 2])
    assert load(tmp_path).missing == ()


def test_pipelines_of_different_lengths_are_refused(tmp_path):
    timeline = simulated(one_f_one_b(2, 2))
    write(tmp_path, timeline, [0, 1, 0], {0: [0, 1], 1: [0, 1], 2: [2]})
    with pytest.raises(TraceError, match="pipelines of different lengths"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("stage_of", "says"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3], "ranks 0 and 1 run the same micro-batches"),
        ([0, 1, 2, 3, 0, 1, 2, 3], "one after the other"),
        ([0, 1, 2, 3], ""),
    ],
)
@pytest.mark.parametrize("late", [0.0, 0.5])
def test_replicas_are_told_by_running_at_the_same_time(tmp_path, stage_of, says, late):
    """Whatever their clocks say: what one gap gains the other loses."""
    timeline = simulated(one_f_one_b(4, 6))
    write(tmp_path, timeline, stage_of, late=late)
    found = load(tmp_path, align="auto" if late else False)
    assert found.timeline.stages == 4
    assert len(found.timeline.replicas) == len(stage_of) // 4
    assert bool(says) == any("say stages=... (--stages)" in note for note in found.notes)
    assert all(says in note for note in found.notes if "same micro-batches" in note)
    if not late:
        same(found.timeline.only(replica=0), timeline, within=1e-4)


def test_ranks_of_a_job_without_a_pipeline(tmp_path):
    write(tmp_path, simulated(one_f_one_b(1, 3)), [0, 0, 0])
    found = load(tmp_path)
    assert found.timeline.stages == 1 and found.timeline.replicas == (0, 1, 2)
    assert "no rank hands work on to another" in found.notes[0]


def test_passes_that_say_nothing_may_follow_each_other():
    assert linked({}, {})
    assert arrangement([{}, {}, {}]) == (3, False)


# -- ranks of one file, and of files that do not say -----------------------------------------------


def one_file(timeline: Timeline, pid, tid=lambda rank: 0) -> list[dict]:
    return [event(str(s.op), s.start + 1, s.end + 1, pid=pid(s.rank), tid=tid(s.rank))
            for s in timeline]  # fmt: skip


def test_processes_of_a_merged_file_are_in_the_order_of_their_numbers(tmp_path):
    timeline = simulated(one_f_one_b(12, 12), steps=1)
    (tmp_path / "all.json").write_text(json.dumps(one_file(timeline, lambda rank: rank)))
    found = load(tmp_path / "all.json")
    assert found.notes == ()
    same(found.timeline, timeline)


def test_names_of_processes_tell_their_ranks(tmp_path):
    timeline = simulated(one_f_one_b(3, 4))
    called = [
        {"ph": "M", "name": "process_name", "pid": 90 - rank, "args": {"name": f"Rank {rank}"}}
        for rank in range(3)
    ]
    events = [*one_file(timeline, lambda rank: 90 - rank), *called]
    (tmp_path / "all.json").write_text(json.dumps({"traceEvents": events}))
    same(load(tmp_path / "all.json").timeline, timeline)


def test_threads_that_run_side_by_side_are_ranks(tmp_path):
    """As simulators and pipelines within one process write them."""
    timeline = simulated(one_f_one_b(3, 4))
    events = one_file(timeline, lambda rank: 7, lambda rank: 100 + rank)
    (tmp_path / "all.json").write_text(json.dumps(events))
    found = load(tmp_path / "all.json")
    same(found.timeline, timeline)
    assert "threads of one process run the same operations side by side" in found.notes[0]


def test_the_thread_of_autograd_is_no_rank(tmp_path):
    timeline = simulated(one_f_one_b(1, 4))
    events = [
        event(str(s.op), s.start + 1, s.end + 1, tid=1 + (s.op.kind == "B")) for s in timeline
    ]
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    found = load(tmp_path / "rank0.json")
    assert found.notes == ()
    same(found.timeline, timeline)


def test_passes_on_top_of_each_other_are_told(tmp_path):
    events = [event("F0", 0, 2), event("F1", 1, 3), event("B0", 3, 5), event("B1", 4, 6)]
    (tmp_path / "rank0.json").write_text(json.dumps(document(events)))
    assert "25% of the time of its passes lies on top" in load(tmp_path / "rank0.json").notes[-1]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("trace_{}.json", False), ("gpu07_{}.17.pt.trace.json", False), ("rank-{}.json", True)],
)
def test_numbers_in_names_of_files(tmp_path, pattern, told):
    """In the order of their numbers; those of nodes are no ranks."""
    timeline = simulated(one_f_one_b(11, 11), steps=1)
    for rank in range(11):
        events = [event(WORDS[s.op.kind], s.start, s.end) for s in timeline if s.rank == rank]
        (tmp_path / pattern.format(rank)).write_text(json.dumps({"traceEvents": events}))
    found = load(tmp_path)
    assert any("do not say which rank" in note for note in found.notes) is not told
    same(found.timeline, timeline)


def test_names_are_read_as_people_mean_them():
    assert rank_in_text("worker-2-gpu07_rank_13.json") == 13
    assert [rank_in_text(text) for text in ("worker3.sqlite", "Stage 2", "trace.json")] == [
        3, 2, None
    ]  # fmt: skip
    assert sorted(["t10", "t2", "t1b"], key=natural) == ["t1b", "t2", "t10"]
