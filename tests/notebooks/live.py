"""pytest plugin: nbval for notebooks that are alive. Load it with ``-p tests.notebooks.live``.

It keeps what nbval does (run every cell, compare every output with the stored one) and changes what
would fail, or pass, for the wrong reason:

- cells are executed as JupyterLab does, with history: without it IPython ignores a trailing ``;``
- Output widgets, ``clear_output`` and updated displays count as in JupyterLab (see ``screen``)
- a dead kernel is reported at once instead of after the whole cell timeout
- the kernel does not know that pytest runs: otherwise ipykernel leaves what child processes write
  to their standard output out of the notebook
- stderr is not compared: warnings and progress bars are no results (and are not stored)
- processes that a notebook leaves behind fail it; they are killed
- a check of measured values that fails is measured again (see ``again`` and ``tests.measuring``)
- how long each notebook took is noted (see ``timing``)

nbval's classes are subclassed and nbval is pinned: 0.11.0.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
import pytest
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, KernelManager, NbvalKernelspecManager
from nbval.kernel import RunningKernel as PlainKernel
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

from tests.measuring import Tries
from tests.notebooks import again, timing
from tests.notebooks.screen import Screen

#: Environment variable that every process a notebook starts inherits.
MARK = "PPLAB_NOTEBOOK_TEST"
#: Seconds that processes have to end once their kernel is gone (a supervisor needs two).
GRACE = 5.0
#: Notebooks that ran from the first cell to the last: seconds with their kernel's start and end,
#: and cells.
TOOK: dict[Path, tuple[float, int]] = {}


class KernelDied(Exception):
    """The kernel process ended while a cell ran."""


class LiveKernel(PlainKernel):
    """nbval's kernel, started with a clean environment and watched."""

    def __init__(self, cwd: str, startup_timeout: float) -> None:
        self.screen = Screen()
        self.left_behind: list[str] = []
        self.mark = uuid.uuid4().hex
        self.private = tempfile.TemporaryDirectory(prefix="pplab-ipython-")
        hidden = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment[MARK] = self.mark
        environment["IPYTHONDIR"] = self.private.name  # not the history and settings of the user
        environment["PPLAB_PROGRESS"] = f"{self.private.name}/progress"  # nor what they have solved
        self.km = KernelManager(
            kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager()
        )
        with open(os.devnull, "w") as nowhere:
            self.km.start_kernel(cwd=cwd, env=environment, stderr=nowhere)
        self.kc = self.km.client()
        self.kc.start_channels()
        try:
            self.kc.wait_for_ready(timeout=startup_timeout)
            self._ensure_iopub_up()
        except BaseException:
            self.stop()
            raise

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        message = self.kc.execute(
            cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False
        )
        self.screen.start(message)
        return message

    def get_message(self, stream: str, timeout: float | None = None) -> dict[str, Any]:
        """The next message; Empty after `timeout`, KernelDied when there will be none."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, min(1.0, end - time.monotonic()))
            try:
                return super().get_message(stream, timeout=left)
            except Empty:
                if not self.is_alive():
                    raise KernelDied from None
                if time.monotonic() >= end:
                    raise

    def stop(self) -> None:
        """End the kernel, then whatever it started and did not end itself."""
        if not hasattr(self, "km"):
            return
        below = self._below()
        self.kc.stop_channels()
        self.km.shutdown_kernel(now=True)
        del self.km
        end = time.monotonic() + GRACE
        while (left := self._alive(below)) and time.monotonic() < end:
            time.sleep(0.05)
        for process in left:
            try:
                self.left_behind.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.private.cleanup()

    def _below(self) -> list[psutil.Process]:
        """Processes below the kernel now, whatever they did to their environment."""
        try:
            return psutil.Process(self.km.provisioner.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _alive(self, below: list[psutil.Process]) -> set[psutil.Process]:
        """Which processes of this notebook still run: found below the kernel, or by the mark."""
        found = set(below)
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.add(process)
            except (psutil.Error, OSError):
                continue
        return {process for process in found if _runs(process)}


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class LiveNotebook(IPyNbFile):
    """nbval's notebook with a live kernel and the outputs as they show."""

    running: LiveCell | None = None
    began = 0.0
    passed = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.skip_compare = (*self.skip_compare, "stderr")
        self.live_cells: list[LiveCell] = []

    def setup(self) -> None:
        self.began = time.monotonic()
        self.kernel = LiveKernel(
            cwd=str(self.path.parent),
            startup_timeout=self.config.option.nbval_kernel_startup_timeout,
        )
        self.setup_sanitize_files()

    def collect(self) -> Iterator[LiveCell]:
        for cell in super().collect():
            made = LiveCell.from_parent(
                self, name=cell.name, cell_num=cell.cell_num, cell=cell.cell, options=cell.options
            )
            self.live_cells.append(made)
            yield made

    def get_kernel_message(self, timeout: float | None = None, stream: str = "iopub") -> dict:
        while True:
            message = super().get_kernel_message(timeout=timeout, stream=stream)
            outputs = self.running.test_outputs if self.running else None
            if not self.kernel.screen.takes(message, outputs):
                return message

    def teardown(self) -> None:
        if self.kernel is None:
            return
        self.kernel.stop()
        if self.kernel.left_behind:
            left = "; ".join(self.kernel.left_behind)
            pytest.fail(f"the notebook left processes behind (now killed): {left}", pytrace=False)
        if self.passed == sum(not cell.options["skip"] for cell in self.live_cells):
            TOOK[self.path] = (time.monotonic() - self.began, self.passed)


class LiveCell(IPyNbCell):
    """nbval's cell, which also says when its kernel died, and measures again."""

    def runtest(self) -> None:
        cells = self.parent.live_cells
        tries, window = Tries(self.warn), []
        while True:
            try:
                for number in window[:-1]:
                    cells[number].execute_unchecked()
                self.execute()
                break
            except NbCellError as failure:
                window = again.window(self.cell_num, [other.cell for other in cells])
                if not window or self.parent.timed_out:
                    raise
                if not tries.failed(failure.inner_traceback or str(failure)):
                    raise
        self.parent.passed += 1

    def execute(self) -> None:
        self.parent.running = self
        try:
            super().runtest()
        except KernelDied:
            self.parent.timed_out = True  # nbval then expects the cells that follow to fail
            self.raise_cell_error("The kernel died while it ran this cell")

    def execute_unchecked(self) -> None:
        """Run it for what it makes: its output was compared the first time."""
        before = self.options
        self.options = defaultdict(bool, before, check=False)
        try:
            self.execute()
        finally:
            self.options = before


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    found = yield
    return [
        LiveNotebook.from_parent(node.parent, path=node.path) if type(node) is IPyNbFile else node
        for node in found
    ]


def pytest_sessionfinish() -> None:
    timing.write(TOOK)
