"""Small cases with known answers: a uniform cut that is far off, and one stage that is too slow.

The first is an article's: eight layers on three stages, 160 in the slowest stage under the uniform
cut and 115 under the best one. The article gives no layer times; ``costs_like`` finds some by
drawing at random, and ``ARTICLE`` is one of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pplab.core.partition.cuts import loads, uniform
from pplab.core.partition.minimax import least_maximum
from pplab.core.partition.stepper import Stepper
from pplab.core.profile import Profile
from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules import one_f_one_b

Floats = NDArray[np.float64]

#: Costs of 8 layers: 160 in the largest of 3 stages when cut uniformly, 115 when cut best.
ARTICLE = (65, 50, 15, 55, 30, 75, 15, 15)


def article(unit: str = "units") -> Profile:
    """The article's example as a profile, in units or, with ``unit="s"``, in milliseconds."""
    scale = 1e-3 if unit == "s" else 1.0
    source = "made up to match an article's 160 and 115"
    return Profile.of([cost * scale for cost in ARTICLE], unit=unit, source=source)


def costs_like(
    uniform_largest: float = 160,
    best_largest: float = 115,
    *,
    layers: int = 8,
    stages: int = 3,
    grid: float = 5,
    tries: int = 200_000,
    seed: int = 0,
) -> tuple[float, ...]:
    """Layer costs, multiples of `grid`, whose uniform and whose best cut have these largest stages.

    Draws at random, so the same seed gives the same costs. Raises ValueError when none of `tries`
    draws will do: the uniform cut cannot be better than the best, nor many times worse.
    """
    rng = np.random.default_rng(seed)
    most = max(1, int(best_largest // grid))
    bounds = np.array(uniform(layers, stages))
    for _ in range(0, tries, 1_000):
        drawn = rng.integers(1, most, size=(1_000, layers), endpoint=True) * grid
        largest = np.add.reduceat(drawn, bounds[:-1], axis=1).max(axis=1)
        for costs in drawn[largest == uniform_largest]:
            if least_maximum(costs, stages) == best_largest:
                return tuple(costs.tolist())
    text = f"no {layers} multiples of {grid:g} found that give {uniform_largest:g} when cut "
    raise ValueError(f"{text}uniformly on {stages} stages and {best_largest:g} when cut best")


def largest_stages(costs: tuple[float, ...] = ARTICLE, stages: int = 3) -> tuple[float, float]:
    """The largest stage under the uniform cut, and the least possible one."""
    equal = loads(costs, uniform(len(costs), stages))
    return float(equal.max()), float(least_maximum(costs, stages))


def throughput_lost(
    stages: int = 4,
    micro_batches: int = 8,
    *,
    excess: float = 0.3,
    backward: float = 2.0,
    schedule: ScheduleMaker = one_f_one_b,
) -> Floats:
    """Share of the throughput that is lost when stage k alone is slower; shape (stages,).

    Simulated, entry k for a stage k that takes 1 + `excess` times as long as the others, forward
    (1 there) and backward (`backward` there), with free messages. A slow first stage loses less
    than a slow last one: while the first gradient is on its way back, it works off part of its
    excess. As micro-batches grow all entries go to excess / (1 + excess).
    """
    plan = schedule(stages=stages, micro_batches=micro_batches)
    if plan.chunks > 1:
        raise ValueError(f"{plan.name} has {plan.chunks} chunks a rank; this asks for one a rank")
    slow = np.ones((stages, stages + 1))
    slow[:, :stages] += excess * np.eye(stages)  # candidate k: stage k slow; the last: none
    steps = Stepper(plan).steps(slow, backward * slow, np.zeros((stages - 1, stages + 1)))
    return 1 - steps[-1] / steps[:-1]


def gain(
    before: tuple[float, ...] = (160, 110, 75),
    after: tuple[float, ...] = (115, 115, 115),
    *,
    micro_batches: int = 8,
    schedule: ScheduleMaker = one_f_one_b,
) -> float:
    """How much faster a step gets when the stages take `after` instead of `before`: 0.18 for 18 %.

    Times are forward + backward of each stage, a third of them forward. The article's 160 and 115
    suggest 160 / 115 - 1 = 39 %; that is the limit for ever more micro-batches, not the step.
    """
    both = np.array([before, after], dtype=float).T
    stepper = Stepper(schedule(stages=len(both), micro_batches=micro_batches))
    steps = stepper.steps(both / 3, both * 2 / 3, np.zeros((len(both) - 1, 2)))
    return float(steps[0] / steps[1] - 1)
