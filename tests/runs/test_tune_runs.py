"""The tuner on real ranks: probes, plans that run as they are, the check-list, the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pplab
from pplab import Tuning, cli, models
from pplab.runtime.hardware import hardware

MS = 1e-3
GPT = models.gpt(layers=4, width=32, heads=2, context=32)


def by_size(samples: int) -> models.Model:
    """A fixed part and a part a sample, and a last layer twice as heavy."""
    seconds = (0.5 + 0.25 * samples) * MS
    work = (1, 1, 1, 1, 1, 2)
    return models.paced([seconds * w for w in work], [2 * seconds * w for w in work])


@pytest.fixture(scope="module")
def paced() -> Tuning:
    """Three stages, so that a cut and a number of micro-batches must be chosen; two plans run."""
    return pplab.tune(
        by_size, 3, batch=24, stages=(3,), schedules=("1f1b", "zb-h1"), verify=2, repeats=1,
        verify_steps=3, quiet=True,
    )  # fmt: skip


def test_plans_run_as_they_are_predicted(paced: Tuning, clean: str) -> None:
    assert paced.known.probes and not paced.known.problems
    shape = paced.known.of((3, 1, 1, 0))
    assert 0.9 < shape.forward < 2 and shape.overhead > 0 and shape.latency > 0
    for v in paced.verified:
        (run,), plan = v.runs, v.plan
        assert run.bounds == plan.partition.bounds
        assert run.config == plan.deepspeed_config()
        assert run.job.schedule == plan.schedule and run.job.samples_per_step == 24
        assert v.step > plan.partition.step * 0.99, "no run is faster than its layers"
        assert run.timeline.source == "measured: paced"


def test_the_check_list_holds_its_lines_to_the_run(paced: Tuning) -> None:
    listed = paced.acceptance
    assert listed is not None
    assert listed["loss"].ok and listed["loss"].value < 1e-5
    best = next(v for v in paced.verified if v.plan is paced.best)
    assert listed["bubble"].value == best.runs[0].bubble
    assert listed["bubble"].ok == (best.runs[0].bubble < 0.15)
    apart = listed["stage times"].value
    assert apart == pytest.approx(paced.best.stage_spread(), abs=0.1)


@pytest.fixture(scope="module")
def computed() -> Tuning:
    """A small GPT on one rank."""
    return pplab.tune(
        GPT, 1, batch=8, micro_batch_sizes=(2, 8), verify=1, repeats=1, verify_steps=2, quiet=True
    )


def test_computed_layers_are_measured_at_several_sizes(computed: Tuning, clean: str) -> None:
    assert [profile.samples for profile in computed.profiles] == [2, 8]
    assert computed.source.startswith("measured: computed")
    assert computed.acceptance is not None and computed.acceptance["loss"].ok
    counted = computed.verified[0].runs[0].memory[0]
    (rank,) = computed.best.memory.ranks
    assert counted["activation_peak"] == pytest.approx(rank.activations, rel=0.02)
    assert counted["parameters"] == rank.states.parameters
    many = 64 * hardware().cores
    with pytest.raises(ValueError, match="compute in turns"):
        pplab.tune(computed.profiles, many, batch=8 * many, model=GPT, quiet=True)


def test_recomputation_is_measured_and_lets_a_plan_fit(computed: Tuning, clean: str) -> None:
    found = pplab.tune(
        computed.profiles, 1, batch=8, micro_batch_sizes=(8,), memory="2.2MB", model=GPT,
        quiet=True,
    )  # fmt: skip
    (plan,) = found.plans
    assert plan.what.recompute == 1 and len(found.left_out("memory")) == 1
    assert found.known.recompute is not None and found.known.recompute > 0
    run = plan.run(steps=2, quiet=True, keep=False)
    assert run.config["pipeline"]["activation_checkpoint_interval"] == 1
    kept = run.memory[0]["activation_peak"]
    assert kept < computed.verified[0].runs[0].memory[0]["activation_peak"] / 4


def test_the_command_prints_plans_and_writes_the_config(
    clean: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(
        "from pplab import models\nMODEL = models.paced(0.002, 0.004, layers=4)\n"
    )
    config, name = tmp_path / "ds.json", f"{tmp_path / 'model.py'}:MODEL"
    code = cli.main(["tune", name, "--ranks", "2", "--batch", "16", "--stages", "2", "--json",
                     "--config", str(config)])  # fmt: skip
    data = json.loads(capsys.readouterr().out)
    assert code == 0 and data["plans"] and data["probes"]
    assert json.loads(config.read_text()) == data["deepspeed_config"]
    assert cli.main(["check", str(config), "--ranks", "2", "--stages", "2"]) == 0
    assert cli.main(["tune", f"{name}S"]) == 2
    assert "defines no 'MODELS'" in capsys.readouterr().err
