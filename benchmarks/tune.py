"""The tuner: predicted against measured steps of its first plans, and whether the first is best.

Two jobs: a paced model of uneven layers on four ranks, whose memory rules out plain replicas, and a
GPT that is really computed on one or two ranks (this machine has two cores). The plans that are
verified were not run before; the probes they are predicted from run another schedule or size.
"""

from __future__ import annotations

import math
import os
from typing import Any

import pplab
from benchmarks.report import entry
from pplab.advise.tune.verify import verdict

VERIFY, REPEATS, STEPS = 3, 3, 6
#: Work of the paced layers: a light embedding, ten blocks, a head three times as heavy.
WORK = (0.5, *[1.0] * 10, 3.0)
LAUNCH, SAMPLE = 0.001, 0.0005  # seconds of F of a block: per micro-batch, and per sample
GPT = {"layers": 6, "width": 192, "heads": 4, "context": 64, "head": 3}


def by_size(samples: int) -> pplab.models.Model:
    """Paced layers that cost something a micro-batch and something a sample."""
    seconds = LAUNCH + SAMPLE * samples
    return pplab.models.paced([seconds * w for w in WORK], [2 * seconds * w for w in WORK])


def run() -> list[dict[str, Any]]:
    """Every figure of the group."""
    paced = tuned(by_size, 4, batch=64, memory=600e3)
    two = min(2, pplab.hardware().cores)
    computed = tuned(
        pplab.models.gpt(**GPT), two, batch=32, micro_batch_sizes=(2, 4, 8), all_ranks=False
    )
    both = {"paced, 4 ranks": paced, f"computed GPT, 1 to {two} ranks": computed}
    worst = max(found.error for found in both.values())
    how = f"worst |predicted / measured - 1| of the step over the first {VERIFY} plans of each "
    how += f"(the fastest step of {REPEATS} runs of {STEPS} in turns, as in the probes): "
    how += "; ".join(f"{name}: {_told(found)}" for name, found in both.items())
    how += f"; load average {os.getloadavg()[1]:.1f} over the last 5 minutes"
    found = [entry("tune.step_error", 100 * worst, "%", 10, "lower", how)]
    for name, one in (("paced", paced), ("computed", computed)):
        errors = ", ".join(f"{v.plan.what}: {v.error:+.1%}" for v in one.verified)
        found.append(entry(f"tune.step_error_{name}", 100 * one.error, "%", None, "lower", errors))
    ratio = max(_ratio(found) for found in both.values())
    how = "the first choice is the measured best, or ties with it within what its runs differ by: "
    how += "; ".join(f"{name}: {verdict(found.verified)}" for name, found in both.items())
    good = float(all(_good(one) for one in both.values()))
    found.append(entry("tune.first_is_best", good, "", 1, "higher", how))
    how = "step of the first choice over that of the measured best, the worse of the two jobs"
    found.append(entry("tune.first_over_best", ratio, "times", None, "lower", how))
    return found


def tuned(model: Any, ranks: int, **options: Any) -> pplab.Tuning:
    """A verified tuning; it is printed."""
    options |= {"verify": VERIFY, "repeats": REPEATS, "verify_steps": STEPS, "quiet": True}
    found: pplab.Tuning = pplab.tune(model, ranks, **options)
    print(found, flush=True)
    return found


def _told(found: pplab.Tuning) -> str:
    return ", ".join(
        f"{v.plan.step * 1e3:.1f} / {v.step * 1e3:.1f} ms (runs {_all(v.steps)})"
        for v in found.verified
    )


def _all(steps: tuple[float, ...]) -> str:
    return " ".join(f"{step * 1e3:.0f}" for step in sorted(steps))


def _ratio(found: pplab.Tuning) -> float:
    return found.verified[0].step / min(v.step for v in found.verified if v.steps)


def _good(found: pplab.Tuning) -> bool:
    """The first is the measured best, or within noise of it."""
    if found.first_is_best:
        return True
    ratio = _ratio(found)
    best = min((v for v in found.verified if v.steps), key=lambda v: v.step)
    noise = max(found.verified[0].noise, best.noise)
    return not math.isnan(noise) and ratio - 1 <= noise
