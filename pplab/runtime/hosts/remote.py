"""A rank on any machine: how it finds its way back to the supervisor, which started it from afar.

Run as a program by whatever the `deepspeed` command goes through (pdsh, mpirun, srun), with the
supervisor's address and the run's token as arguments. Three TCP connections, each opened with the
token: events (as with a forked rank), output (the rank's stdout and stderr are that socket), and
status (what the rank does, five times a second, since no memory is shared). When the last one
closes, the supervisor is gone and the rank ends: nothing stays behind on another machine.

The token keeps strangers from posing as a rank. What travels is neither encrypted nor more secret
than torch.distributed's own messages: use a network you would train on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from importlib import metadata
from typing import Any

from pplab.runtime import wire
from pplab.runtime.hosts.hostfile import CORNER
from pplab.runtime.status import SLOT, Board

BEAT = 0.2  # seconds between two looks at the status
#: Where launchers write the number of a rank, of all ranks, and of the ranks on this machine.
NUMBERS = {
    "RANK": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
}


def numbers() -> dict[str, int]:
    """Rank, world size and local rank, from whichever launcher started this process."""
    found = {}
    for name, places in NUMBERS.items():
        values = [os.environ[place] for place in places if place in os.environ]
        if not values:
            raise SystemExit(f"no launcher set ${name}: is this started by hand?")
        found[name] = int(values[0])
    os.environ.update({name: str(value) for name, value in found.items()})
    return found


def connect(address: str, token: str, channel: str, **about: object) -> socket.socket:
    """A connection to the supervisor, introduced."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.send(connection, {"event": "here", "token": token, "channel": channel, **about})
    return connection


def versions() -> dict[str, str]:
    """What is installed on this machine, without importing it."""
    found = {}
    for name in ("torch", "deepspeed", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def interface_of(address: str) -> str:
    """The name of this machine's network interface with an address; "" if there is none."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == address for found in addresses):
            return name
    return ""


def report_status(connection: socket.socket, board: Board) -> None:
    """Tell the supervisor what this rank does; end the process when nobody listens."""
    sent = b""
    connection.settimeout(BEAT)
    while True:
        try:
            if not connection.recv(1):
                break
        except TimeoutError:
            pass
        except OSError:
            break
        now = bytes(board.memory[:SLOT])
        if now != sent:
            try:
                connection.sendall(now)
            except OSError:
                break
            sent = now
    time.sleep(0.1)  # an error of this rank's own goes first
    os._exit(1)


def start(address: str, token: str) -> int:
    """The life of a rank; returns its exit code."""
    about = numbers()
    rank = about["RANK"]
    who = {"rank": rank, "host": socket.gethostname()}
    events = connect(address, token, "events", **who, versions=versions())
    output = connect(address, token, "output", **who)
    board = Board(1)
    status = connect(address, token, "status", **who)
    threading.Thread(target=report_status, args=(status, board), daemon=True).start()
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    # gloo and NCCL would otherwise guess an interface, often loopback, and wait for minutes
    interface = interface_of(events.getsockname()[0])
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)

    from pplab.runtime import rank as ranks

    return ranks.main(events, {"rank": rank, "local_rank": about["LOCAL_RANK"]}, board.slot(0))


def through_store(where: list[str]) -> list[str]:
    """Under torchrun: rank 0 was told where the supervisor is, and tells the others."""
    if CORNER not in os.environ:
        return where
    if where:
        agents_store().set("supervisor", " ".join(where))
        return where
    return str(agents_store().get("supervisor").decode()).split(" ")


def agents_store() -> Any:
    """The corner of torchrun's store that belongs to this run."""
    import torch.distributed as dist

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.PrefixStore(os.environ[CORNER], dist.TCPStore(host, port, is_master=False))


if __name__ == "__main__":
    # Started as a file, so that every launcher can do it: its folder is no place to import from
    here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]
    code = start(*through_store(sys.argv[1:3]))
    sys.stdout.flush()
    os._exit(code)
