"""What a run measures: every operation once, in the order of the plan, after what it needs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pplab
from pplab.core.ops import Op
from pplab.core.schedules import gpipe, one_f_one_b

MS = 1e-3


@pytest.fixture(scope="module")
def paced() -> pplab.Run:
    return pplab.run(one_f_one_b(4, 8), pplab.models.paced(4 * MS, 8 * MS), steps=3, quiet=True)


def operations(timeline: pplab.Timeline, step: int, rank: int) -> list[Op]:
    return [s.op for s in timeline.only(step=step, kinds="FB") if s.rank == rank]


def test_every_rank_runs_its_operations_in_the_order_of_the_plan(paced: pplab.Run) -> None:
    plan = paced.job.schedule
    assert plan is not None
    for step in range(3):
        for rank, ops in enumerate(plan.ops):
            assert operations(paced.timeline, step, rank) == list(ops)


def test_no_operation_starts_before_its_input_exists(paced: pplab.Run) -> None:
    end = {(s.step, s.rank, s.op): s.end for s in paced.timeline.only(kinds="FB")}
    for s in paced.timeline.only(kinds="FB"):
        other = s.rank + (-1 if s.op.kind == "F" else 1)
        if (s.step, other, s.op) in end:
            assert end[s.step, other, s.op] <= s.start


def test_paced_operations_take_at_least_their_time(paced: pplab.Run) -> None:
    work = paced.timeline.only(kinds="FB")
    lasts = work.end - work.start
    assert lasts[work.is_kind("F")].min() >= 4 * MS
    assert lasts[work.is_kind("B")].min() >= 8 * MS


def test_the_record_says_what_was_measured(paced: pplab.Run) -> None:
    assert paced.timeline.source == "measured: paced"
    assert paced.timeline.unit == "s"
    assert len(paced.losses) == len(paced.step_times) == 3
    assert paced.placement["backend"] == "gloo" or paced.placement["device"] == "cuda"
    assert paced.config["gradient_accumulation_steps"] == 8
    assert {"torch", "deepspeed", "python"} <= paced.versions.keys()
    assert [m["parameters"] for m in paced.memory] == [4 * (64 * 64 + 64)] * 4
    assert all(m["activation_bytes"] > 0 and m["resident"] > 0 for m in paced.memory)
    assert paced.bounds == (0, 1, 2, 3, 4)


def test_the_prediction_from_measured_costs_has_the_same_operations(paced: pplab.Run) -> None:
    simulated, measured = paced.simulate(), paced.timeline.typical
    assert simulated.unit == "s" and simulated.source == "simulated"
    for rank in range(4):
        assert operations(simulated, 0, rank) == operations(measured, measured.steps[0], rank)
    # Loose on purpose: how close it comes is a measurement, printed by `make bench`
    assert 0.5 < simulated.step_time / measured.step_time < 1.2


def test_gpipe_holds_all_micro_batches_and_1f1b_does_not(paced: pplab.Run) -> None:
    run = pplab.run(gpipe(4, 8), pplab.models.paced(2 * MS, 4 * MS), quiet=True, keep=False)
    assert run.timeline.only(step=1).measures.peak_in_flight().tolist() == [8, 8, 8, 8]
    assert paced.timeline.only(step=1).measures.peak_in_flight().tolist() == [4, 3, 2, 1]


def test_stock_deepspeed_is_recorded(clean: str) -> None:
    run = pplab.run(
        None, pplab.models.paced(2 * MS, 4 * MS), engine="deepspeed", stages=3, micro_batches=4,
        quiet=True, keep=False,
    )  # fmt: skip
    plan = one_f_one_b(3, 4)
    for rank in range(3):
        mine = operations(run.timeline, 1, rank)
        assert sorted(mine) == sorted(plan.ops[rank])
        assert [op for op in mine if op.kind == "B"] == [Op("B", m) for m in range(4)]
    kinds = {s.op.kind for s in run.timeline}
    assert {"F", "B", "U", "S", "R", "G", "L"} <= kinds
    assert run.timeline.schedule == "DeepSpeed's 1F1B"


def test_replicas_are_told_apart(clean: str) -> None:
    run = pplab.run(
        one_f_one_b(2, 3), pplab.models.paced(MS, MS), replicas=2, quiet=True, keep=False
    )
    assert run.timeline.replicas == (0, 1)
    counts = np.unique(run.timeline.only(kinds="FB").replica, return_counts=True)[1]
    assert counts.tolist() == [2 * 3 * 2 * 3, 2 * 3 * 2 * 3]


def test_recording_can_be_switched_off(clean: str) -> None:
    run = pplab.run(
        one_f_one_b(2, 2), pplab.models.paced(MS, MS), record=False, quiet=True, keep=False
    )
    assert len(run.timeline) == 0 and len(run.losses) == 3
    with pytest.raises(ValueError, match="record=False"):
        _ = run.costs


def test_a_record_reads_back_without_executing_anything(paced: pplab.Run) -> None:
    assert paced.directory is not None
    again = pplab.Run.load(paced.directory)
    assert again.timeline == paced.timeline
    assert again.losses == paced.losses and again.job == paced.job
    assert again.config == paced.config and again.memory == paced.memory
    names = {path.suffix for path in paced.directory.iterdir()}
    assert names <= {".json", ".npz", ".log"}  # no pickle
    assert stat.S_IMODE(paced.directory.stat().st_mode) == 0o700
    repeated = pplab.run(again.job.schedule, again.job.model, steps=3, quiet=True, keep=False)
    assert repeated.losses == paced.losses


def test_the_servers_socket_belongs_to_its_owner_only() -> None:
    directory = pplab.warm().directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    pplab.run(one_f_one_b(1, 1), pplab.models.paced(MS, MS), steps=1, quiet=True, keep=False)
    assert stat.S_IMODE((directory / "socket").stat().st_mode) == 0o600


def test_profile_gives_a_trace_per_rank_with_named_operations(clean: str) -> None:
    import json

    run = pplab.run(one_f_one_b(2, 2), pplab.models.paced(MS, MS), profile=True, quiet=True)
    assert len(run.traces) == 2
    for rank, path in enumerate(run.traces):
        names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
        assert {str(op) for op in run.job.schedule.ops[rank]} | {"U"} <= names


def test_the_deepspeed_command_gives_the_same_losses(clean: str) -> None:
    plan, model = one_f_one_b(2, 2), pplab.models.gpt(layers=2, width=16, heads=2, context=8)
    local = pplab.run(plan, model, steps=2, quiet=True, keep=False)
    command = pplab.run(plan, model, steps=2, launcher="deepspeed", quiet=True, keep=False)
    assert command.losses == local.losses
    assert "deepspeed" in command.logs and "rank-1" in command.logs
    assert operations(command.timeline, 1, 0) == list(plan.ops[0])


def test_own_layers_loss_and_data_reach_the_ranks_by_value(clean: str) -> None:
    def layers():
        from torch import nn

        return [nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 2)]

    def loss(outputs, labels):
        return (outputs - labels).abs().mean()

    def batch(index):
        import torch

        generator = torch.Generator().manual_seed(index)
        x = torch.randn(5, 6, generator=generator)
        return x, x[:, :2]

    model = pplab.models.own(layers, loss, batch)
    run = pplab.run(
        one_f_one_b(2, 2), model, steps=30, lr=0.05, bounds=(0, 1, 4), quiet=True, keep=False
    )
    plain = pplab.run(
        None, model, engine="plain", stages=1, micro_batches=2, steps=30, lr=0.05, quiet=True,
        keep=False,
    )  # fmt: skip
    assert run.bounds == (0, 1, 4)
    np.testing.assert_allclose(run.losses, plain.losses, rtol=1e-5)
    assert sum(run.losses[-5:]) < 0.8 * sum(run.losses[:5])
    seeded = pplab.run(one_f_one_b(2, 2), model, steps=1, lr=0.05, seed=1, quiet=True, keep=False)
    assert seeded.losses[0] != run.losses[0]  # the seed reaches the learner's own layers


def test_this_process_never_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys, pplab; from pplab.core.schedules import one_f_one_b\n"
        "r = pplab.run(one_f_one_b(2, 2), pplab.models.paced(.001, .001), quiet=True, keep=False)\n"
        "assert len(r.losses) == 3\n"
        "print([m for m in ('torch', 'deepspeed') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PPLAB_RUNS": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.strip() == "[]", done.stderr


def widen_and_narrow() -> list[torch.nn.Module]:
    """Two layers with next to no parameters, and 2 MB from one to the other."""

    class Widen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x[:, :1] * self.weight).expand(-1, 2**19).contiguous()

    class Narrow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :8] * self.weight

    return [Widen(), Narrow()]


def growth(micro_batches: int) -> list[int]:
    """Bytes by which each of two ranks grows in steps of 1F1B with 2 MB messages (Linux)."""
    model = pplab.models.own(
        widen_and_narrow, torch.nn.functional.mse_loss, lambda _: (torch.ones(1, 8),) * 2
    )
    plan = one_f_one_b(2, micro_batches)
    run = pplab.run(plan, model, bounds=(0, 1, 2), steps=2, quiet=True, keep=False)
    return [memory["resident_growth"] for memory in run.memory]


@pytest.mark.skipif(sys.platform != "linux", reason="the growth of a process is read from /proc")
def test_messages_that_have_arrived_are_not_kept() -> None:
    few, many = growth(4), growth(64)  # all messages together: 8 MB and 128 MB each way
    assert all(after < before + 40e6 for before, after in zip(few, many, strict=True)), (few, many)
