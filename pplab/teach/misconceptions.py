"""The mistakes that nearly everybody makes once, each with a name and with what is true instead.

A question that meets one says so in its verdict; tests/unit/test_teach_misconceptions.py holds the
table of the answers that give each of them away.
"""

from __future__ import annotations

from typing import NamedTuple


class Misconception(NamedTuple):
    """A belief and the fact that replaces it, one sentence each."""

    belief: str
    fact: str


MISCONCEPTIONS: dict[str, Misconception] = {
    "overhead-is-bubble": Misconception(
        "(P-1)/M is the bubble.",
        "(P-1)/M is idle over useful (bubble overhead); the bubble, idle over total, is "
        "(P-1)/(M+P-1).",
    ),
    "gas-times-replicas": Misconception(
        "GAS x replicas is the number of micro-batches of a pipeline.",
        "One pipeline sees GAS micro-batches a step; its replicas have micro-batches of their own.",
    ),
    "memory-grows-with-m": Misconception(
        "More micro-batches take more memory under 1F1B.",
        "Rank s of P holds at most P - s of them, however many there are.",
    ),
    "1f1b-smaller-bubble": Misconception(
        "1F1B has a smaller bubble than GPipe.",
        "The bubbles are equal; 1F1B needs less memory.",
    ),
    "last-stage-most-memory": Misconception(
        "The last stage needs the most memory.",
        "The first one does: it holds P micro-batches, the last one holds 1.",
    ),
    "checkpointing-shrinks-bubble": Misconception(
        "Activation checkpointing shrinks the bubble.",
        "It makes backward passes longer and leaves the share (P-1)/(M+P-1) as it is; what shrinks "
        "is memory.",
    ),
    "zero3-saves-more": Misconception(
        "ZeRO-3 and a pipeline together save even more.",
        "DeepSpeed refuses ZeRO-2 and ZeRO-3 with a pipeline; ZeRO-1 is what goes with it.",
    ),
    "key-turns-it-on": Misconception(
        "A JSON key turns the pipeline on.",
        "Only handing a PipelineModule to deepspeed.initialize does; unknown keys are ignored.",
    ),
    "parameters-are-time": Misconception(
        "Equal numbers of parameters take equal time.",
        "An embedding has many parameters and hardly any work; measure the time.",
    ),
    "excess-lost-in-full": Misconception(
        "The excess of the slowest stage is lost in full, wherever that stage is.",
        "Only the last stage loses all of it; the excess of an earlier one partly disappears in "
        "time that others wait anyway.",
    ),
    "zero-bubble-zero-idle": Misconception(
        "A zero-bubble schedule leaves no rank idle.",
        "It leaves no gap between a rank's own first and last operation; starts and ends are still "
        "staggered.",
    ),
    "busy-means-no-bubble": Misconception(
        "100 % GPU utilisation means that there is no bubble.",
        "A GPU that waits inside a receive counts as busy; measure useful time.",
    ),
    "pipedream-wrong-gradients": Misconception(
        "PipeDream's gradients are wrong.",
        "They are exact, for the stashed weights that the forward pass used.",
    ),
    "warm-up-is-slow": Misconception(
        "A slow first step is a slow pipeline.",
        "In the first step memory is allocated and shapes are agreed on; leave it out and take the "
        "median of the others.",
    ),
}
