"""Pictures of a schedule that cannot run: how far each rank gets, and what it waits for."""

from __future__ import annotations

from typing import Any

from pplab.core.costs import Costs
from pplab.core.ops import CODE
from pplab.core.schedule import Schedule
from pplab.view import assets
from pplab.view.reach import Reach, reach
from pplab.view.timeline import TimelineView


class StuckView(TimelineView):
    """What can run of a schedule as a timeline, and right of it what each rank stands before.

    In a deadlock numbered arrows lead from each operation that waits to the one it waits for.
    `reach` holds the same as data, ``str()`` as sentences.
    """

    _esm = assets.module(
        *assets.PICTURE,
        "stuck.js",
        render="const v = mount(model, el, { Kind: Stuck });"
        ' model.on("change:rev", v.refresh);'
        ' return () => { model.off("change:rev", v.refresh); v.close(); };',
    )

    def __init__(self, found: Reach, **traits: Any) -> None:
        self.reach = found
        super().__init__(found.timeline, **traits)

    def _more(self) -> dict[str, Any]:
        found, columns = self.reach, self.reach.columns()
        number = {ghost: k for k, (ghost, _, _) in enumerate(columns)}
        return {
            "problems": found.sentences,
            "notes": found.notes,
            "briefs": found.briefs(),
            "awaits": [CODE[kind] if kind else -1 for kind in found.awaited],
            "ghosts": [
                (g.rank, g.label, CODE.get(g.op.kind, 0), column, left_out, g.wrong)
                for g, column, left_out in columns
            ],
            "arrows": [(a.number, number[a.start], number[a.end]) for a in found.arrows],
        }

    def _headline(self) -> dict[str, Any]:
        if not self.reach.stuck:
            return {}
        return {"bubble": self.reach.headline, "caption": self.reach.caption}

    def __str__(self) -> str:
        return self.reach.text()

    def _png(self) -> bytes:
        from pplab.view.stuck_card import png

        return png(self.reach)


def how_far(schedule: Schedule, *, blocking: bool = False, costs: Costs | None = None) -> StuckView:
    """How far each rank of a schedule gets, and where it stops for which reason.

    A schedule that cannot run shows what of it can, and a deadlock as a circle of arrows.
    `blocking` asks instead what happens when every send and receive blocks and each rank receives
    right before an operation and sends right after it; that raises ScheduleError for a schedule
    that cannot run anyway. `costs` default to F 1, B 2.
    """
    if blocking:
        from pplab.view.blocking import blocking_reach

        return StuckView(blocking_reach(schedule, costs))
    return StuckView(reach(schedule, costs))
