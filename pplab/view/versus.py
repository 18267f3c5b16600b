"""The comparison of schedules: choose some, turn the numbers, see what each one costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pplab.core.schedule import ScheduleMaker
from pplab.view import assets
from pplab.view.answers import Answers
from pplab.view.scoreboard import COLUMNS, Scoreboard
from pplab.view.scores import Makers, Numbers, named, score
from pplab.view.show import bundle
from pplab.view.stack import stack

#: Least, most and step of each slider; a cap of 0 means none.
RANGES: dict[str, tuple[float, float, float]] = {
    "stages": (1, 16, 1),
    "micro_batches": (1, 64, 1),
    "forward": (0.5, 4, 0.25),
    "backward": (0.5, 8, 0.25),
    "weight": (0, 4, 0.25),
    "link": (0, 2, 0.1),
    "cap": (0, 64, 1),
}


class ScheduleComparison(Answers):
    """Checkboxes and sliders over a table of bars, and the timelines of the chosen schedules
    under each other on one time axis. ``board`` is what is shown now.
    """

    _esm = assets.module(
        *assets.PICTURE, "controls.js", "versus.js", render="return versus(model, el);"
    )
    _css = assets.style("timeline.css", "versus.css")

    def __init__(self, makers: Mapping[str, ScheduleMaker], **params: Any) -> None:
        super().__init__(choices=list(makers), ranges=RANGES)
        self._makers = dict(makers)
        self.board = Scoreboard((), Numbers())
        self.show(**params)

    def _answer(self, params: dict[str, Any]) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        whole = {name: int(params[name]) for name in ("stages", "micro_batches")}
        weight = min(params["weight"], params["backward"])
        params = {**params, **whole, "weight": weight}
        numbers = Numbers(**{name: params[name] for name in RANGES if name != "cap"})
        scores = tuple(
            score(maker, numbers, name)
            for name, maker in self._makers.items()
            if name in params["schedules"]
        )
        board = self.board = Scoreboard(scores, numbers, params["cap"] or None)
        meta: dict[str, Any] = {"lines": []}
        spans = b""
        if board.running:
            timelines = [one.timeline for one in board.running if one.timeline is not None]
            meta, spans = stack(timelines, board.titles())
        elif not scores:
            meta["problems"] = ["Choose at least one schedule."]
        meta |= {
            "text": str(board),
            "verdict": board.verdict() if scores else "",
            "setting": board.setting(),
            "columns": [title for title, _ in COLUMNS],
            "capShare": board.cap_share,
            "cap": board.cap,
            "scores": [
                {
                    "name": one.name,
                    "cells": board.cells(one) if one.runs else None,
                    "remarks": board.remarks(one),
                }
                for one in scores
            ],
        }
        return meta, spans, params

    def __str__(self) -> str:
        return str(self.board)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        from pplab.view.versus_card import png

        widget = super()._repr_mimebundle_(**kwargs)
        return bundle(widget, png(self.board) if self.board.scores else None, str(self))


def compare_schedules(
    schedules: Makers | None = None,
    *,
    stages: int = 4,
    micro_batches: int = 8,
    forward: float = 1,
    backward: float = 2,
    weight: float | None = None,
    link: float = 0,
    cap: float | None = None,
) -> ScheduleComparison:
    """Schedules beside each other: bubble, memory, weight versions, messages, and timelines.

    `schedules` are makers or short names ("gpipe", "1f1b", "zb-h1", ...; default: four of them),
    chosen to begin with among all published ones. Times are those of a whole stage and one
    micro-batch: `backward` is all of it, `weight` the part W takes where it is apart (default:
    half), `link` the time of a message. `cap` is the most activations of a stage that a rank may
    hold. Raises ValueError when a number lies outside its slider or a name is unknown.
    """
    given: dict[str, Any] = {
        "stages": stages,
        "micro_batches": micro_batches,
        "forward": forward,
        "backward": backward,
        "weight": backward / 2 if weight is None else weight,
        "link": link,
        "cap": cap or 0,
    }
    for name, value in given.items():
        low, high, _ = RANGES[name]
        if not low <= value <= high:
            raise ValueError(f"{name} goes from {low:g} to {high:g} here, not {value}")
    Numbers(**{name: value for name, value in given.items() if name != "cap"})
    chosen = named(["gpipe", "1f1b", "interleaved", "zb-h1"] if schedules is None else schedules)
    every = {**named(None), **chosen}
    return ScheduleComparison(every, schedules=list(chosen), **given)
