"""The schedule explorer: turn a slider, and the real simulator draws the schedule again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pplab.core.costs import Costs
from pplab.core.schedule import Schedule, ScheduleMaker
from pplab.core.timeline import Timeline
from pplab.view import assets, static, words
from pplab.view.answers import Answers
from pplab.view.columns import pack
from pplab.view.scores import Makers, named
from pplab.view.show import bundle

#: Least, most and step of each slider.
RANGES: dict[str, tuple[float, float, float]] = {
    "stages": (1, 16, 1),
    "micro_batches": (1, 64, 1),
    "backward": (0.5, 4, 0.5),
    "link": (0, 2, 0.1),
}


class ScheduleExplorer(Answers):
    """Sliders for stages, micro-batches, backward : forward and link cost over a live timeline.

    A forward pass of one micro-batch through one rank costs 1; with several chunks on a rank each
    of them costs its part, so that schedules stay comparable. `timeline` is what is shown now,
    None when the schedule cannot run with these numbers.
    """

    _esm = assets.module(
        *assets.PICTURE, "controls.js", "explorer.js", render="return explore(model, el);"
    )
    _css = assets.style("timeline.css")

    def __init__(self, schedules: Mapping[str, ScheduleMaker], **params: Any) -> None:
        super().__init__(choices=list(schedules), ranges=RANGES)
        self._schedules = dict(schedules)
        self.timeline: Timeline | None = None
        self.show(**params)

    def _answer(self, params: dict[str, Any]) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        whole = {"stages": int(params["stages"]), "micro_batches": int(params["micro_batches"])}
        params = {**params, **whole}
        self.timeline, problems = _simulate(self._schedules[params["schedule"]], params)
        if self.timeline is None:
            return {"lines": [], "problems": problems, "text": " ".join(problems)}, b"", params
        meta, spans = pack([self.timeline])
        meta |= {"facts": facts(self.timeline), "text": static.text(self.timeline)}
        return meta, spans, params

    def __str__(self) -> str:
        if self.timeline is None:
            return "\n".join(self.meta["problems"])
        more = "; ".join(f"{value}: {meaning}" for value, meaning in facts(self.timeline))
        return f"{static.text(self.timeline)}\n{more}."

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        widget = super()._repr_mimebundle_(**kwargs)
        if self.timeline is None:
            return bundle(widget, None, str(self))
        return bundle(widget, static.png(self.timeline, facts=facts(self.timeline)), str(self))


def explore(
    schedules: Makers | None = None,
    *,
    stages: int = 4,
    micro_batches: int = 8,
    backward: float = 2,
    link: float = 0,
    schedule: str | None = None,
) -> ScheduleExplorer:
    """The schedule explorer, for one schedule or several, by default the published ones.

    Schedules are makers or short names ("1f1b", "zb-h1"). `backward` and `link` are in forward
    passes of one rank; `schedule` names the one to begin with. Raises ValueError when a number
    lies outside its slider or a name is unknown.
    """
    makers = named(schedules)
    given = {"stages": stages, "micro_batches": micro_batches, "backward": backward, "link": link}
    for name, value in given.items():
        low, high, _ = RANGES[name]
        if not low <= value <= high:
            raise ValueError(f"{name} goes from {low:g} to {high:g} here, not {value}")
    first = schedule or ("1F1B" if "1F1B" in makers else next(iter(makers)))
    if first not in makers:
        raise ValueError(f"no schedule is called {first!r}; there are {', '.join(makers)}")
    return ScheduleExplorer(makers, schedule=first, **given)


def facts(timeline: Timeline) -> list[tuple[str, str]]:
    """What stands beside the bubble: the formula, and the most activations a rank holds."""
    stages, batches = timeline.stages, timeline.micro_batches
    above, below = stages - 1, batches + stages - 1
    peaks = timeline.measures.peak_in_flight()
    chunks = timeline.layout.chunks
    rank = int(peaks.argmax())
    pieces = f"of 1/{chunks} stage" if chunks > 1 else "in flight"
    return [
        (
            words.percent(above / below),
            f"(P-1)/(M+P-1) = {above}/{below}: GPipe, 1F1B",
        ),
        (str(peaks[rank]), f"peak activations {pieces}, rank {rank}"),
    ]


def _simulate(maker: ScheduleMaker, params: Mapping[str, Any]) -> tuple[Timeline | None, list[str]]:
    """The timeline, or the sentences that say why there is none."""
    numbers = {name: params[name] for name in ("stages", "micro_batches")}
    try:
        plan: Schedule = maker(**numbers)
    except Exception as error:  # a learner's generator may do anything: say what, and go on
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        where = f"{maker.name} with {numbers['stages']} stages and {numbers['micro_batches']}"
        return None, [f"{where} micro-batches cannot be built: {kind}{error}"]
    if plan.problems:
        sentences = [f"{problem}." for problem in plan.problems[:5]]
        if len(plan.problems) > len(sentences):
            sentences.append(f"And {len(plan.problems) - len(sentences)} more.")
        return None, [f"{maker.name} cannot run with these numbers:", *sentences]
    each = 1 / plan.chunks
    costs = Costs(forward=each, backward=params["backward"] * each, latency=params["link"])
    return plan.simulate(costs), []
