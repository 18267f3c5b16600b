"""Numbers near the written ones that make the batch triangle hold, the closest first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pplab.core.batch.triangle import KEYS, Batch, resolve


@dataclass(frozen=True)
class Proposal:
    """Numbers that DeepSpeed accepts, near the written ones.

    changed: (short name or "replicas", old, new) of what has to be rewritten
    distance: sum of abs(log2(new / old)) over the changes; half or double counts 1
    """

    batch: Batch
    changed: tuple[tuple[str, int, int], ...]
    distance: float

    def __str__(self) -> str:
        names = {**KEYS, "replicas": "replicas"}
        return ", ".join(f"{names[name]} {old} -> {new}" for name, old, new in self.changed)


def proposals(batch: Batch, limit: int = 5) -> list[Proposal]:
    """Up to `limit` ways to make a failing triangle hold, the closest to what was written first.

    Each changes one written number, or the number of replicas (which costs or frees hardware, so
    it comes after an equally close change). Empty when nothing is wrong or nothing was given.
    """
    if batch.ok or batch.reason == "nothing-given":
        return []
    old = {name: getattr(batch, name) for name in batch.written}
    found: dict[tuple, Proposal] = {}
    for name, value in _candidates(old, batch.replicas):
        if value < 1:
            continue
        numbers = {**old, name: value}
        replicas = numbers.pop("replicas", batch.replicas)
        new = resolve(**numbers, replicas=replicas)
        was = batch.replicas if name == "replicas" else old[name]
        if new.ok and value != was:
            far = abs(math.log2(value / max(was, 0.5)))
            found[name, value] = Proposal(new, ((name, was, value),), far)
    order = sorted(found.values(), key=lambda p: (p.distance, p.changed[0][0] == "replicas"))
    return order[:limit]


def _candidates(old: dict[str, int], replicas: int) -> Iterator[tuple[str, int]]:
    """(name, value) worth trying: neighbours that divide, for each number that may change."""
    train, micro, gas = (old.get(name) for name in KEYS)
    step = (micro or 1) * (gas or 1) * replicas
    if train is not None:
        if micro is not None and gas is not None:
            yield "train", step
        yield from (("train", value) for value in _multiples(train, step))
        rest = train // replicas if train % replicas == 0 else 0
        for name, other in (("micro", gas), ("gas", micro)):
            if name in old and rest:
                share = rest // (other or 1) if rest % (other or 1) == 0 else 0
                yield name, share
                if other is None or len(old) < 3:
                    yield from ((name, value) for value in _divisors_near(rest, old[name]))
        whole = (micro or 1) * (gas or 1)
        if whole > 0 and train > 0 and train % whole == 0:
            yield "replicas", train // whole
            yield from (("replicas", v) for v in _divisors_near(train // whole, replicas))
    for name in old:
        yield name, 1


def _multiples(value: int, step: int) -> tuple[int, ...]:
    """The multiples of `step` next to `value`."""
    if step <= 0:
        return ()
    below = value // step * step
    return (below, below + step)


def _divisors_near(whole: int, value: int) -> tuple[int, ...]:
    """The divisors of `whole` next below and next above `value`."""
    if whole < 1:
        return ()
    small = [n for n in range(1, math.isqrt(whole) + 1) if whole % n == 0]
    divisors = sorted({*small, *(whole // n for n in small)})
    below = [n for n in divisors if n < value][-1:]
    above = [n for n in divisors if n > value][:1]
    return (*below, *above)
