"""What a picture of a sweep shows, worked out once for the page and for the static card.

Three panels share one axis, micro-batches M on a log scale: throughput, working time, and the
memory of the fullest rank. Everything printed is made here, so that both say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pplab.core.memory import size
from pplab.runtime.sweep.points import Point
from pplab.runtime.sweep.result import Sweep
from pplab.view import colours, words

#: Most sweeps in one picture; each has a colour, a dash and a mark of its own.
LOOKS: tuple[tuple[str, str, str], ...] = (
    (colours.WORK["F"], "", "circle"),
    (colours.WORK["B"], "6 3", "square"),
    (colours.WORK["W"], "2 2", "diamond"),
    (colours.WORK["U"], "7 2 2 2", "triangle"),
)
#: How much white lines and marks get on a dark page, where the colours of work are too dark.
LIGHTER = 0.4


def check(sweeps: Sequence[Sweep]) -> None:
    """Raise ValueError when sweeps cannot share a picture."""
    if not 1 <= len(sweeps) <= len(LOOKS):
        raise ValueError(f"a picture shows 1 to {len(LOOKS)} sweeps, not {len(sweeps)}")


def describe(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """Words and numbers of the picture, as plain JSON values; x is log2(M)."""
    check(sweeps)
    counts = sorted({m for sweep in sweeps for m in sweep.wanted})
    low, high = math.log2(counts[0]), math.log2(counts[-1])
    one = sweeps[0]
    return {
        "x": [low, high if high > low else low + 1],
        "xticks": [[math.log2(m), str(m)] for m in _spread(counts)],
        "series": [
            {"name": _name(sweep, sweeps), "colour": colour, "dash": dash, "mark": mark,
             "dark": colours.mix(colour, "#ffffff", LIGHTER)}
            for sweep, (colour, dash, mark) in zip(sweeps, LOOKS, strict=False)
        ],
        "panels": [_throughput(sweeps), _working(sweeps), _memory(sweeps)],
        "rules": [
            [math.log2(m), name] for name, m in one.rules.items() if low <= math.log2(m) <= high
        ],
        "knee": _knee(sweeps, low, high),
        "best": _best(sweeps),
        "facts": facts(sweeps),
        "title": title(sweeps),
        "says": {str(m): _says(sweeps, m) for m in counts},
        "counts": [[math.log2(m), m] for m in counts],
        "legend": _legend(sweeps),
        "tables": [[_name(sweep, sweeps), sweep.table] for sweep in sweeps],
        "missing": " ".join(filter(None, (sweep.missing() for sweep in sweeps))),
        "text": text(sweeps),
    }  # fmt: skip


def text(sweeps: Sequence[Sweep]) -> str:
    """The picture in words: a sentence and a table a sweep."""
    return "\n".join(map(str, sweeps))


def title(sweeps: Sequence[Sweep]) -> list[str]:
    """What is swept, and on what it was measured."""
    one = sweeps[0]
    names = " and ".join(dict.fromkeys(sweep.schedule for sweep in sweeps))
    sources = dict.fromkeys(sweep.source for sweep in sweeps if sweep.source)
    on = "" if any(" core" in source for source in sources) else _hardware(one)
    return [f"{names}, {one.setting}", ", ".join(filter(None, (*sources, on)))]


def facts(sweeps: Sequence[Sweep]) -> list[list[str]]:
    """Headline numbers: [value, what it is]."""
    found = []
    one = sweeps[0]
    if len(sweeps) == 2 and (pair := _memories(sweeps)):
        m, more, less = pair
        name, other = more[1], less[1]
        found.append([f"{more[0] / less[0]:.1f}×", f"memory of {name} over {other}, M = {m}"])
    elif len(sweeps) == 1 and one.global_batch is None and one.cap is None:
        if one.knee is not None:
            found.append([f"M = {one.knee}", f"the knee: doubling M then brings < {one.gain:.0%}"])
    elif len(sweeps) == 1 and one.best is not None:
        under = " under the cap" if one.cap is not None else ""
        found.append([f"M = {one.best.micro_batches}", f"fastest measured{under}"])
    errors = [sweep.error for sweep in sweeps if not math.isnan(sweep.error)]
    if errors:
        found.append([f"{max(errors):.1%}", "most the simulated curve is off"])
    return found


def _memories(sweeps: Sequence[Sweep]) -> tuple[int, tuple[float, str], tuple[float, str]] | None:
    """(M, the larger, the smaller): peaks of two sweeps at the largest M both have."""
    both = set.intersection(*({p.micro_batches for p in s.points if p.memory} for s in sweeps))
    if not both:
        return None
    m = max(both)
    more, less = sorted(((s[m].peak, _name(s, sweeps)) for s in sweeps), reverse=True)
    return (m, more, less) if less[0] > 0 else None


def _hardware(sweep: Sweep) -> str:
    about = sweep.hardware
    cards = [str(card) for card in about.get("gpus") or ()]
    parts = [f"{about['cores']} CPU cores"] if "cores" in about else []
    return ", ".join([*parts, *([f"{len(cards)} x {cards[0]}"] if cards else [])])


def _name(sweep: Sweep, sweeps: Sequence[Sweep]) -> str:
    alike = sum(other.schedule == sweep.schedule for other in sweeps) > 1
    return f"{sweep.schedule} ({sweep.model})" if alike else sweep.schedule


def _spread(counts: Sequence[int]) -> list[int]:
    """Numbers for the axis: those swept, or every other one when they are many."""
    found = list(counts)
    while len(found) > 9:
        found = found[::2] if found[-1] == found[::2][-1] else found[1::2]
    return found


def _panel(
    sweeps: Sequence[Sweep],
    heading: str,
    value: Callable[[Point], float],
    say: Callable[[float], str],
    level: tuple[float, str, str] | None = None,
    top: float | None = None,
) -> dict[str, Any]:
    """One panel; y is scaled to 0..1. `level`: (value, its words, "limit" or "cap")."""
    known = [value(p) for sweep in sweeps for p in (*sweep.points, *sweep.curve)]
    known += [level[0]] if level else []
    most = top or max((v for v in known if not math.isnan(v)), default=1.0) * 1.08 or 1.0

    def xy(point: Point) -> list[float]:
        return [_x(point.micro_batches), round(value(point) / most, 5)]

    return {
        "title": heading,
        "ticks": [[v / most, say(v)] for v in words.ticks(most, 4)],
        "lines": [
            [xy(p) for p in sweep.curve if not math.isnan(value(p))] for sweep in sweeps
        ],
        "dots": [
            [[*xy(p), 0 if sweep.fits(p) else 1] for p in sweep.points if not math.isnan(value(p))]
            for sweep in sweeps
        ],
        "level": [level[0] / most, level[1], level[2]] if level else None,
    }  # fmt: skip


def _throughput(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    limit = sweeps[0].limit if len(sweeps) == 1 else None
    level = (limit, f"limit {words.number(limit, 3)}", "limit") if limit else None
    return _panel(
        sweeps, "Throughput, samples/s", lambda p: p.throughput, lambda v: f"{v:g}", level
    )


def _working(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    return _panel(
        sweeps, "Working: 1 - bubble", lambda p: p.utilisation, lambda v: f"{v:.0%}", top=1.0
    )


def _memory(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    cap = next((sweep.cap for sweep in sweeps if sweep.cap is not None), None)
    counted = any(point.memory for sweep in sweeps for point in sweep.points)
    if counted or cap is not None:
        level = (cap, f"cap {size(cap)}", "cap") if cap is not None else None
        heading = "Kept for backward, fullest rank"
        return _panel(sweeps, heading, lambda p: p.peak, size, level)
    return _panel(
        sweeps, "In flight, fullest rank", lambda p: max(p.in_flight, default=0), lambda v: f"{v:g}"
    )


def _knee(sweeps: Sequence[Sweep], low: float, high: float) -> list[Any] | None:
    one = sweeps[0]
    if one.knee is None or one.global_batch is not None or len(sweeps) > 1:
        return None
    x = math.log2(one.knee)
    return [x, f"knee {one.knee}"] if low <= x <= high else None


def _best(sweeps: Sequence[Sweep]) -> list[Any] | None:
    """[x, y, words] of the fastest measured point, where there is a choice to make."""
    one = sweeps[0]
    if len(sweeps) > 1 or one.best is None or (one.global_batch is None and one.cap is None):
        return None
    x, y, _ = next(
        dot for dot in _throughput(sweeps)["dots"][0] if dot[0] == _x(one.best.micro_batches)
    )
    return [x, y, f"best: {one.best.micro_batches}"]


def _x(m: int) -> float:
    return round(math.log2(m), 5)


def _legend(sweeps: Sequence[Sweep]) -> list[list[str]]:
    """[swatch, words]: "line", "dot", "open", "knee", "rule"."""
    found = [["line", "line: simulated"], ["dot", "mark: measured"]]
    if any(not sweep.fits(point) for sweep in sweeps for point in sweep.points):
        found.append(["open", "hollow: over the cap"])
    if any(sweep.rules for sweep in sweeps):
        found.append(["rule", "2P, 4P, 8P: rules of thumb"])
    return found


def _says(sweeps: Sequence[Sweep], m: int) -> str:
    """What is known about M micro-batches, in words."""
    parts = []
    for sweep in sweeps:
        name = f"{_name(sweep, sweeps)}: " if len(sweeps) > 1 else ""
        told = sweep.predicted(m)
        point = next((p for p in sweep.points if p.micro_batches == m), None)
        if point is None:
            why = sweep.problems.get(m)
            known = f"simulated {told.throughput:.4g} samples/s, not measured" if told else ""
            parts.append(name + (why or known or "not measured yet"))
            continue
        off = f", simulated {told.throughput:.4g} ({sweep.errors[m]:+.1%})" if told else ""
        kept = f", the fullest keeps {size(point.peak)}" if point.memory else ""
        over = "" if sweep.fits(point) else ", over the cap"
        parts.append(
            f"{name}{point.throughput:.4g} samples/s measured{off}; "
            f"{point.utilisation:.1%} working; step {words.duration(point.step_time, 's')}; "
            f"{max(point.in_flight):g} micro-batches of {point.micro_batch_size} in flight"
            f"{kept}{over}"
        )
    return f"M = {m}. " + " | ".join(parts)
