"""Probing and verifying with runs that are simulated: what a run would have measured is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pplab
from pplab import Tuning, models
from pplab.advise.tune import accept as accepting
from pplab.advise.tune import ask, probes
from pplab.advise.tune import verify as verifying
from pplab.advise.tune.accept import bubble_line, losses_apart, stage_line, unpaced
from pplab.advise.tune.plan import Plan
from pplab.advise.tune.verify import Verified, fastest, verdict
from pplab.runtime.failure import RunError
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from tests.unit.sweeps import costs_of, fake_run

LAYERS = 8


def by_size(samples: int) -> models.Model:
    """Paced layers that on 4 stages take what ``costs_of`` says, two layers a stage."""
    seconds = (0.001 + 0.001 * samples) / 2
    return models.paced(seconds, 2 * seconds, layers=LAYERS)


def slow(factor: float) -> Callable[[Job], Run]:
    return lambda job: fake_run(job, slower=factor)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Probes and plans "run": as long as ``costs_of`` says for 4 stages; returns their jobs."""
    jobs: list[Job] = []

    def run_job(job: Job, **_: Any) -> Run:
        jobs.append(job)
        return fake_run(job)

    def run(self: Plan, model: Any = None, **_: Any) -> Run:
        return run_job(self.job())

    monkeypatch.setattr(probes, "run_job", run_job)
    monkeypatch.setattr(Plan, "run", run)
    monkeypatch.setattr(pplab, "run", lambda **options: fake_run_plain(options), raising=False)
    return jobs


def fake_run_plain(options: dict[str, Any]) -> Run:
    plan = pplab.schedules.gpipe(1, options["micro_batches"])
    job = Job(options["model"], 1, options["micro_batches"], plan)
    return replace(fake_run(job), losses=[2.0, 1.5])


def tuned(**options: Any) -> Tuning:
    options = {"batch": 32, "stages": (4,), "schedules": ("1f1b", "gpipe"), **options}
    return pplab.tune(by_size, 4, quiet=True, **options)


def test_runs_made_of_the_same_costs_are_predicted_exactly(ran: list[Job]) -> None:
    found = tuned(verify=3, repeats=2)
    assert found.error < 1e-9 and found.first_is_best
    shape = found.known.of((4, 1, 1, 0))
    one = costs_of(ran[0])
    assert shape.forward == pytest.approx(1) and shape.backward == pytest.approx(1)
    assert shape.latency == pytest.approx(one.latency) and shape.ends == pytest.approx(one.update)
    assert shape.stretch == pytest.approx(1)
    for v in found.verified:
        assert v.bubble == pytest.approx(v.plan.bubble, abs=1e-9) and v.noise == 0
    assert found.best is found.first and "The first choice is the measured best" in str(found)


def test_slower_ranks_are_seen_by_the_probe(
    ran: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "run_job", lambda job, **_: fake_run(job, slower=1.5))
    monkeypatch.setattr(Plan, "run", lambda self, *_, **__: fake_run(self.job(), slower=1.5))
    found = tuned(verify=2, repeats=1)
    assert found.known.of((4, 1, 1, 0)).forward == pytest.approx(1.5)
    assert found.error < 1e-9


def test_probes_are_few_short_and_none_of_the_plans(ran: list[Job]) -> None:
    found = pplab.tune(by_size, 4, batch=32, quiet=True)
    shapes = {(job.stages, job.replicas, job.zero) for job in ran}
    assert shapes == {(4, 1, 0), (2, 2, 0), (2, 2, 1), (1, 4, 0), (1, 4, 1)}
    assert len(ran) == probes.TURNS * len(shapes) == probes.TURNS * len(found.known.probes)
    assert all(job.steps == probes.STEPS for job in ran)
    assert all(job.schedule is not None and job.schedule.name == "1F1B" for job in ran)
    assert "5 short runs" in " ".join(found.notes)


def test_verified_plans_take_turns(ran: list[Job]) -> None:
    found = tuned(verify=3, repeats=2)
    turns = [job.micro_batches for job in ran[-6:]]
    assert turns[:3] == turns[3:] == [plan.what.micro_batches for plan in found.plans[:3]]


