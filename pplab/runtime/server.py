"""The warm process server: has imported torch and DeepSpeed, forks a supervisor for each run.

``python -m pplab.runtime.server DIRECTORY`` listens on DIRECTORY/socket, which only its owner can
open. It lives as long as its standard input stays open: the notebook's kernel holds the other end,
so the server ends with the kernel, however that ends. It also ends when nothing was run for
$PPLAB_IDLE seconds: somebody who reads need not keep 210 MB; the next run starts another one. It
stays single-threaded and runs no tensor operation and no CUDA call, so that forking it is safe.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from pplab.runtime.preload import preload
from pplab.runtime.processes import adopt_orphans, kill_descendants
from pplab.runtime.supervisor import supervise

#: Seconds without a run after which the server ends, unless $PPLAB_IDLE says otherwise (0: never).
IDLE = 1200.0


def main(directory: Path) -> None:
    """Listen, import, and fork a supervisor per connection until standard input closes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    os.chmod(directory / "socket", 0o600)
    listener.listen(16)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # is_available() without a CUDA context
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave nothing behind
    preload()
    about = describe()
    gc.collect()
    gc.freeze()  # the collector never touches, and so never copies, what the ranks share
    idle = float(os.environ.get("PPLAB_IDLE", IDLE)) or None
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [], idle)
        if sys.stdin in readable and not os.read(0, 1024):
            break
        if not readable and not has_children():
            break
        if listener in readable:
            client, _ = listener.accept()
            if os.fork() == 0:
                try:
                    listener.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    supervise(client, about, directory)
                finally:
                    os._exit(0)
            client.close()
    listener.close()
    kill_descendants()
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def has_children() -> bool:
    """Whether a run is going on. Children that have ended are gone: nobody waits for them."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def describe() -> dict[str, Any]:
    """Versions and devices, as far as they can be told without touching a GPU."""
    import torch

    names = ("torch", "deepspeed", "numpy", "pplab")
    return {
        "versions": {name: importlib.metadata.version(name) for name in names}
        | {"python": sys.version.split()[0]},
        "cuda_devices": usable_gpus() if torch.cuda.is_available() else 0,
    }


def usable_gpus() -> int:
    """How many GPUs a rank could use, found out in a child: this process must not touch CUDA.

    NVML, which answers without touching it, also counts GPUs whose driver is too old for this
    torch, or that are taken exclusively.
    """
    import torch

    read, write = os.pipe()
    if os.fork() == 0:
        try:
            torch.cuda.init()
            os.write(write, str(torch.cuda.device_count()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        return int(answer.read() or 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
