"""Times and tables as people read them, the same in every sentence, picture and table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def scale(unit: str, longest: float) -> tuple[float, str]:
    """(factor, unit) that make times up to `longest` readable: 0.013 s is shown in ms."""
    if unit != "s":
        return 1.0, unit
    for size, name in _SECONDS:
        if longest >= size:
            return 1 / size, name
    return 1e6, "µs"


def number(value: float, digits: int = 4) -> str:
    """A number with `digits` figures, and all of them before the point: 12345, never 1.234e+04."""
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def duration(time: float, unit: str, digits: int = 4) -> str:
    """A time with its unit: ``33 units``, ``12.4 ms``, ``46.35 s``; `time` is in `unit`."""
    factor, name = scale(unit, abs(time))
    return f"{number(time * factor, digits)} {name if time else unit}"


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0, -1)) -> str:
    """A table as text, a line a row: the columns numbered in `left` stand left (-1 is the last
    one), the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lefts = {number % len(widths) for number in left}
    return "\n".join(
        "  ".join(
            text.ljust(width) if number in lefts else text.rjust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