def test_a_probe_that_fails_costs_its_shape_only(
    ran: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_job(job: Job, **_: Any) -> Run:
        if job.stages == 2:
            raise RunError("rank 1 died: out of memory\nmore")
        return fake_run(job)

    monkeypatch.setattr(probes, "run_job", run_job)
    found = pplab.tune(by_size, 4, batch=32, quiet=True)
    assert {plan.what.stages for plan in found.plans} <= {1, 4}
    out = [one for one in found.left_out("refused") if one.what.stages == 2]
    assert out and all(one.why.endswith("rank 1 died: out of memory") for one in out)

    def all_fail(job: Job, **_: Any) -> Run:
        raise RunError("no room")

    monkeypatch.setattr(probes, "run_job", all_fail)
    with pytest.raises(RunError, match="no room"):
        tuned()


def test_a_plan_that_fails_is_told_and_another_is_best(
    ran: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[Any] = []

    def run(self: Plan, model: Any = None, **_: Any) -> Run:
        first.append(self.what)
        if self.what == first[0]:
            raise RunError("rank 0 was killed")
        return fake_run(self.job())

    monkeypatch.setattr(Plan, "run", run)
    found = tuned(verify=2, repeats=2)
    assert found.verified[0].problem == "rank 0 was killed" and found.first_is_best is None
    assert found.best is found[1] and "1. failed: rank 0 was killed" in str(found)
    assert len([what for what in first if what == first[0]]) == 1, "not tried again"


def test_a_tie_within_noise_is_called_one() -> None:
    plans = [replace(plan) for plan in _plans()]

    def says(*steps: tuple[float, ...]) -> str:
        found = [Verified(p, s, s) for p, s in zip(plans, steps, strict=False)]
        return verdict(found)

    assert "measured best: the next one takes 10.0% longer" in says((1.0, 1.01), (1.1, 1.11))
    assert "a tie" in says((1.02, 1.05), (1.0, 1.01))
    assert "Plan 2 is the measured best: 10.0% faster" in says((1.1, 1.11), (1.0, 1.01))
    assert "Plan 2 is the measured best" in says((1.02,), (1.0,)), "one run each: no noise known"
    assert "Only the first choice" in says((1.0,))
    assert "could not be run" in says((), (1.0,))
    assert fastest([Verified(plans[0], ())]) is None


def _plans() -> tuple[Plan, ...]:
    return pplab.tune(by_size, 4, batch=32, probe=False, quiet=True).plans[:3]


def test_the_result_reads_as_text_html_and_json(ran: list[Job], tmp_path: Path) -> None:
    found = tuned(verify=2, repeats=1)
    text = str(found)
    assert all(line.startswith("[measured]") for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 130
    html = found._repr_mimebundle_()["text/html"]
    assert html.count("<table>") == 2 and "measured" in html and found.first.reason[:20] in html
    data = json.loads(found.save(tmp_path / "tuning.json").read_text())
    assert data["plans"][0]["step"] == found.first.step and len(data["verified"]) == 2
    assert data["deepspeed_config"] == found.best.deepspeed_config()
    assert len(data["plans"]) + len(data["out"]) == data["looked"]
    assert data["run"].startswith("pplab.run(pplab.schedules.")
    unrun = pplab.tune(by_size, 4, batch=32, probe=False, quiet=True)
    assert str(unrun).startswith("[simulated]") and unrun.acceptance is None
    assert "Left out of the predicted steps: messages" in str(unrun)


def test_the_call_of_a_plan_can_be_typed(ran: list[Job]) -> None:
    for plan in pplab.tune(by_size, 4, batch=32, probe=False, quiet=True).plans:
        said: dict[str, Any] = {}

        def run(schedule: Any, model: Any, said: dict[str, Any] = said, **options: Any) -> None:
            said.update(options, schedule=schedule)

        eval(plan.call(), {"pplab": _Named(run), "model": None})
        assert said.pop("schedule") == plan.schedule
        assert said.pop("partition") == list(plan.partition.bounds)
        assert said == plan.job_settings


class _Named:
    """Stands for the package in a call that is typed."""

    def __init__(self, run: Any) -> None:
        self.run, self.schedules = run, pplab.schedules


# -- the check-list -------------------------------------------------------------------------------


def test_lines_pass_and_fail_with_their_numbers() -> None:
    import numpy as np

    assert bubble_line(0.149).ok and not bubble_line(0.15).ok
    assert bubble_line(0.2).mark == "FAIL" and "20.0%" in bubble_line(0.2).measured
    assert stage_line(np.array([1.0, 0.9])).ok and not stage_line(np.array([1.0, 0.89])).ok
    assert stage_line(np.array([1.0, 0.5])).value == pytest.approx(0.5)
    assert stage_line(np.array([1.0])).ok
    assert losses_apart([2.0, 1.0], [2.0, 1.0 + 1e-6]) == pytest.approx(1e-6, rel=1e-3)
    assert losses_apart([2.0], [2.0, 1.0]) == float("inf") == losses_apart([], [])


def test_acceptance_needs_every_line(ran: list[Job]) -> None:
    found = tuned(verify=1, repeats=1)
    listed = found.acceptance
    assert listed is not None and listed["loss"].ok and listed["stage times"].ok
    assert listed.ok == bool(listed["bubble"].ok)
    assert listed.as_json()["lines"][0]["name"] == "bubble"
    assert "FAIL" in str(listed) or listed.ok
    with pytest.raises(KeyError, match="the lines are bubble"):
        listed["speed"]


def test_what_cannot_be_tested_is_not_passed(
    ran: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run(Job(models.gpt(dropout=0.1), 2, 4, pplab.schedules.one_f_one_b(2, 4)))
    listed = accepting(run)
    assert listed["loss"].ok is None and listed["loss"].mark == "not tested" and not listed.ok

    def fails(**_: Any) -> Run:
        raise RunError("no")

    monkeypatch.setattr(pplab, "run", fails, raising=False)
    run = fake_run(Job(models.paced(), 2, 4, pplab.schedules.one_f_one_b(2, 4)))
    assert "the plain run failed: no" in accepting(run)["loss"].measured
    assert unpaced(models.paced(0.1, 0.2, width=32), 4).settings == {
        "forward": 0, "backward": 0, "layers": 4, "width": 32,
    }  # fmt: skip


def test_the_wish_to_verify_or_probe_is_kept(ran: list[Job]) -> None:
    before = pplab.tune(by_size, 4, batch=32, probe=False, quiet=True)
    assert not ran and not before.verified
    after = before.verify(2, repeats=1)
    assert len(ran) == 2 and len(after.verified) == 2 and not before.verified
    again = pplab.tune(after.profiles, 4, batch=8, micro_batch_sizes=(1,), model=by_size,
                       probe=False, weight_share=0.5, quiet=True)  # fmt: skip
    assert again.first.run() is not None, "the model comes with the plan"
    assert verifying.STEPS >= 2 and ask.TOP >= 3
