"""The colours of every picture, and the arithmetic that keeps them readable.

One colour a kind of work, the same in widget, PNG, slides and book. Chunks (virtual stages) of one
kind differ by lightness. Contrast is that of WCAG 2: 4.5 for text on its bar, 3 for a bar's edge on
the page, in the light and in the dark theme.
"""

from __future__ import annotations

#: Colour of each kind of useful work (F, B, W, U).
WORK = {"F": "#4c78a8", "B": "#b35806", "W": "#3f7f4f", "U": "#8c2d62"}
#: What a card shows besides work: page, words, quiet words, thin lines, idle hatch, a cap.
LIGHT = {
    "page": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#57606a",
    "line": "#c3c9d0",
    "hatch": "#b9c0c8",
    "cap": "#b3261e",
}
#: Sends, gradient reductions and loading: neither work nor idle.
GREY = "#7b8086"


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``, 0 (black) to 1 (white)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 (the same) to 21 (black on white)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mix(colour: str, other: str, share: float) -> str:
    """`colour` with a `share` (0 to 1) of `other` mixed in."""
    pairs = ((int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def shade(kind: str, chunk: int = 0, chunks: int = 1) -> str:
    """Colour of a kind of work in one of a rank's chunks: later chunks are lighter."""
    return mix(WORK[kind], "#ffffff", 0.55 * chunk / max(1, chunks - 1))


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on `colour` (4.58 at worst)."""
    return max("#ffffff", "#000000", key=lambda ink: contrast(ink, colour))
