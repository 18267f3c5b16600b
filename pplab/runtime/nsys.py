"""Runs under Nsight Systems: ``nsys profile`` around the `deepspeed` command.

All ranks are children of that command, so one report holds all of them, on one clock. Ranks of the
local launcher cannot be wrapped: they are forked from a server that is running already.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

#: Tells the ranks that they run under nsys: they then leave by the normal exit, so that what it put
#: into them can write down the rest.
VARIABLE = "PPLAB_NSYS"
REPORT = "nsys"  # name of the report in the run's record, without its ending
#: Seconds that nsys has to write its report once the ranks have ended.
PATIENCE = 300.0


def check() -> None:
    """Raises OSError when the command is not there, with what to install."""
    if shutil.which("nsys") is None:
        raise OSError(
            "nsys=True needs Nsight Systems, and there is no command nsys on the PATH: install "
            "nsight-systems-cli from NVIDIA's CUDA repository (apt, dnf or conda), or use "
            "profile=True, which needs nothing but PyTorch"
        )


def wrapped(command: list[str], records: str | None) -> list[str]:
    """The command under nsys; its report and the SQLite export of it go into `records`.

    CPU sampling and context switches are off: they need rights that containers do not have, and
    nothing here reads them.
    """
    out = Path(records or os.getcwd()) / REPORT
    return [
        "nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none",
        "--export=sqlite", "--force-overwrite=true", f"--output={out}", *command,
    ]  # fmt: skip
