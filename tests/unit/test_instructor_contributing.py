"""CONTRIBUTING.md is true: its recipes run, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

import pplab.advise.check as checker
from pplab.core.schedules import SCHEDULES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: Names of things that a reader is to make, not to find.
TO_BE_MADE = ("NAME", "NN_", "lab_N")


def recipe(heading: str) -> dict:
    """Execute the Python block of a section; its names."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)[1]
    block = re.search(r"```python\n(.*?)```", section, re.S)[1]
    names: dict = {}
    exec(compile(dedent(re.sub(r"^   ", "", block, flags=re.M)), "CONTRIBUTING.md", "exec"), names)
    return names


@pytest.mark.parametrize("stages, micro_batches", [(1, 1), (2, 3), (4, 8), (4, 9)])
def test_the_schedule_is_valid_and_simulates(stages, micro_batches):
    waves = recipe("A schedule")["waves"]
    plan = waves(stages=stages, micro_batches=micro_batches)
    plan.check()
    assert plan.name == "GPipe in waves"
    timeline = plan.simulate(forward=1, backward=2)
    assert max(timeline.measures.peak_in_flight()) == min(stages, micro_batches)
    assert timeline.measures.busy.tolist() == [3 * micro_batches] * stages


def test_a_schedule_in_the_table_is_found_by_name(monkeypatch):
    waves = recipe("A schedule")["waves"]
    monkeypatch.setitem(SCHEDULES, "waves", waves)
    from pplab.view import compare_schedules

    assert "GPipe in waves" in str(compare_schedules(["1f1b", "waves"], stages=2, micro_batches=4))


def test_the_rule_finds_its_case_and_leaves_others_alone(monkeypatch):
    rule = recipe("A check rule")["large_rate"]
    monkeypatch.setattr(checker, "RULES", (*checker.RULES, rule))

    def found(rate):
        optimizer = {"type": "Adam", "params": {"lr": rate}}
        config = {"train_batch_size": 8, "gradient_accumulation_steps": 8, "optimizer": optimizer}
        report = checker.check(config, ranks=1, stages=1)
        return [f for f in report.findings if f.rule == "large-rate"]

    (finding,) = found(1e4)
    assert finding.key == "optimizer.params.lr" and "10000" in finding.message
    assert found(1e-4) == [] and found("auto") == [] and found(None) == []


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`([\w./-]+/[\w./-]+\.\w+)`", TEXT))
    named = {name for name in named if not any(part in name for part in TO_BE_MADE)}
    named -= {"runtime/pipe/engine.py"}  # DeepSpeed's
    assert len(named) >= 12
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_name_that_is_to_be_edited_is_there():
    for name, file in (
        ("SCHEDULES", "pplab/core/schedules/__init__.py"),
        ("RULES", "pplab/advise/check/rules/launch.py"),
        ("CHAPTERS", "pplab/teach/quizzes/__init__.py"),
        ("LABS", "pplab/teach/lab.py"),
        ("MISCONCEPTIONS", "pplab/teach/misconceptions.py"),
        ("GIVEN_AWAY", "tests/unit/test_teach_misconceptions.py"),
    ):
        assert re.search(rf"^{name}\b", (ROOT / file).read_text(), re.M), (name, file)


def test_every_make_target_that_is_named_is_there():
    makefile = (ROOT / "Makefile").read_text()
    texts = TEXT + (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8")
    for target in set(re.findall(r"`(?:\w+='?[^`']*'? )?make ([a-z-]+)", texts)):
        assert re.search(rf"^{target}:", makefile, re.M), target
