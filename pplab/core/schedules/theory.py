"""What the literature promises of a schedule, as numbers the simulator can be held to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theory:
    """Formulas of one schedule for stages that all take the same time and messages that cost none.

    bubble_time: idle time of the busiest-looking rank: the longest first-operation-to-last-
                 operation span of a rank, minus its work. Same unit as the costs given.
    work:        useful time of every rank in a step
    peak:        per rank, the most activations held at once; one is what F of one micro-batch
                 through one chunk keeps (see ``Measures.in_flight``)
    versions:    per rank, the most versions of its weights held at once; 1 means that every
                 micro-batch of a step sees the same weights
    once:        True when the bubble is paid once a training run, as the pipeline fills and
                 drains, not once a step (asynchronous schedules)
    """

    bubble_time: float
    work: float
    peak: tuple[int, ...]
    versions: tuple[int, ...]
    once: bool = False

    @property
    def bubble(self) -> float:
        """Bubble fraction, idle / total."""
        return self.bubble_time / (self.work + self.bubble_time)
