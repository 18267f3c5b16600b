"""What is seen while a run runs: step, loss, samples per second, time left.

In a notebook it is one output that is updated in place (plain HTML, so that a saved notebook shows
its last state without a kernel); in a terminal a tqdm bar; else nothing.
"""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from pplab.runtime.job import Job


class Progress:
    """Shows nothing: the base, and what ``quiet=True`` uses."""

    def __init__(self, job: Job) -> None:
        self.job, self.done = job, 0
        self.loss = float("nan")
        self.seconds: list[float] = []
        self.begin = time.monotonic()
        self.inside = ""

    def say(self, text: str) -> None:
        """A line about what happens before the first step."""

    def step(self, loss: float, seconds: float) -> None:
        """A step is done."""
        self.done += 1
        self.loss = loss
        self.seconds.append(seconds)
        self.inside = ""

    def stream(self, micro_batch: int, loss: float) -> None:
        """A long step is at this micro-batch, one that updates the weights on the way."""
        self.inside = f"micro-batch {micro_batch + 1}/{self.job.micro_batches}, loss {loss:.4f}"

    def close(self, last: str = "", logs: str = "") -> None:
        """The run is over; `logs` is the HTML of the ranks' output."""

    def words(self) -> str:
        """The state as a line of text."""
        job = self.job
        if not self.done or self.inside:
            return ", ".join(filter(None, (f"step {self.done}/{job.steps}", self.inside)))
        rate = job.samples_per_step / self.seconds[-1]
        mean = sum(self.seconds[-5:]) / len(self.seconds[-5:])
        left = mean * (job.steps - self.done)
        return (
            f"step {self.done}/{job.steps}, loss {self.loss:.4f}, {rate:.1f} samples/s, "
            f"{left:.0f} s left"
        )


class NotebookProgress(Progress):
    """One HTML output, updated in place."""

    def __init__(self, job: Job) -> None:
        from IPython.display import display

        super().__init__(job)
        self._note, self._logs = "starting", ""
        self._shown = 0.0
        self._handle: Any = display(self._draw(), raw=True, display_id=True)

    def say(self, text: str) -> None:
        self._note = text
        self._show()

    def step(self, loss: float, seconds: float) -> None:
        super().step(loss, seconds)
        self._note = ""
        if time.monotonic() > self._shown + 0.05 or self.done == self.job.steps:
            self._show()

    def stream(self, micro_batch: int, loss: float) -> None:
        super().stream(micro_batch, loss)
        self._note = ""
        self._show()

    def close(self, last: str = "", logs: str = "") -> None:
        self._note, self._logs = last, logs
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        self._handle.update(self._draw(), raw=True)

    def _draw(self) -> dict[str, str]:
        text = html.escape(", ".join(filter(None, (self.words(), self._note))))
        bar = (
            f'<progress value="{self.done}" max="{self.job.steps}" style="width:16em" '
            f'aria-label="steps done"></progress>'
        )
        return {
            "text/html": f'<div role="status">{bar} <span>{text}</span></div>{self._logs}',
            "text/plain": f"[measured] {text}",
        }


class TerminalProgress(Progress):
    """A tqdm bar on standard error."""

    def __init__(self, job: Job) -> None:
        from tqdm import tqdm

        super().__init__(job)
        self._bar = tqdm(total=job.steps, unit="step", leave=False, file=sys.stderr)

    def say(self, text: str) -> None:
        self._bar.set_postfix_str(text)

    def step(self, loss: float, seconds: float) -> None:
        super().step(loss, seconds)
        rate = self.job.samples_per_step / seconds
        self._bar.set_postfix_str(f"loss {loss:.4f}, {rate:.1f} samples/s")
        self._bar.update()

    def stream(self, micro_batch: int, loss: float) -> None:
        super().stream(micro_batch, loss)
        self._bar.set_postfix_str(self.inside)

    def close(self, last: str = "", logs: str = "") -> None:
        self._bar.close()


def progress(job: Job, quiet: bool) -> Progress:
    """The progress display that fits where this runs."""
    if quiet:
        return Progress(job)
    if in_notebook():
        return NotebookProgress(job)
    return TerminalProgress(job) if sys.stderr.isatty() else Progress(job)


def in_notebook() -> bool:
    """True in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")
