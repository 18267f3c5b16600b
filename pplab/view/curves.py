"""Losses of several runs in one picture, each line named at its own end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
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
        ends = {name: line for name in self.losses if (line := self.smooth(name))}
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
            if not line:
                continue
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


class LiveCurves(Curves):
    """Curves that grow while runs run: ``pplab.run(..., on_loss=live.follow("1F1B"))``.

    Display it in the cell that runs; it redraws itself there, at most twice a second.
    """

    def __init__(self, *, window: int = 16, unit: str = "micro-batches") -> None:
        self.losses: dict[str, list[float]] = {}
        self.window, self.unit = window, unit
        self._handle: Any = None
        self._drawn = 0.0

    def follow(self, name: str) -> Callable[[int, float], None]:
        """A curve called `name`, and the function to give to ``pplab.run`` as `on_loss`."""
        if name not in self.losses and len(self.losses) == len(LOOKS):
            raise ValueError(f"no more than {len(LOOKS)} curves fit into one picture")
        values = self.losses[name] = []

        def on_loss(seen: int, loss: float) -> None:
            # a step reports the mean of its micro-batches: it stands for each of them
            values.extend([loss] * (seen - len(values)))
            if self._handle is not None and time.monotonic() > self._drawn + 0.5:
                self.redraw()

        return on_loss

    def redraw(self) -> None:
        """Show the present state in the output that was displayed first."""
        if self._handle is not None and any(map(self.smooth, self.losses)):
            self._handle.update(super()._repr_mimebundle_(), raw=True)
        self._drawn = time.monotonic()

    def show(self) -> None:
        """Display the (still empty) picture here; it fills up as the runs go on."""
        from IPython.display import display

        self._handle = display({"text/plain": "[measured] no loss yet"}, raw=True, display_id=True)


def curves(
    losses: Mapping[str, Sequence[float]], *, window: int = 16, unit: str = "micro-batches"
) -> Curves:
    """Losses side by side: ``curves({"1F1B": run.losses, ...})``. See ``Curves``."""
    return Curves(losses, window=window, unit=unit)
