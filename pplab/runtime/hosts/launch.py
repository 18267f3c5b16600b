"""Ranks on several machines, started by the stock `deepspeed` command.

The command goes through pdsh (ssh), OpenMPI or Slurm, as DeepSpeed offers them, and starts
``remote`` on every host, which connects back to this machine. The environment of the hosts must
hold pplab under the same path as here, which DeepSpeed asks of every script.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pplab.core.hostfile import Host
from pplab.runtime.hosts import remote
from pplab.runtime.hosts.hostfile import spread
from pplab.runtime.launch import Launch, free_port

#: What DeepSpeed's `--launcher` goes through -> (program it needs, where it comes from).
PROGRAMS = {
    "pdsh": ("pdsh", "apt-get install pdsh"),
    "openmpi": ("mpirun", "apt-get install openmpi-bin"),
    "slurm": ("srun", "Slurm's client programs"),
}
PATIENCE = 10  # seconds for a host to answer ssh


class HostsLaunch(Launch):
    """Ranks on the hosts of a job; see ``remote`` for their three connections."""

    def __init__(self, start: dict[str, Any], about: dict[str, Any], scratch: Path) -> None:
        super().__init__(start, about, scratch)
        os.environ.update(start["environment"])
        given = [Host(*host) for host in self.job["hosts"]]
        self.hosts = list(spread(given, self.place["world"]))
        self.directory = start["directory"]
        self.token = secrets.token_hex(16)
        names = [host.name for host in self.hosts for _ in range(host.slots)]
        self.address = own_address(self.hosts[-1].name)
        self.master = (master_address(self.hosts, self.address), self.job["port"] or free_port())
        self.place |= {"hosts": names, "through": self.job["through"], "master": self.master}

    def start(self, world: int) -> Iterator[tuple[str, int | socket.socket]]:
        """Start all ranks; yields the listener first, then the command's own output."""
        through = self.job["through"]
        program, source = PROGRAMS[through]
        if shutil.which(program) is None:
            raise OSError(f"`{program}` is not on the PATH of this machine: {source}")
        if through == "pdsh":
            check_reachable(self.hosts)
        listener = socket.create_server((self.address, 0), backlog=3 * world)
        yield "listen", listener
        master, port = self.master
        file = self.scratch / f"hosts-{os.getpid()}"
        file.write_text("".join(f"{host.name} slots={host.slots}\n" for host in self.hosts))
        command = [
            str(Path(sys.executable).parent / "deepspeed"),
            "--hostfile", str(file), "--force_multi", "--launcher", through, "--no_ssh_check",
            "--master_addr", master, "--master_port", str(port), "--no_local_rank",
        ]  # fmt: skip
        if self.job["launcher_args"]:
            command.append(f"--launcher_args={self.job['launcher_args']}")
        where = f"{self.address}:{listener.getsockname()[1]}"
        command += [str(Path(remote.__file__)), where, self.token]
        environment = self.environment()
        if through == "openmpi" and os.geteuid() == 0:  # as in a container; mpirun asks twice
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        directory = self.directory if os.path.isdir(self.directory) else None
        yield "deepspeed", self.spawn(command, environment, directory)


def ssh_arguments() -> list[str]:
    """What pdsh is told to give to ssh ($PDSH_SSH_ARGS_APPEND), so that checks go the same way."""
    return shlex.split(os.environ.get("PDSH_SSH_ARGS_APPEND", ""))


def check_reachable(hosts: list[Host]) -> None:
    """Raises OSError, with ssh's own words, when a host asks for a password or does not answer."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={PATIENCE}", *ssh_arguments()]
    asked = {
        host.name: subprocess.Popen(
            ["ssh", *options, host.name, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in hosts
    }
    for name, process in asked.items():
        try:
            said = process.communicate(timeout=PATIENCE + 5)[1].strip().splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            said = [f"no answer within {PATIENCE} s"]
        if process.returncode:
            reason = said[-1] if said else f"ssh ended with {process.returncode}"
            raise OSError(
                f"host {name} cannot be reached by ssh without a password: {reason} "
                f"(try `ssh {name} true`; `ssh-copy-id {name}` installs your key)"
            )


def own_address(towards: str) -> str:
    """This machine's address as `towards` sees it. Raises OSError for a name that is unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((towards, 9))  # sends nothing: only asks for the route
            return str(sock.getsockname()[0])
    except socket.gaierror as error:
        raise OSError(f"host {towards} has no address here: {error.strerror}") from error


def master_address(hosts: list[Host], own: str) -> str:
    """The address under which all ranks find rank 0, which is on the first host."""
    try:
        address = socket.gethostbyname(hosts[0].name)
    except socket.gaierror as error:
        raise OSError(f"host {hosts[0].name} has no address here: {error.strerror}") from error
    # Debian gives a machine's own name the address 127.0.1.1: nobody else finds it there
    return own if address.startswith("127.") else address
