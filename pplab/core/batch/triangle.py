"""The batch triangle: what DeepSpeed makes of three numbers of which two are usually written.

    train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * replicas

*Replicas* (d) are the copies of the whole model: d = ranks / (stages * tensor). DeepSpeed's message
calls them "world_size", which is not the number of GPUs when there is a pipeline. In a pipeline the
number of micro-batches of a step **is** ``gradient_accumulation_steps`` (``pipe/engine.py:93``):
it is counted in one pipeline and not multiplied by the replicas.

The rules are those of DeepSpeed 0.19.8 (``runtime/config.py:587-649``): what is missing is filled
by *floor* division, and only then is the product compared, so a message can name numbers that
nobody wrote. ``resolve`` does the same and says which numbers were written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Short name -> DeepSpeed's key.
KEYS = {
    "train": "train_batch_size",
    "micro": "train_micro_batch_size_per_gpu",
    "gas": "gradient_accumulation_steps",
}


class BatchError(ValueError):
    """Ranks, stages and tensor-parallel size that do not fit together."""


@dataclass(frozen=True)
class Batch:
    """The triangle as DeepSpeed resolves it; a value is None when it was neither given nor filled.

    train, micro, gas: the three numbers; replicas: d
    filled:  short names of the numbers that DeepSpeed worked out
    reason:  "" when the triangle holds, else "nothing-given" (neither train nor micro),
             "not-positive", "divided-by-zero" or "unequal"
    """

    train: int | None
    micro: int | None
    gas: int | None
    replicas: int
    filled: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True when DeepSpeed accepts it."""
        return not self.reason

    @property
    def written(self) -> tuple[str, ...]:
        """Short names of the numbers that were given."""
        return tuple(k for k in KEYS if getattr(self, k) is not None and k not in self.filled)

    @property
    def too_small(self) -> str:
        """Short name of a number below 1, a written one before a filled one; "" when none is."""
        bad = [k for k in KEYS if (getattr(self, k) is not None and getattr(self, k) < 1)]
        return next((k for k in bad if k not in self.filled), bad[0] if bad else "")

    def rows(self) -> list[tuple[str, int | None, str]]:
        """(key, value, how it came about) of the three numbers."""
        how = {
            "train": "filled: micro * gas * replicas",
            "micro": "filled: train // replicas // gas",
            "gas": "filled: train // micro // replicas",
        }
        if set(self.filled) == {"micro", "gas"}:
            how |= {"gas": "filled: 1", "micro": "filled: train // replicas"}
        if set(self.filled) == {"train", "gas"}:
            how |= {"gas": "filled: 1", "train": "filled: micro * replicas"}
        shown = []
        for name, key in KEYS.items():
            value = getattr(self, name)
            word = how[name] if name in self.filled else "written" if value is not None else "none"
            shown.append((key, value, word))
        return shown

    def sentence(self) -> str:
        """What DeepSpeed does with these numbers, in one or two plain sentences."""
        if self.reason == "nothing-given":
            return (
                "DeepSpeed needs train_batch_size or train_micro_batch_size_per_gpu; "
                "gradient_accumulation_steps alone does not say how large a batch is."
            )
        if self.reason == "divided-by-zero":
            return "One of the written numbers is 0, and DeepSpeed divides by it."
        product = f"{self.micro} x {self.gas} x {self.replicas}"
        names = f"micro-batch {self.micro} x GAS {self.gas} x replicas {self.replicas}"
        if self.reason == "not-positive":
            how = "was worked out as" if self.too_small in self.filled else "is"
            value = getattr(self, self.too_small)
            return f"{KEYS[self.too_small]} {how} {value}; it must be at least 1."
        filled = [f"{KEYS[k]} = {getattr(self, k)}" for k in self.filled]
        note = f" (DeepSpeed filled in {', '.join(filled)})" if filled else ""
        if self.reason == "unequal":
            total = (self.micro or 0) * (self.gas or 0) * self.replicas
            return f"train_batch_size {self.train} is not {product} = {total}: {names}{note}."
        return f"train_batch_size {self.train} = {product}: {names}{note}."

    def __str__(self) -> str:
        return self.sentence()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: the numbers, which were written and which were filled in."""
        from pplab.view.batch import bundle_of_batch  # a display is the one reason to look up

        return bundle_of_batch(self)


def resolve(
    train: int | None = None,
    micro: int | None = None,
    gas: int | None = None,
    *,
    replicas: int = 1,
) -> Batch:
    """The triangle as DeepSpeed 0.19.8 fills and checks it; None means that a key is not written.

    Never raises for bad numbers: ``Batch.reason`` says what DeepSpeed would raise for.
    """
    given = (train, micro, gas)
    filled: tuple[str, ...] = ()
    try:
        if train is not None and micro is not None and gas is not None:
            pass
        elif train is not None and micro is not None:
            gas, filled = train // micro // replicas, ("gas",)
        elif train is not None and gas is not None:
            micro, filled = train // replicas // gas, ("micro",)
        elif micro is not None and gas is not None:
            train, filled = micro * gas * replicas, ("train",)
        elif train is not None:
            gas, micro, filled = 1, train // replicas, ("micro", "gas")
        elif micro is not None:
            train, gas, filled = micro * replicas, 1, ("train", "gas")
    except ZeroDivisionError:
        return Batch(*given, replicas, (), "divided-by-zero")
    if train is None or micro is None or gas is None:
        return Batch(train, micro, gas, replicas, (), "nothing-given")
    reason = ""
    if min(train, micro, gas) <= 0:
        reason = "not-positive"
    elif train != micro * gas * replicas:
        reason = "unequal"
    return Batch(train, micro, gas, replicas, filled, reason)


def replicas_of(ranks: int, stages: int = 1, tensor: int = 1) -> int:
    """Data-parallel size d = ranks / (stages * tensor); raises BatchError when that is not whole.

    DeepSpeed says "num_stages (3) must divide distributed world size (8)" (``pipe/module.py:175``).
    """
    for name, value in (("ranks", ranks), ("stages", stages), ("tensor", tensor)):
        if value < 1:
            raise BatchError(f"{name} must be at least 1, not {value}")
    each = stages * tensor
    if ranks % each:
        fits = sorted({n * each for n in (ranks // each, ranks // each + 1) if n})
        sizes = " or ".join(map(str, fits))
        what = f"{stages} stages" + (f" x {tensor} tensor-parallel ranks" if tensor > 1 else "")
        raise BatchError(
            f"{what} = {each} ranks for one replica, which does not divide {ranks}: use {sizes} "
            "ranks, or fewer stages"
        )
    return ranks // each
