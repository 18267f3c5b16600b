"""What the name of a range says, and how one program names its ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Named(NamedTuple):
    """What a name says. None: it does not say. `stage` is the slice of the model; `of` is F or B
    when the range receives a message for that operation, or sends what it made; `double` marks a
    range in which two operations overlap; `part` is the piece of a sequence that was split."""

    kind: str
    micro_batch: int | None = None
    chunk: int | None = None
    stage: int | None = None
    of: str = ""
    double: bool = False
    part: int = 0


@dataclass(frozen=True)
class Convention:
    """How one program names its ranges. `within`: its F and B hold the wait for their message."""

    title: str
    parse: Callable[[str], tuple[Named, ...]]
    within: bool = False
    optimizer: bool = True  # PyTorch's own range of the optimizer is its U
