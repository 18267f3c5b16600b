"""Cuts on real ranks: the step that was predicted against the step that was measured.

Each pair is one training: some steps with equal layer counts, then ``pplab.rebalance`` cuts anew
from what was measured and goes on from the checkpoint. The pairs take turns with each other and
every ratio has both its sides in one pair, so that noise of the machine hits both. The computed GPT
runs on 2 stages: more than this machine has cores would measure the cores, not the cut.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from statistics import median
from typing import Any

import pplab
from benchmarks.report import entry
from pplab.core.partition import devices, partition
from pplab.core.schedules import one_f_one_b
from pplab.runtime.job import Job
from pplab.runtime.partitioned import paced_profile, profile_of
from pplab.runtime.rebalance import Rebalanced

REPEATS = {"gpt": 7, "paced": 3, "mix": 3}  # computed layers are the noisy ones
STEPS = 6
TARGET = 0.10

#: Embedding, 8 blocks, and a head with the multiplications of 6 more, as a large vocabulary has.
LOPSIDED = pplab.models.gpt(layers=8, width=128, heads=4, context=64, head=6)
TWO = one_f_one_b(stages=2, micro_batches=8)

#: The same shape set in time, and the same layers on ranks of which two are half as fast.
PACED = pplab.models.paced([0.002, *[0.004] * 12, 0.016], [0.004, *[0.008] * 12, 0.032])
EVEN = pplab.models.paced([0.004] * 12, [0.008] * 12)
FOUR = one_f_one_b(stages=4, micro_batches=8)
MIX = (1.0, 1.0, 0.5, 0.5)


@dataclass(frozen=True)
class Case:
    """A training that is cut with equal layer counts first."""

    plan: pplab.Schedule
    model: Any
    speeds: tuple[float, ...] | None = None

    def go(self) -> Rebalanced:
        """Both halves of it."""
        first = pplab.run(
            self.plan, self.model, partition="uniform", speeds=self.speeds, steps=STEPS,
            checkpoint=True, quiet=True,
        )  # fmt: skip
        return pplab.rebalance(first, quiet=True)


CASES = {
    "gpt": Case(TWO, LOPSIDED),
    "paced": Case(FOUR, PACED),
    "mix": Case(FOUR, EVEN, MIX),
}


def run() -> list[dict[str, Any]]:
    """Every figure."""
    before = os.environ.get("PPLAB_RUNS")
    with tempfile.TemporaryDirectory() as scratch:  # checkpoints are no records worth keeping
        os.environ["PPLAB_RUNS"] = scratch
        try:
            pairs: dict[str, list[Rebalanced]] = {name: [] for name in CASES}
            for number in range(max(REPEATS.values())):
                for name, case in CASES.items():
                    if number < REPEATS[name]:
                        pairs[name].append(case.go())
            return [*_gpt(pairs["gpt"]), *_paced(pairs["paced"]), *_mix(pairs["mix"])]
        finally:
            os.environ.pop("PPLAB_RUNS")
            if before is not None:
                os.environ["PPLAB_RUNS"] = before


def _gpt(pairs: list[Rebalanced]) -> list[dict[str, Any]]:
    about = f"GPT of 8 blocks and a head as large as 6, 2 stages, 8 micro-batches: {_cuts(pairs)}"
    alone = _profile_alone(pairs)
    how = f"predicted {_ms(_foretold(pairs))}, measured {_ms(_measured(pairs))}; {about}; "
    how += f"from the layer times alone, with no run before: {alone:.1%} off"
    return [
        entry("partition.step_error", _error(pairs), "", TARGET, "lower", how),
        entry("partition.measured_gain", _gain(pairs), "times", None, "higher", _gains(pairs)),
    ]


def _paced(pairs: list[Rebalanced]) -> list[dict[str, Any]]:
    how = f"predicted {_ms(_foretold(pairs))}, measured {_ms(_measured(pairs))}; 14 paced layers, "
    how += f"a heavy head, 4 stages, 8 micro-batches: {_cuts(pairs)}"
    return [
        entry("partition.step_error_paced", _error(pairs), "", TARGET, "lower", how),
        entry(
            "partition.measured_gain_paced", _gain(pairs), "times", None, "higher", _gains(pairs)
        ),
    ]


def _mix(pairs: list[Rebalanced]) -> list[dict[str, Any]]:
    job = Job(EVEN, 4, 8, FOUR)
    free = partition(
        paced_profile(job),
        schedule=FOUR,
        devices=devices(4, speed=MIX, names=["A100", "A100", "V100", "V100"]),
        free_order=True,
    )
    ran = [pplab.run(FOUR, EVEN, partition=free, steps=STEPS, quiet=True) for _ in range(2)]
    took = median(run.step_time for run in ran)
    off = abs((ran[0].stage_times.predicted_step or 0) / took - 1)
    order = ", ".join(device.name for device in free.devices)
    how = f"12 equal paced layers on ranks of speed {MIX}: {_cuts(pairs)}; the best order of the "
    how += (
        f"devices ({order}, cut {list(free.bounds)}): {took * 1e3:.1f} ms, predicted {off:.1%} off"
    )
    return [
        entry("partition.step_error_mix", _error(pairs), "", TARGET, "lower", how),
        entry("partition.measured_gain_mix", _gain(pairs), "times", None, "higher", _gains(pairs)),
    ]


def _profile_alone(pairs: list[Rebalanced]) -> float:
    """Error of a prediction that has only seen the layers one by one, in another process."""
    problem = pairs[0].new.problem
    profile = profile_of(Job(LOPSIDED, 2, 8, TWO))
    step = partition(profile, method=pairs[0].new.bounds, schedule=problem.schedule).step
    return abs(step / median(_measured(pairs)) - 1)


def _foretold(pairs: list[Rebalanced]) -> list[float]:
    return [pair.predicted_steps[1] for pair in pairs]


def _measured(pairs: list[Rebalanced]) -> list[float]:
    return [pair.after.step_time for pair in pairs]


def _error(pairs: list[Rebalanced]) -> float:
    return median(abs(pair.step_error) for pair in pairs)


def _gain(pairs: list[Rebalanced]) -> float:
    return median(pair.measured_gain for pair in pairs)


def _gains(pairs: list[Rebalanced]) -> str:
    gains = ", ".join(f"{pair.measured_gain:.2f}" for pair in pairs)
    return (
        f"step(uniform) / step(optimal) of each pair: {gains}; predicted "
        f"{median(pair.predicted_gain for pair in pairs):.2f}"
    )


def _cuts(pairs: list[Rebalanced]) -> str:
    cuts = sorted({str(list(pair.new.bounds)) for pair in pairs})
    return f"{list(pairs[0].old.bounds)} to {' or '.join(cuts)}"


def _ms(times: list[float]) -> str:
    return f"{median(times) * 1e3:.1f} ms ({min(times) * 1e3:.1f} to {max(times) * 1e3:.1f})"
