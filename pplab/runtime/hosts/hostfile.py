"""Which machines a run uses, and how many ranks each gets.

Ranks fill the hosts in the order of the host file, as DeepSpeed numbers them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pplab.core.hostfile import Host, host_lines

#: What torchrun tells each of its processes.
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: Where in torchrun's store the ranks of a run meet.
CORNER = "PPLAB_CORNER"


def read_hosts(given: str | os.PathLike[str] | Sequence[tuple[str, int]]) -> tuple[Host, ...]:
    """Hosts from a host file, or from pairs (name, slots).

    Raises ValueError, with the line, for what DeepSpeed would refuse (a host named twice, a line
    that is none) and for what it would not say clearly (no slots, an empty file).
    """
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        if not path.is_file():
            raise ValueError(
                f"there is no host file {path}; DeepSpeed would go on without it, on this machine "
                "alone"
            )
        hosts = _parsed(path.read_text(), path)
    else:
        hosts = [Host(str(name), int(slots)) for name, slots in given]
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            raise ValueError(f"host {host.name} is named twice: add up its slots in one line")
        if host.slots < 1:
            raise ValueError(f"host {host.name} has {host.slots} slots: leave it out instead")
        seen.add(host.name)
    if not hosts:
        raise ValueError("the host file names no host")
    return tuple(hosts)


def started_us() -> bool:
    """True in a process that torchrun started (see ``torchrun``)."""
    return "TORCHELASTIC_RUN_ID" in os.environ and all(name in os.environ for name in TORCHRUN)


def launcher_environment() -> dict[str, str]:
    """What launchers read from the environment of this process, which the process server, started
    earlier, may not have."""
    if started_us():
        from pplab.runtime.hosts.torchrun import environment

        return environment()
    prefixes = ("PDSH_", "OMPI_", "SLURM_", "NCCL_", "GLOO_", "SSH_", "DS_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def on_hosts(
    hostfile: str | os.PathLike[str] | Sequence[tuple[str, int]] | None, slurm: bool
) -> dict[str, Any]:
    """The settings of a job that runs on the hosts of a file, or of a Slurm allocation."""
    if slurm and hostfile is not None:
        raise ValueError("hostfile and slurm both name the hosts: give one of them")
    if slurm:
        return {"hosts": slurm_hosts(), "launcher": "deepspeed", "through": "slurm"}
    assert hostfile is not None
    return {"hosts": read_hosts(hostfile), "launcher": "deepspeed"}


def _parsed(text: str, path: Path) -> list[Host]:
    hosts = []
    for number, line, host in host_lines(text):
        if host is None:
            raise ValueError(f"{path}, line {number}: expected 'HOST slots=N', found {line!r}")
        hosts.append(host)
    return hosts


def spread(hosts: Sequence[Host], world: int) -> tuple[Host, ...]:
    """The hosts with as many slots as they get ranks, the first ones full.

    Raises ValueError when there are too few slots.
    """
    free = sum(host.slots for host in hosts)
    if free < world:
        names = ", ".join(f"{host.name} {host.slots}" for host in hosts)
        raise ValueError(f"{world} ranks need {world} slots, and the hosts have {free} ({names})")
    given, left = [], world
    for host in hosts:
        if left:
            given.append(Host(host.name, min(left, host.slots)))
            left -= given[-1].slots
    return tuple(given)


def slurm_hosts() -> tuple[Host, ...]:
    """The hosts of the Slurm allocation this process runs in.

    From $SLURM_JOB_NODELIST (expanded by ``scontrol``) and $SLURM_TASKS_PER_NODE ("4(x2),3").
    Raises ValueError outside an allocation.
    """
    nodes, tasks = os.environ.get("SLURM_JOB_NODELIST"), os.environ.get("SLURM_TASKS_PER_NODE")
    if not nodes or not tasks:
        raise ValueError(
            "this is no Slurm allocation ($SLURM_JOB_NODELIST is not set): start JupyterLab or "
            "your script inside `salloc` or `sbatch`, or give a hostfile"
        )
    if shutil.which("scontrol") is None:
        raise ValueError("Slurm's `scontrol` is not on the PATH, so the nodes have no names")
    done = subprocess.run(
        ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False
    )
    names = done.stdout.split()
    if done.returncode or not names:
        raise ValueError(f"scontrol does not know the nodes {nodes}: {done.stderr.strip()}")
    counts: list[int] = []
    for part in tasks.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ValueError(f"$SLURM_TASKS_PER_NODE is {tasks!r}, which is not understood")
        counts += [int(match[1])] * int(match[2] or 1)
    if len(counts) != len(names):
        raise ValueError(f"Slurm names {len(names)} nodes and gives tasks for {len(counts)}")
    return read_hosts(list(zip(names, counts, strict=True)))
