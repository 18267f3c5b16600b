"""Messages within the range of an operation, cut off from the work.

The ranges of some programs hold the wait for the message that an operation needs, and the sending
of what it made. gloo's own ranges tell them apart: ``gloo:recv`` ends when the message is there,
``gloo:send`` begins when it is handed over.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from pplab.traces.named import Named
from pplab.traces.rows import RankTrace, Row


def received(rows: list[Row], trace: RankTrace) -> list[Row]:
    """Cut the wait for its message off the beginning of an operation, as a span of kind R.

    A receive belongs to the operation in whose range it was posted, or to the one that the range
    it was posted in names (``PP:1RECV_F0``).
    """
    starts = [row.start for row in rows]
    arrival: dict[tuple[int, Named], int] = {}
    for posted, arrived in trace.receipts:
        at = bisect_right(starts, posted) - 1
        if at < 0 or posted > rows[at].end:
            continue
        row = rows[at]
        if row.named.kind in "FB":
            arrival[at, row.named] = max(arrival.get((at, row.named), 0), arrived)
        elif row.named.kind == "R" and row.named.of:
            for later in range(at + 1, len(rows)):  # the next such operation after the receive
                it = rows[later].named
                same = it.micro_batch == row.named.micro_batch and it.stage == row.named.stage
                if same and it.kind == row.named.of:
                    arrival[later, it] = max(arrival.get((later, it), 0), arrived)
                    break
    result = []
    for number, row in enumerate(rows):
        arrived = min(arrival.get((number, row.named), 0), row.end)
        if arrived > row.start:
            result.append(replace(row, named=row.named._replace(kind="R"), end=arrived))
            row = replace(row, start=arrived)
        result.append(row)
    return result


def sent(rows: list[Row], trace: RankTrace) -> list[Row]:
    """Cut what follows the handing over of a message off the end of its operation, as kind S."""
    starts = [row.start for row in rows]
    first: dict[int, int] = {}
    for at in sorted(trace.sends):
        number = bisect_right(starts, at) - 1
        if number < 0 or rows[number].named.kind not in "FB":
            continue
        if starts[number] < at <= rows[number].end:
            first.setdefault(number, at)
    result = []
    for number, row in enumerate(rows):
        at = first.get(number, row.end)
        result.append(replace(row, end=at))
        if at < row.end:
            result.append(replace(row, named=row.named._replace(kind="S"), start=at))
    return result
