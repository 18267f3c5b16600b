"""Which hosts a run gets, and what is refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pplab
from pplab.runtime.hosts import Host, read_hosts, slurm_hosts, spread
from pplab.runtime.hosts.clocks import Reading, aligned
from pplab.runtime.hosts.launch import master_address
from pplab.runtime.status import SLOT, Board


def test_the_file_is_deepspeeds(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two machines\n\nworker-0 slots=4\nworker-1   slots=2  # half of it\n")
    assert read_hosts(file) == (Host("worker-0", 4), Host("worker-1", 2))
    assert read_hosts(str(file)) == read_hosts([("worker-0", 4), ("worker-1", 2)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker-0\n", "line 1: expected 'HOST slots=N'"),
        ("a slots=2\nb slots=two\n", "line 2"),
        ("a slots=2\na slots=2\n", "named twice"),
        ("a slots=0\n", "0 slots"),
        ("# nobody\n", "names no host"),
    ],
)
def test_what_is_no_host_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_hosts(file)


def test_a_missing_file_is_not_taken_for_one_machine() -> None:
    with pytest.raises(ValueError, match="there is no host file"):
        read_hosts("/nowhere/hosts")


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 48))
def test_ranks_fill_the_hosts_in_order(slots: list[int], world: int) -> None:
    hosts = [Host(f"h{i}", count) for i, count in enumerate(slots)]
    if world > sum(slots):
        with pytest.raises(ValueError, match="slots"):
            spread(hosts, world)
        return
    given = spread(hosts, world)
    assert sum(host.slots for host in given) == world
    assert all(a == b for a, b in zip(given[:-1], hosts, strict=False))
    assert 0 < given[-1].slots <= hosts[len(given) - 1].slots


def test_a_slurm_allocation_names_its_nodes(tmp_path: Path, monkeypatch) -> None:
    fake = tmp_path / "scontrol"
    fake.write_text('#!/bin/sh\n[ "$3" = "n[1-3]" ] && printf "n1\\nn2\\nn3\\n"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "4(x2),2")
    assert slurm_hosts() == (Host("n1", 4), Host("n2", 4), Host("n3", 2))
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "4(x2)")
    with pytest.raises(ValueError, match="3 nodes and gives tasks for 2"):
        slurm_hosts()


def test_slurm_outside_an_allocation_says_what_to_do(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    plan = pplab.schedules.one_f_one_b(stages=2, micro_batches=2)
    with pytest.raises(ValueError, match="salloc"):
        pplab.run(plan, slurm=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hostfile": [("a", 1)]}, "2 ranks need 2 slots, and the hosts have 1"),
        ({"hostfile": [("a", 2)], "slurm": True}, "give one of them"),
        ({"hostfile": [("a", 2)], "launcher": "local"}, "only launcher='deepspeed'"),
        ({"hostfile": [("a", 2)], "through": "carrier pigeon"}, "through is one of"),
    ],
)
def test_a_run_on_hosts_is_checked_first(settings, says) -> None:
    plan = pplab.schedules.one_f_one_b(stages=2, micro_batches=2)
    with pytest.raises(ValueError, match=says):
        pplab.run(plan, **settings)


def test_a_master_that_is_loopback_is_replaced_where_others_must_find_it() -> None:
    assert master_address([Host("localhost", 2)], "10.0.0.7") == "10.0.0.7"
    with pytest.raises(OSError, match="has no address here"):
        master_address([Host("no-such-host.invalid", 2)], "10.0.0.7")


# -- clocks ---------------------------------------------------------------------------------------


@given(
    st.integers(-(10**15), 10**15),
    st.integers(-(10**6), 10**6),
    st.lists(st.integers(0, 10**10), min_size=1, max_size=20),
)
def test_a_clock_that_is_wrong_and_drifts_is_put_right(ahead, drift, moments) -> None:
    """A clock ahead by `ahead` at true time 0 and by `ahead + drift` ten seconds later."""
    end = 10**10
    true = np.array(moments)
    own = true + ahead + np.rint(true / end * drift).astype(int)
    spans = np.stack([np.zeros_like(own), own], axis=1)
    readings = [Reading(ahead, ahead, 0), Reading(end + ahead + drift, ahead + drift, 0)]
    found = aligned(spans, [1], readings)
    assert np.abs(found[:, 1] - true).max() <= 2 + abs(drift) // 10**4
    assert (found[:, 0] == 0).all() and (spans[:, 1] == own).all()


def test_the_status_of_a_distant_rank_lands_on_the_board() -> None:
    there, here = Board(1), Board(3)
    there.slot(0).say("runs F3")
    record = bytes(there.memory[:SLOT])
    here.take(2, record[:50])
    assert here.read(2).changes == 0
    here.take(2, record + record)
    assert (here.read(2).text, here.read(2).changes) == ("runs F3", 1)
    assert here.read(1).changes == 0
