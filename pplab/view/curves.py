"""Losses of several runs in one picture, each line named at its own end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pplab.view import colours

#: One look a curve: a colour and, so that colour is never alone, a dash.
LOOKS: tuple[tuple[str, Any], ...] = (
    (colours.WORK["F"], "-"), (colours.WORK["B"], (0, (5, 2))), (colours.WORK["U"], (0, (1, 1.5))),
    (colours.WORK["W"], (0, (5, 2, 1, 2))),
)  # fmt: skip


class Curves:
    """Loss over micro-batches or steps; shows itself as a picture with a text alternative."""

    def __init__(
        self,
        losses: Mapping[str, Sequence[float]],
        *,
        window: int = 16,
        unit: str = "micro-batches",
    ) -> None:
        """losses: one list of numbers by name; window: how many are averaged into one point.
        Raises ValueError when there are no curves, too many, or one is shorter than the window."""
        if not 1 <= len(losses) <= len(LOOKS):
            raise ValueError(f"give 1 to {len(LOOKS)} curves, not {len(losses)}")
        short = [name for name, values in losses.items() if len(values) < window]
        if short:
            raise ValueError(f"{short[0]} has fewer than {window} losses: choose a smaller window")
        self.losses = {name: list(map(float, values)) for name, values in losses.items()}
        self.window, self.unit = window, unit

    def smooth(self, name: str) -> list[float]:
        """Means over `window` neighbours."""
        values, width = self.losses[name], self.window
        return [sum(values[i : i + width]) / width for i in range(len(values) - width + 1)]

    def __str__(self) -> str:
        ends = {name: self.smooth(name) for name in self.losses}
        words = ", ".join(f"{name} from {v[0]:.2f} to {v[-1]:.2f}" for name, v in ends.items())
        longest = max(map(len, self.losses.values()))
        return f"[measured] loss over {longest} {self.unit}, means of {self.window}: {words}"

    __repr__ = __str__

    def figure(self) -> Any:
        """The picture as a matplotlib Figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3.2), layout="constrained")
        axes = figure.subplots()
        ends = []
        for (name, _), (colour, dash) in zip(self.losses.items(), LOOKS, strict=False):
            line = self.smooth(name)
            seen = [i + self.window for i in range(len(line))]
            axes.plot(seen, line, color=colour, linestyle=dash, linewidth=1.8)
            ends.append((line[-1], seen[-1], name, colour))
        low, high = axes.get_ylim()
        gap, last = (high - low) * 0.075, -math.inf
        for y, x, name, colour in sorted(ends):
            last = max(y, last + gap)
            axes.annotate(
                name, (x, y), (x + axes.get_xlim()[1] * 0.015, last), color=colour, va="center",
                annotation_clip=False,
            )  # fmt: skip
        axes.set_xlabel(f"{self.unit} seen")
        axes.set_ylabel(f"loss (mean of {self.window})")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.12)
        return figure

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pplab.view.show import bundle
        from pplab.view.static import png_of

        return bundle(None, png_of(self.figure()), str(self))


def curves(
    losses: Mapping[str, Sequence[float]], *, window: int = 16, unit: str = "micro-batches"
) -> Curves:
    """Losses side by side: ``curves({"1F1B": run.losses, ...})``. See ``Curves``."""
    return Curves(losses, window=window, unit=unit)
