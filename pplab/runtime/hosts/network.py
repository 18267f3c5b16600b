"""Two machines on one: network namespaces with a real network stack and a link of a chosen speed.

    this machine (10.77.13.254) --- bridge --- host 1 (10.77.13.1), host 2 (10.77.13.2)

Each "host" has its own interfaces, addresses and ssh server; processes, files and cores are those
of this machine. So what is learnt about messages between hosts is real, and what is learnt about
computing on them is not. Needs Linux, root (or CAP_NET_ADMIN) and an ssh server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NET = "10.77.13"
BRIDGE, HOSTS = "pplab0", ("pplab1", "pplab2")
ADDRESSES = tuple(f"{NET}.{number}" for number in (1, 2))


class NotPermitted(RuntimeError):
    """Two hosts cannot be made here; the text says why."""


class TwoHosts:
    """What ``two_hosts`` gives: addresses for ``run(hostfile=...)``, and the link's speed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def hostfile(self, slots: int = 2) -> list[tuple[str, int]]:
        """Both hosts with `slots` ranks each."""
        return [(address, slots) for address in ADDRESSES]

    def limit(self, rate: str | None, latency: str = "400ms", burst: str = "32kb") -> None:
        """Let each host send at most `rate` ("50mbit"; None: as fast as it can).

        A token bucket (tc-tbf): packets wait in a queue, for at most `latency`.
        """
        for name in HOSTS:
            _quietly("tc", "-n", name, "qdisc", "del", "dev", "eth0", "root")
            if rate is not None:
                shape = ("tbf", "rate", rate, "burst", burst, "latency", latency)
                _do("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *shape)


@contextlib.contextmanager
def two_hosts(rate: str | None = None, ahead: int = 0) -> Iterator[TwoHosts]:
    """Two hosts for the time of a ``with``; raises NotPermitted where they cannot be made.

    rate: what each may send ("50mbit"; see ``TwoHosts.limit``); ahead: seconds by which the second
    host's clock (the monotonic one, that runs are timed by) is ahead: a time namespace.
    While they exist, pdsh's ssh uses a key and settings of their own ($PDSH_SSH_ARGS_APPEND); the
    user's ~/.ssh is neither read nor changed. Everything is taken down at the end.
    """
    why = why_not()
    if why:
        raise NotPermitted(why)
    directory = Path(tempfile.mkdtemp(prefix="pplab-hosts-"))
    servers: list[subprocess.Popen[bytes]] = []
    before = os.environ.get("PDSH_SSH_ARGS_APPEND")
    _take_down()
    try:
        _network()
        _keys(directory)
        clocks = ((), ("unshare", "--time", "--monotonic", str(ahead)) if ahead else ())
        servers = [_ssh_server(*host, directory) for host in zip(HOSTS, clocks, strict=True)]
        os.environ["PDSH_SSH_ARGS_APPEND"] = f"-F {directory / 'client'}"
        _wait_for_ssh(directory)
        hosts = TwoHosts(directory)
        hosts.limit(rate)
        yield hosts
    finally:
        if before is None:
            os.environ.pop("PDSH_SSH_ARGS_APPEND", None)
        else:
            os.environ["PDSH_SSH_ARGS_APPEND"] = before
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()
        _take_down()
        shutil.rmtree(directory, ignore_errors=True)


def why_not() -> str:
    """Why two hosts cannot be made on this machine; "" when they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a part of Linux"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    for program, package in (
        ("ip", "iproute2"), ("tc", "iproute2"), ("ssh", "openssh-client"),
        ("ssh-keygen", "openssh-client"), ("pdsh", "pdsh"), (_sshd(), "openssh-server"),
    ):  # fmt: skip
        if shutil.which(program) is None:
            return f"`{program}` is missing: apt-get install {package}"
    probe = "pplab-probe"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if done.returncode:
        return f"this machine does not let us make network namespaces: {done.stderr.strip()}"
    _quietly("ip", "netns", "del", probe)
    return ""


def _sshd() -> str:
    return shutil.which("sshd") or "/usr/sbin/sshd"


def _network() -> None:
    try:
        _do("ip", "link", "add", BRIDGE, "type", "bridge")
        _do("ip", "addr", "add", f"{NET}.254/24", "dev", BRIDGE)
        _do("ip", "link", "set", BRIDGE, "up")
        for name, address in zip(HOSTS, ADDRESSES, strict=True):
            _do("ip", "netns", "add", name)
            # named alike on both, as on real machines: gloo is told the name of one interface
            _do("ip", "link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0",
                "netns", name)  # fmt: skip
            _do("ip", "link", "set", f"{name}v", "master", BRIDGE, "up")
            _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _do("ip", "-n", name, "link", "set", link, "up")
    except OSError as error:
        raise NotPermitted(f"the network cannot be made: {error}") from error


def _keys(directory: Path) -> None:
    """A key for the client, one for the servers, and settings that use no others."""
    for name in ("user", "host"):
        _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name))
    public = (directory / "host.pub").read_text()
    (directory / "known").write_text("".join(f"{address} {public}" for address in ADDRESSES))
    (directory / "allowed").write_text((directory / "user.pub").read_text())
    (directory / "client").write_text(
        f"IdentityFile {directory / 'user'}\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {directory / 'known'}\nGlobalKnownHostsFile /dev/null\n"
        "BatchMode yes\nLogLevel ERROR\n"
    )
    (directory / "server").write_text(
        f"HostKey {directory / 'host'}\nAuthorizedKeysFile {directory / 'allowed'}\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\n"
        "UsePAM no\nPidFile none\nPrintMotd no\n"
    )


def _ssh_server(name: str, clock: tuple[str, ...], directory: Path) -> subprocess.Popen[bytes]:
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
    server = [_sshd(), "-D", "-e", "-f", str(directory / "server")]
    command = ["ip", "netns", "exec", name, *clock, *server]
    with open(directory / f"{name}.log", "wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait_for_ssh(directory: Path, patience: float = 10.0) -> None:
    end = time.monotonic() + patience
    for name, address in zip(HOSTS, ADDRESSES, strict=True):
        command = ["ssh", "-F", str(directory / "client"), address, "true"]
        while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
            if time.monotonic() > end:
                log = (directory / f"{name}.log").read_text().strip().splitlines()
                said = [*done.stderr.strip().splitlines(), *log][-1:]
                raise NotPermitted(f"no ssh to a host of our own: {' '.join(said)}")
            time.sleep(0.05)


def _take_down() -> None:
    for name in HOSTS:
        _quietly("ip", "netns", "del", name)
        _quietly("ip", "link", "del", f"{name}v")
    _quietly("ip", "link", "del", BRIDGE)


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command[:4])}: {done.stderr.strip()}")


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True)
