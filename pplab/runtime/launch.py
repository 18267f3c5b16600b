"""How the ranks come to life: forked from the warm server, or by the `deepspeed` command.

Both decide first where the ranks go (device, backend) and say why; nothing is chosen silently.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pplab.core.hostfile import Host
from pplab.runtime import nsys
from pplab.runtime.faults import Faults
from pplab.runtime.hosts.hostfile import spread
from pplab.runtime.hosts.network import ADDRESSES
from pplab.runtime.processes import die_with_parent
from pplab.runtime.rank import SOCKET_VARIABLE, start_forked
from pplab.runtime.status import SLOT, Board


def placement(job: dict[str, Any], about: dict[str, Any], crowd: int) -> dict[str, Any]:
    """Device and backend for a job, with the reason in words; crowd: ranks on one machine."""
    gpus, device = about["cuda_devices"], job["device"]
    if device == "cuda" and not gpus:
        raise OSError("device='cuda' was asked for, but torch sees no CUDA GPU here")
    if not gpus:
        why = ": torch sees no CUDA GPU here"
    elif device == "cpu":
        why = ", as asked"
    else:
        why = no_gpu_for(job, crowd > gpus) if device == "auto" else ""
    if why:
        return {"device": "cpu", "backend": "gloo", "staged": False, "why": f"{ON_THE_CPU}{why}"}
    backend = job["backend"] or ("nccl" if gpus >= crowd else "gloo")
    if backend == "nccl" and gpus < crowd:
        raise OSError(f"NCCL needs a GPU per rank: {crowd} ranks, {gpus} GPUs")
    if backend == "nccl":
        return {
            "device": "cuda", "backend": "nccl", "staged": False, "why": "one GPU per rank, NCCL",
        }  # fmt: skip
    why = f"{crowd} ranks share {gpus} GPU(s): gloo, messages staged through CPU memory"
    return {"device": "cuda", "backend": "gloo", "staged": True, "why": why}


#: What the reason for a run on the CPU begins with.
ON_THE_CPU = "CPU and gloo"


def no_gpu_for(job: dict[str, Any], shared: bool) -> str:
    """Why a job that did not ask for a GPU leaves those there are alone; "" when it takes them."""
    if job["backend"] == "nccl":
        return ""
    if job["model"]["family"] == "paced":
        if shared:
            return ": paced layers sleep, which takes no GPU"
        late = Faults.of(job["faults"])
        if late is not None and any(late.links(1)):
            return ": planted late messages are sent by a thread of the CPU"
    if job["engine"] == "zero" and shared:
        return ": the ranks of ZeRO cannot share a GPU"
    return ""


def ranks_together(start: dict[str, Any]) -> int:
    """The most ranks on one machine: those that may have to share its GPUs."""
    job = start["job"]
    if job["launcher"] == "torchrun":
        return int(start["environment"]["LOCAL_WORLD_SIZE"])
    if not job["hosts"]:
        return ranks_of(job)
    hosts = spread([Host(*host) for host in job["hosts"]], ranks_of(job))
    here = [host.slots for host in hosts if host.name in ADDRESSES]  # namespaces of this machine
    return max(sum(here), *(host.slots for host in hosts))


def ranks_of(job: dict[str, Any]) -> int:
    """How many processes a job asks for."""
    return int(job["stages"] * job["replicas"] * job.get("tensor", 1))


class Launch:
    """Ranks forked from this process, which has imported torch and DeepSpeed already."""

    #: What a rank on another machine must know to be one.
    token = ""

    def __init__(self, start: dict[str, Any], about: dict[str, Any], scratch: Path) -> None:
        job = start["job"]
        self.job, self.scratch = job, scratch
        world = ranks_of(job)
        self.place = {
            **placement(job, about, ranks_together(start)),
            "launcher": job["launcher"],
            "world": world,
            "records": start["records"],
        }
        self.forked: list[tuple[int, socket.socket, int]] = []
        self.pid = 0
        self.exit_code: int | None = None
        self.ended: float | None = None
        self.board = self.make_board(world)

    def writing(self) -> bool:
        """Whether nsys still writes its report, once all ranks have ended."""
        if not self.job["nsys"] or self.exit_code is not None:
            return False
        self.ended = self.ended or time.monotonic()
        return time.monotonic() < self.ended + nsys.PATIENCE

    def make_board(self, world: int) -> Board:
        """Memory in which the ranks say what they do; inherited by fork."""
        return Board(world)

    def start(self, world: int) -> Iterator[tuple[str, int | socket.socket]]:
        """Start all ranks; yields (name, readable end of its output) for each."""
        for number in range(world):
            mine, theirs = socket.socketpair()
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                mine.close()
                os.close(read)
                place = {"rank": number, "local_rank": number}
                start_forked(theirs, write, place, self.board.slot(number))
            theirs.close()
            os.close(write)
            self.forked.append((number, mine, pid))
            yield f"rank-{number}", read

    def environment(self) -> dict[str, str]:
        """What a command that starts ranks finds in its environment."""
        chosen = {"DS_ACCELERATOR": "cpu"} if self.place["device"] == "cpu" else {}
        return {**os.environ, **chosen}

    def spawn(
        self, command: list[str], environment: dict[str, str], directory: str | None = None
    ) -> int:
        """Start a command that starts ranks; returns the readable end of its output."""
        read, write = os.pipe()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=write,
            env=environment,
            cwd=directory,
            preexec_fn=lambda: die_with_parent(15),
        )
        os.close(write)
        self.pid = process.pid
        return read


class DeepSpeedLaunch(Launch):
    """Ranks started by the stock `deepspeed` command on this machine."""

    def make_board(self, world: int) -> Board:
        import mmap

        self.path = self.scratch / f"ranks-{os.getpid()}"
        board = Path(f"{self.path}.board")
        with open(board, "w+b") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, world * SLOT)  # a full disk shows here
            else:
                file.truncate(world * SLOT)
            return Board(world, mmap.mmap(file.fileno(), world * SLOT))

    def start(self, world: int) -> Iterator[tuple[str, int | socket.socket]]:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        os.chmod(self.path, 0o600)
        listener.listen(world)
        yield "listen", listener
        port = self.job["port"] or free_port()
        if not _is_free(port):
            raise OSError(f"port {port} is taken: choose another one, or leave the choice to pplab")
        command = [
            str(Path(sys.executable).parent / "deepspeed"),
            "--num_gpus", str(world), "--master_port", str(port), "--no_local_rank",
            "--module", "pplab.runtime.rank",
        ]  # fmt: skip
        environment = {**self.environment(), SOCKET_VARIABLE: str(self.path)}
        if self.job["nsys"]:
            nsys.check()
            command = nsys.wrapped(command, self.place["records"])
            environment[nsys.VARIABLE] = "1"
        yield "deepspeed", self.spawn(command, environment)


def launcher_for(start: dict[str, Any], about: dict[str, Any], scratch: Path) -> Launch:
    """The launcher a job asks for."""
    if start["job"]["hosts"]:
        from pplab.runtime.hosts.launch import HostsLaunch  # which builds on Launch

        return HostsLaunch(start, about, scratch)
    if start["job"]["launcher"] == "torchrun":
        from pplab.runtime.hosts.torchrun import TorchrunLaunch

        return TorchrunLaunch(start, about, scratch)
    kind = DeepSpeedLaunch if start["job"]["launcher"] == "deepspeed" else Launch
    return kind(start, about, scratch)


def free_port() -> int:
    """A port that nobody uses on this machine at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
