"""Numbers and names as pictures print them."""

from dataclasses import replace

import pytest

from pplab.core.schedules import gpipe, one_f_one_b
from pplab.view import words


def test_percent_and_durations() -> None:
    assert words.percent(3 / 11) == "27.3 %"
    assert words.duration(33.0, "units") == "33 units"
    assert words.duration(0.3835, "s") == "383.5 ms"
    assert words.duration(46.34, "s") == "46.34 s"
    assert words.duration(12345.6, "units") == "12346 units"
    assert words.duration(2.5e-5, "s") == "25 µs"
    assert words.duration(0.0, "s") == "0 s"
    assert words.duration(0.05351, "s", digits=3) == "53.5 ms"


@pytest.mark.parametrize(("longest", "about"), [(33, 9), (0.383, 12), (4845, 10), (1, 2)])
def test_ticks_are_round_and_inside(longest: float, about: float) -> None:
    ticks = words.ticks(longest, about)
    assert ticks[0] == 0 and ticks[-1] <= longest and 1 < len(ticks) <= about + 1
    assert f"{ticks[1]:e}"[0] in "125"


def test_hardware() -> None:
    t = gpipe(2, 2).simulate()
    assert words.hardware(t) == ""
    about = {"cores": 2, "cpu": "Some CPU", "gpus": [], "memory": 1}
    assert words.hardware(replace(t, hardware=about)) == "2 CPU cores, Some CPU"
    about = {"cores": 1, "gpus": ["H200", "H200"]}
    assert words.hardware(replace(t, hardware=about)) == "1 CPU core, 2 x H200"
    assert words.hardware(replace(t, hardware={"summary": "two nodes"})) == "two nodes"


def test_short_names_tell_timelines_apart() -> None:
    sim = gpipe(2, 2).simulate()
    run = replace(sim, source="measured: paced")
    assert words.short_names([sim, run]) == ["simulated", "measured"]
    assert words.short_names([sim, one_f_one_b(2, 2).simulate()]) == ["GPipe", "1F1B"]
    other = replace(sim, source="measured: computed")
    assert words.short_names([run, other]) == ["paced", "computed"]
    assert words.short_names([sim, gpipe(2, 4).simulate()]) == ["M=2", "M=4"]
    assert words.short_names([sim, sim]) == ["first", "second"]


def test_only_simulations_are_outlined() -> None:
    sim = gpipe(2, 2).simulate()
    assert words.is_simulated(sim) and words.label(sim) == "simulated, GPipe"
    assert not words.is_simulated(replace(sim, source="measured: paced"))


def test_a_sentence_counts_long_steps_in_seconds() -> None:
    long = gpipe(2, 2).simulate(forward=10, backward=20, unit="s")
    assert "step 90 s, 33% idle" in str(long)
    assert "step 90 ms," in str(gpipe(2, 2).simulate(forward=0.01, backward=0.02, unit="s"))
    assert "step 90000 units" in str(gpipe(2, 2).simulate(forward=1e4, backward=2e4))
