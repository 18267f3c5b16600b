"""The check-list at the end of a tuning, as a test: bubble, stage times, the loss of one process.

The three lines are those of the article that the course audits (claims 1.33, 1.34 and 1.36 of its
check-list: bubble below 15 %, computing times within 10 %, the loss curve of a single card).
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from pplab.core.timeline import Timeline
from pplab.runtime.failure import RunError
from pplab.runtime.models import Model, paced
from pplab.runtime.record import Run

BUBBLE, SPREAD = 0.15, 0.10
#: How far losses may be apart, as a part of them: sums in another order, in float32 and bfloat16.
LOSS = {"fp32": 1e-4, "bf16": 2e-2}


@dataclass(frozen=True)
class Line:
    """One line of the list: what is asked for, what was measured; ok is None when it could not be
    tested (`measured` says why)."""

    name: str
    target: str
    measured: str
    ok: bool | None
    value: float | None = None

    @property
    def mark(self) -> str:
        """pass, FAIL or "not tested"."""
        return {True: "pass", False: "FAIL", None: "not tested"}[self.ok]


@dataclass(frozen=True)
class Acceptance:
    """The check-list of one run."""

    about: str
    lines: tuple[Line, ...]
    source: str = ""

    @property
    def ok(self) -> bool:
        """Whether every line passed; one that was not tested has not."""
        return all(line.ok for line in self.lines)

    def __getitem__(self, name: str) -> Line:
        """The line whose name begins so; KeyError when there is none."""
        for line in self.lines:
            if line.name.startswith(name):
                return line
        raise KeyError(f"{name!r}; the lines are {', '.join(line.name for line in self.lines)}")

    def text(self) -> str:
        """The list, for a terminal."""
        wide = max(len(line.name) for line in self.lines)
        far = max(len(line.target) for line in self.lines)
        rows = [
            f"{line.mark:10}  {line.name.ljust(wide)}  {line.target.ljust(far)}  {line.measured}"
            for line in self.lines
        ]
        return "\n".join([f"Acceptance of {self.about}", *rows])

    def __str__(self) -> str:
        mark = "[measured] " if self.source.startswith("measured") else ""
        return "\n".join(mark + line for line in self.text().splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A notebook shows a table; pass and fail are words, not colours alone."""
        left = " style='text-align:left;vertical-align:top'"
        head = "".join(
            f"<th scope='col'{left}>{text}</th>" for text in ("", "what", "target", "measured")
        )
        rows = "".join(
            f"<tr><th scope='row'{left}>{escape(line.mark)}</th>"
            + "".join(
                f"<td{left}>{escape(text)}</td>" for text in (line.name, line.target, line.measured)
            )
            + "</tr>"
            for line in self.lines
        )
        return (
            f"<table><caption{left}>Acceptance of {escape(self.about)}</caption>"
            f"<tr>{head}</tr>{rows}</table>"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("name", "target", "measured", "ok", "value")
        return {
            "about": self.about,
            "ok": self.ok,
            "lines": [{name: getattr(line, name) for name in names} for line in self.lines],
        }


def accept(run: Run, *, bubble: float = BUBBLE, spread: float = SPREAD) -> Acceptance:
    """Test a finished run; the loss is compared with a plain single-process run, made here."""
    job = run.job
    about = (
        f"{job.stages} stage{'s' * (job.stages > 1)} x {job.replicas} replica"
        f"{'s' * (job.replicas > 1)}, {job.micro_batches} micro-batch"
        f"{'es' * (job.micro_batches > 1)} of {job.micro_batch_size}"
    )
    about += f", {run.timeline.schedule}" if job.stages > 1 else ", no pipeline"
    lines = (
        bubble_line(run.bubble, bubble),
        stage_line(rank_times(run.timeline), spread),
        loss_line(run),
    )
    return Acceptance(about, lines, run.timeline.source)


def bubble_line(found: float, target: float = BUBBLE) -> Line:
    """Idle / total of the typical step."""
    return Line("bubble", f"below {target:.0%}", f"{found:.1%}", found < target, found)


def rank_times(timeline: Timeline) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds that each rank of a pipeline computes in the typical step (F, B, W); (ranks,)."""
    work = timeline.typical.only(kinds="FBW")
    total = np.bincount(work.rank, weights=work.end - work.start, minlength=timeline.layout.stages)
    return total / max(1, len(work.replicas))


def stage_line(times: np.ndarray[Any, np.dtype[np.float64]], target: float = SPREAD) -> Line:
    """How far the computing times of the ranks lie apart: (longest - shortest) / longest."""
    name, wanted = "stage times", f"within {target:.0%}"
    if len(times) == 1:
        return Line(name, wanted, "one stage: nothing to compare", True, 0.0)
    found = float(1 - times.min() / times.max()) if times.max() else 0.0
    told = ", ".join(f"{time * 1e3:.1f}" for time in times)
    return Line(name, wanted, f"{found:.1%} apart ({told} ms a step)", found <= target, found)


def loss_line(run: Run) -> Line:
    """Losses of all steps against a plain loop in one process, from the same seed and data."""
    job = run.job
    name, tolerance = "loss as in one process", LOSS[job.dtype]
    wanted = f"within {tolerance:g}"
    if job.model.settings.get("dropout"):
        return Line(name, wanted, "dropout draws other numbers on every rank", None)
    model, note = job.model, ""
    if job.model.paced:
        model, note = unpaced(job.model, job.slices), ", its layers unpaced"
    settings = {name: getattr(job, name) for name in (
        "steps", "micro_batch_size", "dtype", "lr", "optimizer", "seed", "threads", "device",
        "gradient_clipping",
    )}  # fmt: skip
    many = job.micro_batches * job.replicas
    try:
        import pplab

        plain = pplab.run(
            model=model, engine="plain", micro_batches=many, quiet=True, keep=False, **settings
        )
    except (RunError, ValueError) as error:
        return Line(name, wanted, f"the plain run failed: {str(error).splitlines()[0]}", None)
    apart = losses_apart(run.losses, plain.losses)
    told = f"{apart:.1e} apart over {len(plain.losses)} steps of {many} micro-batches"
    return Line(name, wanted, told + note, apart <= tolerance, apart)


def unpaced(model: Model, slices: int) -> Model:
    """The same paced layers with no time set: the same numbers, at once."""
    settings = model.settings
    return paced(0, 0, layers=settings["layers"] or slices, width=settings["width"])


def losses_apart(one: list[float], other: list[float]) -> float:
    """The largest difference of two loss curves, as a part of the loss; inf for unlike lengths."""
    if len(one) != len(other) or not one:
        return float("inf")
    a, b = np.array(one), np.array(other)
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-12)))
