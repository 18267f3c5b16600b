"""One rank as a process: its connection to the supervisor, its environment, its errors.

A rank is forked by the supervisor (local launcher) or started by the `deepspeed` command, which
runs ``python -m pplab.runtime.rank``; then it connects to the supervisor's socket itself. Either
way it receives the job, trains (``train``), and reports events; it never outlives its supervisor.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

from pplab.runtime import wire
from pplab.runtime.job import Job
from pplab.runtime.nsys import VARIABLE
from pplab.runtime.processes import die_with_parent
from pplab.runtime.status import Board, Slot

SOCKET_VARIABLE = "PPLAB_SUPERVISOR"

#: How neighbours notice that a rank is gone. Such an error is a consequence, not the cause.
PEER_GONE = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "recvValue failed",
    "Socket closed", "Connection refused", "failed to recv, got 0 bytes", "NCCL communicator was",
    "ncclRemoteError", "sendBytes failed", "connectFullMesh failed", "Application timeout caused",
    "Read error", "writev", "Timed out waiting",
)  # fmt: skip


def main(connection: socket.socket, place: dict[str, Any], slot: Slot) -> int:
    """Run one rank to its end; returns its exit code. Errors are reported, not raised."""
    try:
        message = wire.receive(connection)
        if message is None:
            return 1
        start, blobs = message
        for name, lines in start["cells"].items():  # so that tracebacks can show cell code
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        sys.path[:0] = [path for path in start["path"] if path not in sys.path]
        with contextlib.suppress(OSError):
            os.chdir(start["directory"])
        job = Job.from_json(start["job"], _payload(blobs))
        place = {**start["place"], **place}
        _environment(place)
        if job.profile:
            directory = place["records"] or os.getcwd()
            place["profile"] = os.path.join(directory, f"trace-rank-{place['rank']}.json")
        _run(job, start["task"], place, slot, connection)
        return 0
    except BaseException as error:
        _report(error, connection, place)
        return 1


def _run(
    job: Job, task: dict[str, Any] | None, place: dict[str, Any], slot: Slot, sock: socket.socket
) -> None:
    """Train; or, when there is a `task`, profile the layers of the job's model."""
    slot.say("imports torch and DeepSpeed")
    from pplab.runtime.preload import preload

    preload()
    if task is not None:
        from pplab.runtime.profiling.measure import measure

        measure(job, task, place, slot, lambda event, blobs: wire.send(sock, event, blobs))
        return
    from pplab.runtime import train

    slot.say("joins the other ranks")
    store = None
    if place["launcher"] == "local":
        store = _store(job, place, sock)
    elif place["launcher"] == "torchrun":
        from pplab.runtime.hosts.remote import agents_store

        store = agents_store()
    train.join(job, place, store)
    train.train(job, place, slot, lambda event, blobs: wire.send(sock, event, blobs))


def _store(job: Job, place: dict[str, Any], connection: socket.socket) -> Any:
    """The meeting point of the ranks: rank 0 opens a port of its own choice and tells the rest."""
    import torch.distributed as dist

    if place["rank"] == 0:
        try:
            store = dist.TCPStore(
                "127.0.0.1", job.port or 0, job.world, is_master=True, wait_for_workers=False
            )
        except dist.DistNetworkError as error:
            raise OSError(
                f"port {job.port} is taken: choose another, or leave the choice to pplab"
            ) from error
        wire.send(connection, {"event": "store", "port": store.port})
        os.environ["MASTER_PORT"] = str(store.port)
        return store
    message = wire.receive(connection)
    if message is None:
        raise ConnectionError("Connection closed by peer: the supervisor is gone")
    port = message[0]["port"]
    os.environ["MASTER_PORT"] = str(port)
    return dist.TCPStore("127.0.0.1", port, job.world, is_master=False)


def _environment(place: dict[str, Any]) -> None:
    """What torch and DeepSpeed read from the environment."""
    if place["launcher"] == "local":
        os.environ.update(
            RANK=str(place["rank"]),
            LOCAL_RANK=str(place["local_rank"]),
            WORLD_SIZE=str(place["world"]),
            MASTER_ADDR="127.0.0.1",
        )
        # Loopback: a host name that does not resolve would otherwise hang gloo
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    if place.get("master"):  # mpirun and srun say nothing of a master
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = map(str, place["master"])
    os.environ.pop("LOCAL_SIZE", None)  # DeepSpeed would take 66 MiB of /dev/shm a rank
    if place["device"] == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
        _cpu_accelerator()


def _cpu_accelerator() -> None:
    """On a machine with GPUs the server's DeepSpeed has chosen CUDA; this run wants the CPU."""
    if "deepspeed" not in sys.modules:
        return
    from deepspeed.accelerator import get_accelerator, real_accelerator

    if get_accelerator().device_name() != "cpu":
        from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

        real_accelerator.set_accelerator(CPU_Accelerator())


def _payload(blobs: list[bytes]) -> Any:
    """The learner's own objects, sent by the notebook that started this rank."""
    if not blobs:
        return None
    import cloudpickle

    return cloudpickle.loads(blobs[0])


def _report(error: BaseException, connection: socket.socket, place: dict[str, Any]) -> None:
    lines = traceback.format_exception(error)
    print("".join(lines), file=sys.stderr, flush=True)
    text = str(error).strip() or repr(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "ipykernel" in f.filename or f.filename.startswith("<ipython")]
    where = own[-1] if own else None
    event = {
        "event": "error",
        "type": type(error).__name__,
        "text": text,
        "peer": any(sign in text for sign in PEER_GONE),
        "time": time.monotonic(),
        "line": f"line {where.lineno} of your cell: {where.line}" if where else "",
        "traceback": "".join(lines),
    }
    with contextlib.suppress(OSError):
        wire.send(connection, event)


def start_forked(connection: socket.socket, output: int, place: dict[str, Any], slot: Slot) -> None:
    """The life of a rank that was just forked: never returns."""
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=False)
        code = main(connection, place, slot)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # no exit handlers: the server's are not ours to run


def start_launched() -> int:
    """The life of a rank that the `deepspeed` command started: connect to the supervisor first."""
    import mmap

    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[SOCKET_VARIABLE])
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    read, write = os.pipe()
    wire.send(connection, {"event": "here", "rank": rank, "pid": os.getpid()})
    socket.send_fds(connection, [b"!"], [read])  # the read end of this rank's output
    os.close(read)
    os.dup2(write, 1)
    os.dup2(write, 2)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=False)
    world = int(os.environ["WORLD_SIZE"])
    with open(os.environ[SOCKET_VARIABLE] + ".board", "r+b") as file:
        board = Board(world, mmap.mmap(file.fileno(), 0))
    return main(connection, {"rank": rank, "local_rank": local}, board.slot(rank))


if __name__ == "__main__":
    code = start_launched()
    sys.stdout.flush()
    if VARIABLE in os.environ:
        sys.exit(code)  # what nsys put into this process writes down the rest at the exit
    os._exit(code)
