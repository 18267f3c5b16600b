"""Runs on two hosts: network namespaces, an ssh server in each, the stock `deepspeed` over pdsh."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import pplab
from pplab import models, schedules
from pplab.core.ops import CODE
from pplab.runtime.hosts.network import ADDRESSES, NotPermitted, TwoHosts, two_hosts
from tests.measuring import measured
from tests.runs.processes import none_left

AHEAD = 5000  # seconds by which the second host's clock is wrong
MODEL = models.gpt(layers=4, width=32, heads=2, context=16)


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    try:
        made = two_hosts(ahead=AHEAD)
        with made as hosts:
            yield hosts
    except NotPermitted as error:
        pytest.skip(str(error))


def remote_ranks() -> list[psutil.Process]:
    """Ranks that were started by ssh: their environment is that of the other host's login."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(part.endswith("hosts/remote.py") for part in process.cmdline()):
                found.append(process)
    return found


def nobody_left(patience: float = 5.0) -> bool:
    end = time.monotonic() + patience
    while remote_ranks() and time.monotonic() < end:
        time.sleep(0.1)
    return not remote_ranks()


def test_two_hosts_compute_what_one_does(hosts: TwoHosts, clean: str) -> None:
    plan = schedules.one_f_one_b(stages=4, micro_batches=4)
    settings = {"steps": 3, "quiet": True, "keep_parameters": True}
    one = pplab.run(plan, MODEL, **settings)
    two = pplab.run(plan, MODEL, hostfile=hosts.hostfile(2), **settings)
    assert two.losses == one.losses
    for name, value in one.parameters.items():
        np.testing.assert_array_equal(two.parameters[name], value)
    assert two.placement["hosts"] == [ADDRESSES[0]] * 2 + [ADDRESSES[1]] * 2
    assert two.timeline.source == "measured: computed, gloo on 2 hosts"
    assert {f"rank-{n}" for n in range(4)} | {"deepspeed"} == set(two.logs)
    error = two.placement["clock_error"]
    assert 0 < error < 0.05
    assert not too_early(two.timeline, 2 * error)  # although one clock is 5000 s ahead
    assert pplab.Run.load(two.directory).job.hosts == two.job.hosts
    assert nobody_left()


@measured
def test_a_slow_link_between_the_hosts_shows_in_the_timeline(hosts: TwoHosts, clean: str) -> None:
    """128 kB a message over a link of 20 Mbit/s: 40 ms, of a real network stack."""
    plan = schedules.one_f_one_b(stages=2, micro_batches=4)
    model = models.paced(forward=0.02, backward=0.04, width=512)
    settings = {"steps": 2, "quiet": True, "keep": False, "micro_batch_size": 64}
    fast = pplab.run(plan, model, hostfile=hosts.hostfile(1), **settings)
    hosts.limit("20mbit")
    try:
        slow = pplab.run(plan, model, hostfile=hosts.hostfile(1), **settings)
    finally:
        hosts.limit(None)
    bytes_each = 64 * 512 * 4
    seconds = (bytes_each - 32_000) * 8 / 20e6  # the bucket lets the first 32 kB through
    assert slow.costs.latency - fast.costs.latency == pytest.approx(seconds, rel=0.35)
    assert slow.step_time > fast.step_time + 2 * seconds
    assert slow.timeline.source == "measured: paced, 2 hosts"


def test_a_rank_killed_on_another_host_is_named_with_its_host(hosts: TwoHosts, clean: str) -> None:
    plan = schedules.one_f_one_b(stages=2, micro_batches=4)
    killed = threading.Event()

    def kill() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and not killed.is_set():
            ranks = [p for p in remote_ranks() if p.environ().get("RANK") == "1"]
            if ranks and time.time() - ranks[0].create_time() > 1:
                if seen.wait(60):
                    os.kill(ranks[0].pid, signal.SIGKILL)
                return
            time.sleep(0.1)

    seen = threading.Event()
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with pytest.raises(pplab.RunError) as caught:
            pplab.run(
                plan, models.paced(0.02, 0.04), hostfile=hosts.hostfile(1), steps=200, quiet=True,
                on_loss=lambda *_: seen.set(),
            )  # fmt: skip
    finally:
        killed.set()
        thread.join()
    assert f"rank 1 (on {ADDRESSES[1]}) is gone" in caught.value.cause
    assert nobody_left()
    assert not none_left(clean, besides=1)


