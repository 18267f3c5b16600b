"""The step-through player: a timeline with a cursor, and what every rank does at that moment."""

from __future__ import annotations

from typing import Any

import numpy as np

from pplab.core.ops import USEFUL
from pplab.core.schedule import Schedule
from pplab.core.timeline import Timeline
from pplab.view import assets, static
from pplab.view.columns import columns, rows_of
from pplab.view.moments import Moment, middle, moment
from pplab.view.timeline import TimelineView


class Player(TimelineView):
    """A timeline one can walk through: a table under it says what every rank runs, waits for,
    holds in memory and does next. Keys and buttons are those of every timeline; a click on the
    picture goes to that moment. ``moment`` is the one it begins with.
    """

    _esm = assets.module(
        *assets.PICTURE,
        "player.js",
        render='const v = player(model, el); model.on("change:rev", v.refresh);'
        ' return () => { model.off("change:rev", v.refresh); v.close(); };',
    )
    _css = assets.style("timeline.css", "player.css")

    def __init__(self, timeline: Timeline, *, at: float | None = None, **options: Any) -> None:
        self.at = middle(timeline) if at is None else at
        self._snaps = at is None
        super().__init__(timeline, **options)

    def show(self, *timelines: Timeline, **options: Any) -> None:
        """Draw one timeline, with the reader at the moment the player began with."""
        if len(timelines) != 1:
            raise ValueError(f"a player shows one timeline, not {len(timelines)}")
        super().show(timelines[0].typical, **options)

    def _more(self) -> dict[str, Any]:
        table = columns(self._timelines, rows_of(self._timelines))
        work = np.flatnonzero(table["kind"] < len(USEFUL))
        begin = int(work[np.argmin(np.abs(table["start"][work] - self.at))]) if len(work) else -1
        return {"begin": begin, "at": None if self._snaps and begin >= 0 else self.at}

    @property
    def moment(self) -> Moment:
        """Every rank at the moment the player begins with."""
        return moment(self._timelines[0], self.at)

    def __str__(self) -> str:
        return f"{static.text(self._timelines)}\n{self.moment}"

    def _png(self) -> bytes:
        return static.png(self._timelines, now=self.moment, **self._options)


def play(
    what: Schedule | Timeline | Any, *, at: float | None = None, memory: bool = False, **times: Any
) -> Player:
    """Walk through a timeline, or the simulation of a schedule, or a run, step by step.

    At each moment a table says what every rank runs or waits for, what it holds in memory and
    what it does next. `at` is the moment to begin with (default: the middle of the step); `times`
    are costs to simulate a schedule with, as in ``plan.simulate``. Raises ScheduleError when the
    schedule cannot run: ``show_stuck`` shows how far it gets.
    """
    if isinstance(what, Schedule):
        what = what.simulate(**times)
    elif times:
        raise TypeError(f"only a schedule is simulated: {', '.join(times)} cannot be set here")
    timeline = what if isinstance(what, Timeline) else what.timeline
    return Player(timeline, at=at, memory=memory)
