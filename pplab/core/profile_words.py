"""A profile in words: one sentence, and a table with a line a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pplab.core.words import aligned, duration, number, scale

if TYPE_CHECKING:
    from pplab.core.profile import Profile

#: Layers written out at the beginning and at the end of a long table.
FIRST, LAST = 24, 8
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
#: Heading and field of each column of bytes.
COLUMNS = (
    ("parameters", "parameter_bytes"),
    ("kept for B", "activation_bytes"),
    ("handed on", "output_bytes"),
)


def in_bytes(count: float) -> str:
    """``2.01 MiB``."""
    for size, name in _BYTES:
        if count >= size:
            return f"{number(count / size, 3)} {name}"
    return f"{count:.0f} B"


def sentence(profile: Profile) -> str:
    """How many layers and parameters, how long a micro-batch takes, and where that is from."""
    time = f"{profile.times.sum():.4g} units"
    if profile.unit == "s":
        time = duration(float(profile.times.sum()), "s")
    return (
        f"{len(profile)} layer{'s' * (len(profile) > 1)}, "
        f"{profile.column('parameters').sum():,.0f} parameters, {time} a "
        f"micro-batch ({profile.source})"
    )


def table(profile: Profile) -> list[list[str]]:
    """A heading and a row a layer: name, F, B, spread, share of the time, bytes where known."""
    longest = float(profile.times.max())
    factor, unit = scale(profile.unit, longest)
    spread = bool(profile.column("spread").any())
    sized = [(title, name) for title, name in COLUMNS if profile.column(name).any()]
    head = ["layer", f"F ({unit})", f"B ({unit})", *([f"± ({unit})"] if spread else []), "share"]
    rows = [head + [title for title, _ in sized]]
    total = float(profile.times.sum()) or 1.0
    for layer in profile.layers:
        row = [layer.name, _number(layer.forward * factor), _number(layer.backward * factor)]
        row += [_number(layer.spread * factor)] if spread else []
        row += [f"{layer.time / total:.1%}"]
        rows.append(row + [in_bytes(getattr(layer, name)) for _, name in sized])
    if len(profile) > FIRST + LAST:
        between = len(profile) - FIRST - LAST
        gap = [f"... {between} more ...", *[""] * (len(rows[0]) - 1)]
        rows = [*rows[: FIRST + 1], gap, *rows[-LAST:]]
    return rows


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as text: the first column to the left, numbers to the right."""
    return aligned(rows, left=(0,)).split("\n")


def text(profile: Profile) -> str:
    """The sentence, the table, and what a reader must know."""
    return "\n".join(
        [sentence(profile), *lines(table(profile)), *(f"note: {note}" for note in profile.notes)]
    )


def _number(value: float) -> str:
    """Three figures, as a table wants them."""
    return number(value, 3)
