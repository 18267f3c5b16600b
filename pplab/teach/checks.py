"""A sentence that must hold, beside a cell whose numbers differ from run to run."""

from __future__ import annotations


def holds(claim: bool, sentence: str) -> None:
    """Print `sentence` when `claim` is true; raise AssertionError with it when it is not.

    Measured cells differ from machine to machine; what is said about them must not. The learner
    reads what to take away, and CI finds out when it stops being true.
    """
    if not claim:
        raise AssertionError(
            f"this should hold here, but does not: {sentence}. If this machine had something else "
            "to do, run the cells that measured it again."
        )
    print(f"✓ {sentence}")
