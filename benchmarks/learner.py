"""One learner of a class, simulated: a real Jupyter kernel, its cells, and what it must leave.

What a learner does is their own, so that anything lost, or kept under another name, is seen: a
prediction nobody else gives, their own number of wrong tries, and a run of their own seed and
number of micro-batches. Every second learner shares an account with others (one folder for all of
them, where only $PPLAB_LEARNER tells them apart); the rest have a folder each.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from jupyter_client import KernelManager

from pplab.teach.progress import Progress
from tests.runs.processes import MARK

#: What a process of a learner is, by how deep it lies below the kernel.
ROLES = ("kernel", "server", "supervisor", "ranks")
OPEN = """
import json, pplab
from pplab import models, schedules
lab = pplab.open_lab(1)
guess = pplab.predict("workshop", "How idle will your two ranks be?", unit="%")
guess.give("{guess}")
lab
"""
RUN = """
run = pplab.run(schedules.one_f_one_b(stages=2, micro_batches={micro_batches}), models.gpt(),
                steps={steps}, seed={seed})
print(json.dumps({{"losses": run.losses, "bubble": run.bubble}}))
run
"""
CHECK = """
guess.against(run.bubble, measured=True)
for count in range(2, 2 + {wrong}):
    lab.check("q6", count)
slowest = int(run.timeline.typical.measures.busy.argmax())
if {mistaken}:
    lab.check("own", (run, run.bubble / (1 - run.bubble), slowest))