def test_an_interrupt_ends_ranks_on_other_hosts(hosts: TwoHosts, clean: str) -> None:
    plan = schedules.one_f_one_b(stages=2, micro_batches=4)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pplab.run(
            plan, models.paced(0.02, 0.04), hostfile=hosts.hostfile(1), steps=200, quiet=True,
            on_loss=interrupt,
        )  # fmt: skip
    assert nobody_left()


def test_a_host_that_does_not_let_us_in_is_named(hosts: TwoHosts, clean: str) -> None:
    plan = schedules.one_f_one_b(stages=2, micro_batches=2)
    with pytest.raises(pplab.RunError, match=r"host 10\.77.13.254 cannot be reached by ssh"):
        pplab.run(plan, MODEL, hostfile=[("10.77.13.254", 2)], quiet=True)


def too_early(timeline: pplab.Timeline, error: float) -> list[tuple[int, int, int]]:
    """(step, rank, micro-batch) of each F that began before its input was made, and B likewise."""
    at = {
        (int(s), int(r), "FB"[int(k)], int(m)): (float(a), float(b))
        for s, r, k, m, a, b in zip(
            timeline.step, timeline.rank, timeline.kind, timeline.micro_batch,
            timeline.start, timeline.end, strict=True,
        )
        if int(k) in (CODE["F"], CODE["B"])
    }  # fmt: skip
    assert len(at) == 3 * 4 * 4 * 2
    before = {"F": -1, "B": 1}
    return [
        (step, rank, m)
        for (step, rank, kind, m), (start, _) in at.items()
        if (made := at.get((step, rank + before[kind], kind, m))) and start < made[1] - error
    ]


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_openmpi_starts_the_ranks(clean: str) -> None:
    """ "MPI" in DeepSpeed is a way to start processes; what they talk through is gloo (or NCCL)."""
    import shutil

    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing: apt-get install openmpi-bin")
    plan = schedules.one_f_one_b(stages=2, micro_batches=2)
    run = pplab.run(
        plan, MODEL, hostfile=[("localhost", 2)], through="openmpi", quiet=True,
        launcher_args="--oversubscribe",
    )  # fmt: skip
    assert run.losses == pplab.run(plan, MODEL, quiet=True).losses
    assert run.placement["backend"] == "gloo"
    assert nobody_left()


SRUN = """#!/bin/sh
# srun -n N --export=ALL,... python -u FILE ARGUMENTS: N tasks on this machine
n=$2; shift 3
i=0
while [ $i -lt $n ]; do
  SLURM_PROCID=$i SLURM_NTASKS=$n SLURM_LOCALID=$i "$@" &
  i=$((i + 1))
done
wait
"""


def test_slurm_starts_the_ranks(tmp_path: Path, monkeypatch, clean: str) -> None:
    """With a stand-in for srun: the command line is DeepSpeed's, the environment Slurm's."""
    program(tmp_path / "srun", SRUN)
    program(tmp_path / "sinfo", "#!/bin/sh\n")
    program(tmp_path / "scontrol", "#!/bin/sh\necho localhost\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "localhost")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2")
    pplab.cool()  # the process server keeps the PATH it was started with
    plan = schedules.one_f_one_b(stages=2, micro_batches=2)
    run = pplab.run(plan, MODEL, slurm=True, quiet=True)
    assert run.job.through == "slurm"
    pplab.cool()
    pplab.warm()
    assert run.losses == pplab.run(plan, MODEL, quiet=True).losses


SCRIPT = """
import pplab
from pplab import models, schedules

plan = schedules.one_f_one_b(stages=2, micro_batches=2)
model = models.gpt(layers=4, width=32, heads=2, context=16)
for _ in range(2):
    run = pplab.run(plan, model, steps=2, quiet=True)
    if run is not None:
        print("losses", *run.losses, flush=True)
try:
    pplab.run(schedules.one_f_one_b(stages=4, micro_batches=4), quiet=True)
except ValueError as error:
    print(error)
"""


def test_torchruns_processes_become_the_ranks(tmp_path: Path, clean: str) -> None:
    """Two runs after each other in one script, and a third that does not fit."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [Path(sys.executable).parent / "torchrun", "--nproc-per-node", "2", script],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("losses")]
    plan = schedules.one_f_one_b(stages=2, micro_batches=2)
    here = pplab.run(plan, MODEL, steps=2, quiet=True)
    assert [list(map(float, losses)) for losses in found] == [here.losses] * 2
    assert done.stdout.count("torchrun started 2 processes and this run has 4 ranks") == 2
    assert nobody_left()
    assert not none_left(clean, besides=1)
