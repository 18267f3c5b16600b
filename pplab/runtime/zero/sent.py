"""What one rank told the others in one step, added up: prints as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pplab.core.memory import size
from pplab.core.words import aligned

#: Where in a step, in the order of the table.
WHERE = {"F": "in F", "B": "in B", "G": "reducing", "U": "in U"}


@dataclass(frozen=True)
class Sent:
    """Rows of ``traffic.Traffic`` of one rank and step.

    A message is one call that all ranks take part in (coalesced ones count once). Its bytes are
    those of the whole tensor, not of what travels over the wire, which depends on the algorithm.
    """

    rows: tuple[dict[str, Any], ...]
    micro_batches: int

    @classmethod
    def of(cls, rows: Iterable[dict[str, Any]], micro_batches: int) -> Sent:
        """The last step of one rank's rows: the first ones also find out what will be needed."""
        rows = list(rows)
        last = max((row["step"] for row in rows), default=0)
        return cls(tuple(row for row in rows if row["step"] == last), micro_batches)

    def calls(self, during: str = "FBGU", message: str | None = None) -> int:
        """Messages in operations of some kinds; message: only "all-gather", "all-reduce", ..."""
        return self._sum("calls", during, message)

    def bytes(self, during: str = "FBGU", message: str | None = None) -> int:
        """Their bytes; arguments as ``calls``."""
        return self._sum("bytes", during, message)

    def _sum(self, what: str, during: str, message: str | None) -> int:
        return sum(
            row[what]
            for row in self.rows
            if row["during"] in during and message in (None, row["message"])
        )

    def table(self) -> list[tuple[str, ...]]:
        """Cells, the header first: messages by kind and place, and bytes."""
        kinds = list(dict.fromkeys(row["message"] for row in self.rows))
        found: list[tuple[str, ...]] = [("message", *WHERE.values(), "in all", "bytes")]
        for kind in kinds:
            counts = [str(self.calls(place, kind) or "") for place in WHERE]
            total = str(self.calls(message=kind))
            found.append((kind, *counts, total, size(self.bytes(message=kind))))
        return found

    def __str__(self) -> str:
        head = f"one step, {self.micro_batches} micro-batches, as seen from one rank:"
        if not self.rows:
            return f"{head} nothing sent"
        return f"{head}\n{aligned(self.table(), left=(0,))}"

    __repr__ = __str__
