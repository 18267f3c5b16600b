"""The vocabulary of a pipeline: what a rank can be told to do.

An operation has a text form that reads back: ``F3`` is the forward pass of micro-batch 3, ``B3``
its backward pass, ``W3`` the weight-gradient half of that backward pass when a schedule splits it
off, ``F3.1`` the forward pass of micro-batch 3 through chunk 1 of the rank, and ``U`` the optimizer
step. Sends and receives are never written: they follow from the operations (see ``messages``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

#: Letters of a timeline, in the order of their codes. The first four are operations of a schedule;
#: the rest is what a recorded run spends besides: S sending, R waiting for a message, G gradient
#: reduction and waiting for the other ranks, L loading a batch.
KINDS = "FBWUSRGL"
CODE = {letter: code for code, letter in enumerate(KINDS)}
#: Useful work: a rank that runs one of these is not idle.
USEFUL = "FBWU"
WORDS = {
    "F": "forward",
    "B": "backward",
    "W": "weight gradient",
    "U": "optimizer step",
    "S": "send",
    "R": "wait for a message",
    "G": "gradient reduction",
    "L": "load data",
}
#: Micro-batch number of an operation that belongs to the whole step, such as ``U``.
WHOLE_STEP = -1

_TEXT = re.compile(r"([FBW])(\d+)(?:\.(\d+))?|U(\d+)?")


class Op(NamedTuple):
    """One operation of one rank: kind (F, B, W or U), micro-batch, chunk (virtual stage)."""

    kind: str
    micro_batch: int = WHOLE_STEP
    chunk: int = 0

    def __str__(self) -> str:
        number = "" if self.micro_batch == WHOLE_STEP else str(self.micro_batch)
        return f"{self.kind}{number}" + (f".{self.chunk}" if self.chunk else "")

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def parse(cls, text: str) -> Op:
        """The operation that ``str`` writes as `text`; ValueError when it is none."""
        match = _TEXT.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{text!r} is not an operation: write F3, B3, W3, F3.1 or U")
        if text.strip().startswith("U"):
            return cls("U", int(match[4]) if match[4] else WHOLE_STEP)
        return cls(match[1], int(match[2]), int(match[3] or 0))


#: The ranks of a schedule run the same operations: one object each will do.
_shared = lru_cache(maxsize=1 << 16, typed=True)


@_shared
def F(micro_batch: int, chunk: int = 0) -> Op:
    """Forward pass of a micro-batch (through one chunk of the rank)."""
    return Op("F", micro_batch, chunk)


@_shared
def B(micro_batch: int, chunk: int = 0) -> Op:
    """Backward pass of a micro-batch: the whole of it, or only the input gradient when the same
    rank also runs ``W`` for this micro-batch and chunk."""
    return Op("B", micro_batch, chunk)


@_shared
def W(micro_batch: int, chunk: int = 0) -> Op:
    """Weight-gradient half of a backward pass that was split (Qi et al., arXiv 2401.10241)."""
    return Op("W", micro_batch, chunk)


def U(micro_batch: int = WHOLE_STEP) -> Op:
    """Optimizer step: once after everything else, or during a stream of micro-batches (PipeDream).

    With a micro-batch it applies the gradients of all micro-batches up to that one that were not
    applied before.
    """
    return Op("U", micro_batch)
