"""A script with ``pplab.run`` in it, started by torchrun: ``torchrun --nproc-per-node 4 train.py``.

Then the processes are there already, one a rank, on as many machines as torchrun was told. Each
starts a child that is the rank (the model never runs in the caller's own process). The one of
rank 0 collects the run and gets the Run; the others wait for theirs to end and get None:

    run = pplab.run(plan, model)
    if run is not None:
        print(run)

How the children find rank 0's supervisor: through torchrun's own store, at $MASTER_PORT.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pplab.runtime.failure import RunError
from pplab.runtime.hosts import remote
from pplab.runtime.hosts.hostfile import CORNER, started_us
from pplab.runtime.hosts.hostfile import TORCHRUN as NAMES
from pplab.runtime.launch import Launch
from pplab.runtime.processes import die_with_parent

__all__ = ["TorchrunLaunch", "check_world", "environment", "follow", "started_us"]
#: What starts a rank; where the supervisor is comes behind it, or through torchrun's store.
RANK = [sys.executable, "-u", str(Path(remote.__file__))]
PATIENCE = 2.0  # seconds
_runs = 0


def environment() -> dict[str, str]:
    """torchrun's words for the child of this process, for the next run of this script.

    Every run needs its own corner of torchrun's store.
    """
    global _runs
    _runs += 1
    told = {name: value for name, value in os.environ.items() if name.startswith("TORCHELASTIC_")}
    told |= {name: os.environ[name] for name in NAMES}
    told[CORNER] = f"pplab-{told.get('TORCHELASTIC_RESTART_COUNT', 0)}-{_runs}"
    return told


def check_world(world: int) -> None:
    """Raises ValueError when torchrun started another number of processes than the job has."""
    started = int(os.environ["WORLD_SIZE"])
    if started != world:
        raise ValueError(
            f"torchrun started {started} processes and this run has {world} ranks: change "
            "--nproc-per-node (or --nnodes), or the stages, replicas and tensor parts"
        )


def follow() -> None:
    """In every process but that of rank 0: be a rank until it ends.

    Raises RunError when it fails; why, rank 0 says.
    """
    child = subprocess.Popen(
        RANK,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment()},
        preexec_fn=lambda: die_with_parent(15),
    )
    try:
        code = child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    if code:
        time.sleep(PATIENCE)  # torchrun ends all others as soon as one fails: rank 0 speaks first
        raise RunError(f"rank {os.environ['RANK']} ended with exit code {code}: see rank 0")


class TorchrunLaunch(Launch):
    """Rank 0's side: a place to come to for the children of all processes."""

    def __init__(self, start: dict[str, Any], about: dict[str, Any], scratch: Path) -> None:
        super().__init__(start, about, scratch)
        self.env = start["environment"]
        self.token = secrets.token_hex(16)
        self.address = socket.gethostbyname(self.env["MASTER_ADDR"])
        alone = self.env["LOCAL_WORLD_SIZE"] == self.env["WORLD_SIZE"]
        if self.address.startswith("127.") and not alone:
            raise OSError(
                f"$MASTER_ADDR is {self.env['MASTER_ADDR']}, this machine's own loopback, which "
                "the other machines cannot reach: give torchrun an address they know"
            )
        master = (self.env["MASTER_ADDR"], int(self.env["MASTER_PORT"]))
        self.place |= {"hosts": [], "master": master}

    def start(self, world: int) -> Iterator[tuple[str, int | socket.socket]]:
        """Listen, and start rank 0, which tells the others where."""
        listener = socket.create_server((self.address, 0), backlog=3 * world)
        yield "listen", listener
        where = (f"{self.address}:{listener.getsockname()[1]}", self.token)
        yield "torchrun", self.spawn([*RANK, *where], {**os.environ, **self.env})
