"""A class on one machine, simulated: what it takes, and that nothing is lost or mixed.

Each learner is a real Jupyter kernel (ipykernel through jupyter_client, with its own process
server), opens lab 1, runs two real ranks and has them checked. All are there at the same time; they
press run one after another, as people do: each at a moment of their own within `SPREAD` seconds.
Memory is PSS: a page that several processes share counts in parts, so that the sum over all is what
the machine gives. `python -m benchmarks.learners [N]` takes another number of learners.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.learner import CHECK, OPEN, ROLES, Learner, strangers
from benchmarks.report import entry
from pplab.teach.classroom import classroom
from tests.runs.processes import marked, none_left

LEARNERS = 30
#: Seconds within which all of them press run.
SPREAD = 60.0
#: Training steps of a run: some seconds for everybody.
STEPS = 12
#: Kernels that start at the same time.
ARRIVING = 2
#: Megabytes a learner needs at most, and what has to stay free for everybody else.
NEED, SPARE = 450, 1500
IDS = {"labs.learner_mb": "MB", "labs.learner_rest_mb": "MB", "labs.learner_s": "s",
       "labs.learners_kept": "learners", "labs.learners_left": ""}  # fmt: skip


@dataclass
class Outcome:
    """A class that was held.

    peak, rest, cooled: megabytes by role of each learner: at the worst moment seen of their run;
    when all have finished; and after `pplab.cool()`. worst: megabytes of the whole class at its
    worst moment. lasted: seconds from the first press to the last check. warm, alone: seconds of a
    run when nobody else runs: with the process server still there, and after cool. lost: by
    learner, what is lost or not theirs; left: processes, files and folders that are nobody's
    """

    learners: list[Learner]
    peak: dict[int, dict[str, float]] = field(default_factory=dict)
    rest: dict[int, dict[str, float]] = field(default_factory=dict)
    cooled: dict[int, dict[str, float]] = field(default_factory=dict)
    worst: float = 0.0
    lasted: float = 0.0
    warm: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    lost: dict[int, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


class NoRoom(RuntimeError):
    """The machine has too little memory for the class; the sentence says how much is missing."""


def no_room(available: float, learners: int) -> str:
    """Why a class cannot be held in `available` megabytes; "" when it can."""
    need = learners * NEED + SPARE
    if available >= need:
        return ""
    return (
        f"{learners} learners may need {need:.0f} MB, and {available:.0f} MB are free here: close "
        "other programs, or take fewer learners (python -m benchmarks.learners N)"
    )


def presses(learners: int, spread: float, seed: int = 0) -> list[float]:
    """When each learner presses run, in seconds from the first: the same moments every time."""
    draw = random.Random(seed)
    moments = [draw.uniform(0, spread) for _ in range(learners)]
    first = min(moments, default=0.0)
    return [moment - first for moment in moments]


def total(memory: dict[str, float]) -> float:
    """Megabytes of all roles together."""
    return sum(memory[role] for role in ROLES)


# -- the class -------------------------------------------------------------------------------------


def hold(count: int, spread: float, folder: Path, *, steps: int = STEPS, extra: int = 2) -> Outcome:
    """Hold a class of `count` learners in `folder`, each running `steps` steps; then `extra` of
    them run once more, alone.

    Raises NoRoom before it starts, or as soon as memory gets short; CellFailed when a cell does.
    In every case all kernels, and what they have started, are gone when this returns.
    """
    if reason := no_room(_available(), count):
        raise NoRoom(reason)
    mark = uuid.uuid4().hex
    outcome = Outcome([Learner(number, folder, mark, steps) for number in range(count)])
    try:
        _together(outcome, spread)
        outcome.lost = {one.number: one.problems() for one in outcome.learners}
        outcome.left += strangers(outcome.learners) + _seen_by_the_teacher(outcome, folder)
        for one in outcome.learners[:extra]:
            one.train("warm")
            outcome.warm.append(one.seconds["warm"])
        _each(outcome.learners, lambda one: one.cell("cool", "pplab.cool()"))
        outcome.cooled = {one.number: one.memory() for one in outcome.learners}
        for one in outcome.learners[:extra]:
            one.train("alone")
            outcome.alone.append(one.seconds["alone"])
    finally:
        try:
            _each(outcome.learners, Learner.stop)
        finally:
            left = none_left(mark, patience=10)
            for process in marked(mark):
                with contextlib.suppress(psutil.Error):
                    process.kill()
    outcome.left += [f"a process is left: {command[:100]}" for command in left]
    outcome.left += [f"a folder is left: {path.name}" for path in (folder / "tmp").iterdir()]
    return outcome


def _together(outcome: Outcome, spread: float) -> None:
    """Everybody arrives; then everybody runs and checks, each at their moment; then all rest."""
    learners = outcome.learners
    _each(learners, _arrive, at_once=ARRIVING)
    moments = presses(len(learners), spread)
    running: set[int] = set()
    short = threading.Event()

    def work(one: Learner) -> None:
        time.sleep(max(0.0, begin + moments[one.number] - time.monotonic()))
        if short.is_set():
            raise NoRoom(f"memory got short: less than {SPARE} MB were left while they ran")
        running.add(one.number)
        try:
            one.train()
            one.cell("check", CHECK)
        finally:
            running.discard(one.number)

    outcome.rest = {one.number: one.memory() for one in learners}  # before anybody runs
    begin = time.monotonic()
    with _watching(outcome, running, short):
        _each(learners, work)
    outcome.lasted = time.monotonic() - begin
    outcome.rest = {one.number: one.memory() for one in learners}


def _arrive(one: Learner) -> None:
    one.start()
    one.cell("open", OPEN)


@contextlib.contextmanager
def _watching(outcome: Outcome, running: set[int], short: threading.Event) -> Iterator[None]:
    """Measure, again and again, those who run; of the others the last value is kept."""
    done = threading.Event()
    last = {number: total(memory) for number, memory in outcome.rest.items()}

    def watch() -> None:
        while not done.wait(0.3):
            if _available() < SPARE:
                short.set()
            for number in tuple(running):
                memory = outcome.learners[number].memory()
                last[number] = total(memory)
                if memory["count"] >= 2:
                    before = outcome.peak.get(number)
                    if before is None or last[number] > total(before):
                        outcome.peak[number] = memory
            outcome.worst = max(outcome.worst, sum(last.values()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _each(
    learners: Sequence[Learner], what: Callable[[Learner], Any], at_once: int | None = None
) -> None:
    """Do something for every learner, in a thread each; raises the first error, when all ended."""
    turn = threading.Semaphore(at_once or max(1, len(learners)))
    errors: list[BaseException] = []

    def safely(one: Learner) -> None:
        with turn:
            if errors:  # somebody has failed: the class is over
                return
            try:
                what(one)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=safely, args=(one,), daemon=True) for one in learners]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as error:  # interrupted: nobody begins any more
        errors.append(error)
        raise
    if errors:
        raise errors[0]


def _seen_by_the_teacher(outcome: Outcome, folder: Path) -> list[str]:
    """What `pplab progress --class` makes of the folders: every learner once, and no remark."""
    room = classroom(_gathered(outcome, folder))
    names = sorted(one.name for one in room.learners)
    found = [f"the teacher's view: {remark}" for remark in room.remarks]
    if names != sorted(one.name for one in outcome.learners):
        found.append(f"the teacher's view lists {len(names)} learners")
    return found


def _gathered(outcome: Outcome, folder: Path) -> Path:
    """The progress files of all in one folder, as a teacher collects them."""
    place = folder / "class"
    place.mkdir(exist_ok=True)
    for state in {one.state for one in outcome.learners}:
        for path in (state / "progress").glob("*.json"):
            (place / path.name).write_bytes(path.read_bytes())
    return place


def _available() -> float:
    return psutil.virtual_memory().available / 1e6


# -- the figures -----------------------------------------------------------------------------------


def run(learners: int = LEARNERS, spread: float = SPREAD) -> list[dict[str, Any]]:
    """All figures; without values, and with the reason, where the class does not fit."""
    with tempfile.TemporaryDirectory(prefix="pplab-class-") as folder:
        try:
            return figures(hold(learners, spread, Path(folder)), spread)
        except NoRoom as error:
            why = str(error)
            return [entry(name, None, unit, None, "lower", why) for name, unit in IDS.items()]


def figures(outcome: Outcome, spread: float) -> list[dict[str, Any]]:
    """The entries of a class that was held."""
    many = len(outcome.learners)
    peak = [total(memory) for memory in outcome.peak.values()]
    rest = [total(memory) for memory in outcome.rest.values()]
    cooled = [total(memory) for memory in outcome.cooled.values()]
    took = [one.seconds["run"] for one in outcome.learners]
    checked = [one.seconds["check"] for one in outcome.learners]
    opened = [one.seconds["open"] for one in outcome.learners]
    lost = [text for one in outcome.learners for text in outcome.lost.get(one.number, ["unseen"])]
    kept = sum(outcome.lost.get(one.number) == [] for one in outcome.learners)
    missing = f"; {'; '.join(lost[:3])}" if lost else ""
    there = f": {'; '.join(outcome.left[:3])}" if outcome.left else ""
    return [
        entry("labs.learner_mb", _middle(peak), "MB", None, "lower",
              f"PSS of kernel, process server and 2 ranks (small GPT), the worst moment of each, "
              f"median; worst {max(peak, default=0):.0f} MB; {_roles(outcome.peak)}; seen in "
              f"{len(peak)} of {many} runs; all {many} at their worst moment together "
              f"{outcome.worst / 1e3:.1f} GB"),
        entry("labs.learner_rest_mb", _middle(rest), "MB", None, "lower",
              f"the same between runs, median of {many}; worst {max(rest):.0f} MB; "
              f"{_roles(outcome.rest)}; after pplab.cool() {_middle(cooled) or 0:.0f} MB, and the "
              f"next run then takes {_middle(outcome.alone) or 0:.1f} s instead of "
              f"{_middle(outcome.warm) or 0:.1f} s (nobody else running)"),
        entry("labs.learner_s", median(took), "s", None, "lower",
              f"from pressing run to the picture, the first run of each, {many} within "
              f"{spread:.0f} s on {psutil.cpu_count()} cores, median; worst {max(took):.1f} s; the "
              f"last had theirs {outcome.lasted:.0f} s after the first press, so a run "
              f"takes this machine {outcome.lasted / many:.1f} s; "
              f"opening the lab {median(opened):.1f} s, checking {median(checked):.1f} s"),
        entry("labs.learners_kept", kept, "learners", many, "higher",
              "whose progress file and record hold all that is theirs and nothing else" + missing),
        entry("labs.learners_left", len(outcome.left), "", 0, "lower",
              "processes, files and folders that are nobody's when all have gone" + there),
    ]  # fmt: skip


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _roles(memories: dict[int, dict[str, float]]) -> str:
    """Medians by role: "kernel 86 + server 70 + ..."."""
    parts = {role: _middle([memory[role] for memory in memories.values()]) for role in ROLES}
    return " + ".join(f"{role} {value:.0f}" for role, value in parts.items() if value)


if __name__ == "__main__":
    from benchmarks.report import table

    print(table(run(*map(int, sys.argv[1:2]))))
