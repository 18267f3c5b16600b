"""A schedule as the value of a cell: its timeline and its operations, or why it cannot run."""

from __future__ import annotations

from typing import Any

from pplab.core.schedule import Schedule
from pplab.view.reach import reach
from pplab.view.show import bundle, warm_once
from pplab.view.stuck import StuckView
from pplab.view.timeline import TimelineView

#: Operations beyond which a schedule is shown in words only: a notebook would store megabytes.
MOST = 100_000
ROWS, ALONG = 32, 48  # ranks, and operations of a rank, that are written out


class PlanView(TimelineView):
    """The simulated timeline of a schedule, and under it the operations of each rank as text."""

    def __init__(self, schedule: Schedule, **options: Any) -> None:
        self._schedule = schedule
        super().__init__(schedule.simulate(), **options)

    def _more(self) -> dict[str, Any]:
        return {"ops": operations(self._schedule)}

    def __str__(self) -> str:
        return f"{super().__str__()}\n{operations(self._schedule)}"


class StuckPlanView(StuckView):
    """How far a schedule gets that cannot run, and its operations as text."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        super().__init__(reach(schedule))

    def _more(self) -> dict[str, Any]:
        return super()._more() | {"ops": operations(self._schedule)}

    def __str__(self) -> str:
        return f"{super().__str__()}\n{operations(self._schedule)}"


def schedule_bundle(schedule: Schedule) -> dict[str, Any]:
    """MIME bundle of a schedule: what a notebook shows as the value of a cell.

    One that can run is simulated under the default costs (F 1, B 2, free messages); of one that
    cannot, the picture says how far each rank gets and what it waits for. Below stand the
    operations as text.
    """
    count = sum(map(len, schedule.ops))
    if count > MOST:
        shown = f"{count} operations, too many for a picture here: draw plan.simulate() instead"
        return bundle(None, None, f"{shown}.\n{operations(schedule)}")
    warm_once()
    view = StuckPlanView(schedule) if schedule.problems else PlanView(schedule)
    return view._repr_mimebundle_()


def operations(schedule: Schedule) -> str:
    """The operations of each rank as text, a line a rank; long lists are cut."""
    head = f"{schedule.name}: {schedule.stages} stages, {schedule.micro_batches} micro-batches"
    if schedule.chunks > 1:
        head += f", {schedule.chunks} chunks a rank ({schedule.layout.placement})"
    lines = [head]
    for rank, row in enumerate(schedule.ops[:ROWS]):
        more = f" ... and {len(row) - ALONG} more" if len(row) > ALONG else ""
        lines.append(f"rank {rank}: {' '.join(map(str, row[:ALONG]))}{more}")
    if schedule.stages > ROWS:
        lines.append(f"... and {schedule.stages - ROWS} more ranks")
    return "\n".join(lines)
