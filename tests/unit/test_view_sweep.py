"""The picture of a sweep: what the page and the card are told, and how it grows."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import pytest

import pplab
from pplab import Sweep, models, schedules
from pplab.runtime.job import Job
from pplab.runtime.record import Run
from pplab.runtime.sweep import runner
from pplab.view import colours
from pplab.view.show import WIDGET
from pplab.view.sweep import LiveSweep, SweepView
from pplab.view.sweep_card import png
from pplab.view.sweep_panels import LIGHTER, LOOKS, describe
from tests.unit.sweeps import fake, fake_run

__all__ = ["fake"]  # a fixture
Fake = Callable[..., list[Job]]
PACED = models.paced()


@pytest.fixture
def grown(fake: Fake) -> Sweep:
    fake()
    return pplab.sweep("1f1b", PACED, quiet=True)


def test_points_lie_where_their_numbers_are(grown: Sweep) -> None:
    meta = describe([grown])
    assert meta["x"] == [0, 5] and [t[1] for t in meta["xticks"]] == [
        "1",
        "2",
        "4",
        "8",
        "16",
        "32",
    ]
    rate, working, memory = meta["panels"]
    tick, label = rate["ticks"][-1]
    for (x, y, over), point in zip(rate["dots"][0], grown.points, strict=True):
        assert 2**x == pytest.approx(point.micro_batches) and over == 0
        assert y / tick * float(label) == pytest.approx(point.throughput, rel=1e-3)
    assert [y for _, y, _ in working["dots"][0]] == pytest.approx(
        [p.utilisation for p in grown.points], abs=1e-4
    )
    assert rate["level"][1].startswith("limit 2") and memory["level"] is None
    assert 0 < max(y for _, y in memory["lines"][0]) < 1
    assert meta["rules"] == [[3, "2P"], [4, "4P"], [5, "8P"]]
    assert meta["knee"] == [math.log2(grown.knee), f"knee {grown.knee}"]


def test_what_is_said_of_a_point_has_its_numbers(grown: Sweep) -> None:
    says = describe([grown])["says"]
    assert set(says) == {"1", "2", "4", "8", "16", "32"}
    assert says["8"].startswith("M = 8. 180.8 samples/s measured, simulated 180.8 (+0.0%); 70.1%")
    assert "4 micro-batches of 4 in flight, the fullest keeps 16.0 kB" in says["8"]


def test_a_cap_is_a_line_and_points_beyond_it_are_hollow(grown: Sweep) -> None:
    meta = describe([grown.under(9000)])
    assert meta["panels"][2]["level"][1:] == ["cap 9.0 kB", "cap"]
    assert [over for _, _, over in meta["panels"][0]["dots"][0]] == [0, 0, 1, 1, 1, 1]
    assert meta["facts"][0] == ["M = 2", "fastest measured under the cap"]
    assert meta["best"][0] == 1 and meta["best"][2] == "best: 2"
    assert ["open", "hollow: over the cap"] in meta["legend"]


def test_two_schedules_share_the_picture(fake: Fake) -> None:
    fake()
    both = pplab.sweep([schedules.gpipe, schedules.one_f_one_b], PACED, quiet=True)
    meta = describe(both)
    assert [one["name"] for one in meta["series"]] == ["GPipe", "1F1B"]
    assert len({(one["colour"], one["dash"], one["mark"]) for one in meta["series"]}) == 2
    assert meta["facts"][0] == ["8.0×", "memory of GPipe over 1F1B, M = 32"]
    assert meta["knee"] is None and meta["says"]["8"].count("samples/s measured") == 2
    with pytest.raises(ValueError, match="1 to 4 sweeps"):
        describe([])


def test_without_counted_memory_the_panel_shows_what_is_in_flight(fake: Fake) -> None:
    fake(lambda job: fake_run(job, counted=False))
    panel = describe([pplab.sweep("1f1b", PACED, quiet=True)])["panels"][2]
    assert panel["title"] == "In flight, fullest rank"
    tick, label = panel["ticks"][-1]
    assert [round(y / tick * float(label), 1) for _, y, _ in panel["dots"][0]] == [1, 2, 4, 4, 4, 4]


def test_one_output_has_widget_picture_and_words(grown: Sweep) -> None:
    data = grown._repr_mimebundle_()
    assert WIDGET in data and base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == str(grown)
    assert len(png([grown])) < 60_000


def test_colours_can_be_told_from_the_page() -> None:
    for colour, _, _ in LOOKS:
        assert colours.contrast(colour, "#ffffff") >= 3
        assert colours.contrast(colours.mix(colour, "#ffffff", LIGHTER), "#111111") >= 4.5


class Handle:
    """What ``display(display_id=True)`` gives back."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def update(self, data: dict[str, Any], raw: bool) -> None:
        self.shown.append(data)


def test_the_picture_grows_while_the_runs_run(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, first, states = Handle(), [], []

    def display(data: dict[str, Any], raw: bool, display_id: bool) -> Handle:
        first.append(data)
        return handle

    monkeypatch.setattr("IPython.display.display", display)
    live = LiveSweep()
    monkeypatch.setattr(runner, "_display", lambda quiet: live)

    def make(job: Job) -> Run:
        states.append((live._view.status, len(live._view.meta["panels"][0]["dots"][0])))
        if job.micro_batches == 16:
            raise KeyboardInterrupt
        return fake_run(job)

    fake(make)
    sweep = pplab.sweep("1f1b", PACED)
    assert "image/png" not in first[0], "there is nothing to draw yet"
    assert states == [
        (f"running M = {m} (run {i} of 6)", i - 1) for i, m in enumerate((8, 1, 2, 4, 16), 1)
    ]
    assert sweep.stopped and live._view.status == "stopped; all its processes have ended"
    assert len(handle.shown) == 1 and "image/png" in handle.shown[0]
    assert live._view.meta["missing"] == "Stopped before M = 16, 32."


def test_a_view_can_be_shown_anew(grown: Sweep) -> None:
    view = SweepView([grown])
    before = view.rev
    view.show([grown.under(1000)])
    assert view.rev == before + 1 and view.meta["panels"][2]["level"]
