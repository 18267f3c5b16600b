"""Faults planted in real runs: they happen, they are labelled, and the diagnosis names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pplab
from pplab.cli import main
from pplab.core.schedules import one_f_one_b
from tests.measuring import measured

MS = 1e-3
PLAN = one_f_one_b(4, 8)
MODEL = pplab.models.paced(8 * MS, 16 * MS)


def run(model: pplab.models.Model = MODEL, **settings: Any) -> pplab.Run:
    return pplab.run(PLAN, model, quiet=True, **{"keep": False, "steps": 4, **settings})


@pytest.fixture(scope="module")
def healthy() -> pplab.Run:
    return run()


@measured
def test_a_healthy_run_has_no_great_cause(clean: str) -> None:
    healthy = run()
    found = pplab.diagnose(healthy)
    assert found.counts == {"ranks": 4, "replicas": 1, "micro_batches": 8, "steps": 3}
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.step)
    assert found["slow worker"].seconds == found["sequence length"].seconds == 0
    assert found["useful"].seconds >= 8 * 24 * MS
    assert found.replayed == pytest.approx(found.step, rel=0.02)
    assert "with planted faults" not in healthy.timeline.source
    text = str(found)
    assert text.startswith("[measured] measured: paced: 4 ranks")


@measured
def test_a_slow_rank_of_one_replica_is_named(clean: str) -> None:
    done = run(replicas=2, faults={"slow": {"rank": 2, "replica": 1, "factor": 2.0}})
    assert done.timeline.source == "measured: paced, with planted faults"
    first = pplab.diagnose(done).first
    assert first is not None and first.name == "slow worker"
    assert (first.where["rank"], first.where["replica"]) == (2, 1)


@measured
def test_a_heavy_stage_is_named_with_the_layers_to_move(tmp_path: Path, clean: str) -> None:
    model = pplab.models.paced(4 * MS, 8 * MS, layers=10)
    done = run(model, bounds=(0, 2, 4, 6, 10), keep=True)
    first = pplab.diagnose(done).first
    assert first is not None and first.name == "imbalance"
    assert first.where["stage"] == 3 and "stage 3" in first.advice
    assert max(np.diff(first.where["bounds"])) == 3  # of 10 layers on 4 stages
    # the record on disk tells the same, from the command line
    assert done.directory is not None and main(["diagnose", str(done.directory)]) == 1


@measured
def test_a_slow_link_is_named_and_changes_no_number(healthy: pplab.Run, clean: str) -> None:
    done = run(faults={"link": (0, 20 * MS, 0)})
    assert done.losses == healthy.losses
    first = pplab.diagnose(done).first
    assert first is not None and first.name == "communication"
    assert first.where["link"] == (1, 2)
    # messages really arrive later, all of them on this link and both ways
    end = {(s.step, s.rank, s.op): s.end for s in done.timeline.only(kinds="FB")}
    for s in done.timeline.only(kinds="FB"):
        other = {("F", 2): 1, ("B", 1): 2}.get((s.op.kind, s.rank))
        if other is not None:
            assert s.start - end[s.step, other, s.op] >= 20 * MS


@measured
def test_a_slow_loader_is_named(healthy: pplab.Run, clean: str) -> None:
    done = run(faults={"loading": 10 * MS})
    assert done.losses == healthy.losses
    first = pplab.diagnose(done).first
    assert first is not None and first.name == "data loading"
    assert first.where["ranks"] == [0, 3] and first.where["each"] >= 10 * MS


@measured
def test_unequal_micro_batches_are_named(clean: str) -> None:
    done = run(faults={"lengths": (0.5, 1.5, 0.7, 1.3, 0.6, 2.0, 0.4)})
    found = pplab.diagnose(done)
    assert found.first is not None and found.first.name == "sequence length"
    assert found["slow worker"].seconds == 0


@measured
def test_a_rank_that_is_slow_at_times_is_named(clean: str) -> None:
    first = pplab.diagnose(run(faults=pplab.Faults(slow={"rank": 1, "factor": 3.0, "part": 0.4})))
    assert first.first is not None and first.first.name == "slow worker"
    assert first.first.where["rank"] == 1 and "at times" in first.first.what


@measured
def test_deepspeeds_own_engine_can_be_diagnosed(clean: str) -> None:
    done = pplab.run(
        None, pplab.models.paced([4 * MS] * 2 + [12 * MS], [8 * MS] * 2 + [24 * MS]),
        engine="deepspeed", stages=3, micro_batches=6, quiet=True, keep=False,
    )  # fmt: skip
    found = pplab.diagnose(done)
    assert found.first is not None and found.first.name == "imbalance"
    assert found.first.where["stage"] == 2
    assert sum(p.seconds for p in found.parts) == pytest.approx(found.step)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"faults": {"lnk": 1}}, "no such fault: lnk"),
        ({"faults": {"link": (1, 2)}}, "link is one number or 3"),
        ({"faults": {"link": -1}}, "finite and not negative"),
        ({"faults": {"lengths": (1, 0)}}, "lengths are positive"),
        ({"faults": {"slow": {"rank": 4, "factor": 2}}}, "no worker of this run"),
        ({"faults": {"slow": {"rank": 1, "factor": 0}}}, "no worker of this run"),
        ({"faults": {"loading": 1}, "model": pplab.models.gpt()}, "paced models only"),
    ],
)
def test_faults_that_cannot_be_are_refused_before_anything_starts(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        run(**settings)


def test_faults_are_part_of_the_record(tmp_path: Path, clean: str) -> None:
    faults = {"slow": [{"rank": 1, "factor": 1.5}], "link": (0, 0.001, 0), "lengths": (1, 2)}
    done = run(pplab.models.paced(MS, MS), steps=1, keep=True, faults=faults)
    assert done.directory is not None
    again = pplab.Run.load(done.directory)
    assert again.job == done.job and again.job.faults == pplab.Faults(**faults)