print(lab.check("own", (run, run.bubble, slowest)).state)
lab
"""


class CellFailed(RuntimeError):
    """A cell of a learner stopped with an error, or the kernel did not answer."""


@dataclass
class Learner:
    """One learner.

    number: from 0; folder: of the whole class; steps: of the run; seconds: what each cell took,
    by name, from pressing run to the end of its output; shown: what the run cell printed
    """

    number: int
    folder: Path
    mark: str
    steps: int
    seconds: dict[str, float] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"learner {self.number:02}"

    @property
    def state(self) -> Path:
        """Folder of progress and records: their own, or that of the shared account."""
        return self.folder / ("shared" if self.number % 2 else f"own-{self.number:02}")

    # -- what they do, and what must be kept of it ------------------------------------------------

    @property
    def own(self) -> dict[str, int]:
        """The numbers by which this learner differs from the others."""
        n = self.number
        return {"guess": 10 + n, "seed": 1000 + n, "micro_batches": 4 + n % 5, "wrong": 1 + n % 4,
                "mistaken": int(n % 3 == 0), "steps": self.steps}  # fmt: skip

    def expected(self) -> dict[str, dict[str, Any]]:
        """The items of the progress file, without their times of day."""
        own = self.own
        final: dict[str, Any] = {"state": "right", "tries": 1 + own["mistaken"]}
        if own["mistaken"]:
            final["misconceptions"] = {"overhead-is-bubble": 1}
        bubble = self.shown.get("bubble")
        return {
            "predict workshop": {"answer": str(own["guess"]), "after": False, "result": bubble},
            "lab 1.q6": {"state": "wrong", "tries": own["wrong"]},
            "lab 1.own": final,
        }

    def problems(self) -> list[str]:
        """What is lost or not theirs, in their progress file and among the records; [] is right."""
        progress = Progress(self.name, self.state / "progress")
        found = []
        try:
            kept = json.loads(progress.path.read_text(encoding="utf-8"))
            items = {key: without_times(item) for key, item in kept["items"].items()}
        except (OSError, ValueError, KeyError) as error:
            return [f"{self.name}: no progress file that can be read ({error})"]
        if kept["learner"] != self.name:
            found.append(f"{self.name}: the progress file is that of {kept['learner']}")
        expected = self.expected()
        found += [
            f"{self.name}: {key} is {items.get(key)}, not {expected.get(key)}"
            for key in sorted(expected.keys() | items.keys())
            if items.get(key) != expected.get(key)
        ]
        mine = [r for r in records(self.state) if r["job"]["seed"] == self.own["seed"]]
        if len(mine) != 1:
            found.append(f"{self.name}: {len(mine)} records of the one run")
        elif mine[0]["losses"] != self.shown.get("losses"):
            found.append(f"{self.name}: the record holds other losses than the notebook showed")
        elif mine[0]["job"]["micro_batches"] != self.own["micro_batches"]:
            found.append(f"{self.name}: the record is of another number of micro-batches")
        return found

    # -- the kernel -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the kernel, as JupyterLab does when the notebook is opened."""
        temporary = self.folder / "tmp"
        for path in (self.state, temporary):
            path.mkdir(exist_ok=True)
        hidden = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER", "PPLAB_STRICT",
                  "PPLAB_MAX_RANKS", "JUPYTERHUB_USER")  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {
            MARK: self.mark,
            "PPLAB_LEARNER": self.name,
            "PPLAB_PROGRESS": str(self.state / "progress"),
            "PPLAB_RUNS": str(self.state / "runs"),
            "IPYTHONDIR": str(self.folder / f"ipython-{self.number:02}"),
            "TMPDIR": str(temporary),  # so that it is seen when a server leaves its folder behind
        }
        self._manager = KernelManager(kernel_name="python3")
        with open(os.devnull, "w") as nowhere:
            self._manager.start_kernel(env=environment, cwd=str(self.state), stderr=nowhere)
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)

    def cell(self, name: str, code: str, patience: float = 240) -> str:
        """Run a cell and note its seconds under `name`; what it printed. Raises CellFailed."""
        said: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
                said.append(message["content"]["text"])

        begin = time.monotonic()
        try:
            reply = self._client.execute_interactive(
                code.format(**self.own), timeout=patience, output_hook=hear, allow_stdin=False
            )["content"]
        except (TimeoutError, RuntimeError) as error:
            raise CellFailed(f"{self.name}: {name}: no answer ({error})") from None
        self.seconds[name] = time.monotonic() - begin
        if reply["status"] != "ok":
            raise CellFailed(f"{self.name}: {name}: {reply['ename']}: {reply['evalue']}")
        return "".join(said)

    def train(self, name: str = "run") -> None:
        """The run cell; keeps what it showed."""
        text = self.cell(name, RUN)
        if name == "run":
            self.shown = json.loads(next(t for t in text.splitlines() if t.startswith("{")))

    def memory(self) -> dict[str, float]:
        """Megabytes (1e6, PSS) of each role, and how many ranks run ("count")."""
        found = {**dict.fromkeys(ROLES, 0.0), "count": 0.0}
        with contextlib.suppress(psutil.Error):
            provisioner: Any = self._manager.provisioner
            layer = [psutil.Process(provisioner.pid)]
            for depth in range(8):
                role = ROLES[min(depth, len(ROLES) - 1)]
                for process in layer:
                    with contextlib.suppress(psutil.Error):  # it has ended
                        found[role] += process.memory_full_info().pss / 1e6
                        found["count"] += role == "ranks"
                layer = [child for process in layer for child in _children(process)]
        return found

    def stop(self) -> None:
        """End the kernel, as closing JupyterLab does; whatever is below it has to follow."""
        if hasattr(self, "_client"):
            self._client.stop_channels()
        if hasattr(self, "_manager") and self._manager.has_kernel:
            self._manager.shutdown_kernel(now=True)


def _children(process: psutil.Process) -> Sequence[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return ()


def without_times(item: dict[str, Any]) -> dict[str, Any]:
    """An item of a progress file without the times of day."""
    return {name: value for name, value in item.items() if name not in ("first", "last")}


def records(state: Path) -> list[dict[str, Any]]:
    """The records of runs in a state folder."""
    return [json.loads(path.read_text()) for path in sorted((state / "runs").glob("*/run.json"))]


def strangers(learners: Iterable[Learner]) -> list[str]:
    """Files in the progress folders that belong to nobody (unreadable, half-written, foreign)."""
    learners = list(learners)
    known = {Progress(one.name, one.state / "progress").path for one in learners}
    known |= {path.with_suffix(".lock") for path in known}
    there = {p for one in learners for p in (one.state / "progress").glob("*")}
    return [f"a file that is nobody's: {path.name}" for path in sorted(there - known)]
