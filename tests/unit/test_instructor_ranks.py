"""Ranks of a learner are counted where PPLAB_MAX_RANKS says so, over all notebooks of theirs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pplab
from pplab.runtime import allowance, client
from pplab.runtime.allowance import TooManyRanks, allowed, held


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PPLAB_MAX_RANKS", "4")
    return tmp_path


def test_without_a_cap_nothing_is_counted(home, monkeypatch):
    monkeypatch.delenv("PPLAB_MAX_RANKS")
    with held(1000):
        assert allowed() is None
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("text", ["0", "-1", "many", "2.5"])
def test_nonsense_is_refused(monkeypatch, text):
    monkeypatch.setenv("PPLAB_MAX_RANKS", text)
    with pytest.raises(ValueError, match="is a number of ranks, at least 1"):
        allowed()


def test_what_is_held_is_free_again_afterwards():
    for _ in range(3):
        with held(4):
            pass
    with pytest.raises(KeyError), held(4):
        raise KeyError
    with held(3), held(1), pytest.raises(TooManyRanks, match="4 of yours are running"), held(1):
        pass
    with held(4):
        pass


def test_a_refused_run_holds_nothing():
    with held(2):
        with pytest.raises(TooManyRanks, match="2 of yours are running in other"), held(3):
            pass
        with held(2):
            pass


def test_ranks_of_another_process_count_until_it_ends():
    code = ("import sys\nfrom pplab.runtime.allowance import held\n"
            "with held(3):\n    print('held', flush=True)\n    sys.stdin.read()")  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TooManyRanks, match="3 of yours"), held(2):
            pass
        other.kill()  # no chance to tidy up
    with held(4):
        pass


def test_a_run_beyond_the_cap_starts_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PPLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(client, "warm", lambda: pytest.fail("a process server was started"))
    plan = pplab.schedules.one_f_one_b(stages=5, micro_batches=4)
    with pytest.raises(TooManyRanks, match="this run needs 5 ranks, and each learner may run 4"):
        pplab.run(plan, pplab.models.paced(0.001, 0.001), quiet=True)
    assert not (tmp_path / "runs").exists()
    with held(1), pytest.raises(TooManyRanks, match="1 of yours"):
        pplab.run(pplab.schedules.one_f_one_b(4, 4), pplab.models.paced(0.001, 0.001), quiet=True,
                  keep=False)  # fmt: skip


def test_the_sentence_names_the_variable():
    with pytest.raises(TooManyRanks, match=r"\(PPLAB_MAX_RANKS=4\)"):
        allowance.check(5)
    allowance.check(4)
