"""What is tuned: a model that can be profiled and run here, or profiles of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pplab.advise.tune.sizes import Sizes
from pplab.core.profile import Profile
from pplab.runtime.hardware import hardware
from pplab.runtime.job import Job
from pplab.runtime.models import Model, as_model
from pplab.runtime.partitioned import paced_profile
from pplab.runtime.profiling import profile

Say = Callable[[str], None]
#: Sizes that are measured when nobody says which: the ends and one between them.
MEASURED = 3
#: Profiles of each size, taking turns, and passes of each.
TURNS, REPEATS = 3, 8
#: Samples of a micro-batch of a paced model, at most, when nobody says.
USUAL = 4


@dataclass(frozen=True)
class Subject:
    """sizes: what the layers cost; model: the description for a micro-batch size, None when there
    are only profiles; settings: fields of ``Job`` that all runs share."""

    sizes: Sizes
    model: Callable[[int], Model] | None
    settings: dict[str, Any]

    @property
    def runs(self) -> bool:
        """Whether it can be run here."""
        return self.model is not None

    @property
    def paced(self) -> bool:
        """Whether its times are set: cores do not matter then."""
        one = self.model(self.sizes.measured[0]) if self.model else None
        return one.paced if one else False

    @property
    def family(self) -> str:
        """The family of the model, "" when there are only profiles."""
        return self.model(self.sizes.measured[0]).family if self.model else ""

    @property
    def dtype(self) -> str:
        """What it computes in."""
        return str(self.settings.get("dtype", "fp32"))

    def places(self) -> int | None:
        """How many ranks can compute here at the same time; None: as many as one likes."""
        if self.paced or self.model is None:
            return None
        here, device = hardware(), self.settings.get("device", "auto")
        if device != "cpu" and here.gpus:
            return len(here.gpus)
        return max(1, here.cores // int(self.settings.get("threads", 1)))


def subject_of(
    what: Model | Callable[[int], Model] | Profile | Iterable[Profile],
    sizes: tuple[int, ...],
    given: bool,
    settings: dict[str, Any],
    model: Model | Callable[[int], Model] | None = None,
    say: Say = lambda text: None,
) -> Subject:
    """The subject; a computed model is profiled at some of the sizes.

    given: the sizes were asked for, and are not just those that divide the batch. Raises
    ValueError for profiles that do not go together, RunError when profiling fails.
    """
    if isinstance(what, Profile):
        return Subject(Sizes.of(what, sizes[0] if given else None), _maker(model), settings)
    if not isinstance(what, Model) and not callable(what):
        return Subject(Sizes.of(what), _maker(model), settings)
    if model is not None:
        raise ValueError("model= names what to run for profiles; the first argument is a model")
    make = _maker(what)
    assert make is not None
    one = make(sizes[0])
    if one.paced:
        return Subject(_paced(what, make, sizes, given, settings), make, settings)
    chosen = _spread(sizes)
    found: dict[int, Profile] = {}
    for turn in range(TURNS):
        for size in chosen:
            say(f"times the layers with micro-batches of {size}, turn {turn + 1} of {TURNS}")
            timed = _timed(make(size), size, settings)
            found[size] = least(timed, found.get(size, timed))
    return Subject(Sizes.of(found.values()), make, settings)


def least(one: Profile, other: Profile) -> Profile:
    """The lesser time of each layer: whatever else the machine does only adds time."""
    layers = [
        replace(a, forward=min(a.forward, b.forward), backward=min(a.backward, b.backward))
        for a, b in zip(one.layers, other.layers, strict=True)
    ]
    return replace(one, layers=tuple(layers))


def _timed(model: Model, size: int, settings: dict[str, Any]) -> Profile:
    own = {k: v for k, v in settings.items() if k in ("dtype", "device", "threads", "seed")}
    timed = profile(model, micro_batch_size=size, repeats=REPEATS, quiet=True, **own)
    return replace(timed, samples=size)


def _maker(model: Any) -> Callable[[int], Model] | None:
    if model is None:
        return None
    if callable(model) and not isinstance(model, Model):
        return lambda size: as_model(model(size))
    one = as_model(model)
    return lambda size: one


def _paced(
    what: Any,
    make: Callable[[int], Model],
    sizes: tuple[int, ...],
    given: bool,
    settings: dict[str, Any],
) -> Sizes:
    """What a paced description says. One that is the same for every size has one size only."""

    def said(size: int) -> Profile:
        model = make(size)
        if not model.settings["layers"]:
            raise ValueError("say how many paced layers there are: models.paced(..., layers=8)")
        return paced_profile(_job(model, size, settings))

    fixed = isinstance(what, Model)
    few = tuple(size for size in sizes if size <= USUAL)[-1:] or sizes[:1]
    only = () if not fixed else sizes if given else few
    if fixed and len(only) > 1:
        raise ValueError(
            "paced layers take their time whatever the micro-batch size, so larger ones would look "
            f"free: give one size instead of {list(only)}, or a function of the size that returns "
            "a paced model"
        )
    return Sizes((replace(said((only or sizes)[0]), samples=(only or sizes)[0]),), said, only)


def _job(model: Model, size: int, settings: dict[str, Any]) -> Job:
    allowed = {k: v for k, v in settings.items() if k in ("dtype", "device", "threads", "seed")}
    return Job(model, 1, 1, engine="plain", micro_batch_size=size, **allowed)


def _spread(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest, the largest, and one near the middle of them on a log scale."""
    ordered = sorted(set(sizes))
    if len(ordered) <= MEASURED:
        return tuple(ordered)
    middle = (ordered[0] * ordered[-1]) ** 0.5
    inner = min(ordered[1:-1], key=lambda size: max(size, middle) / min(size, middle))
    return (ordered[0], inner, ordered[-1])
