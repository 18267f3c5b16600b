"""The picture without a kernel, and the same in words."""

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pplab.core.costs import Costs
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.core.timeline import Timeline
from pplab.view.static import picture, png, text

SIMULATED = one_f_one_b(4, 8).simulate(Costs(0.01, 0.02, unit="s"))


def measured() -> Timeline:
    """A stand-in for a run: the same schedule, somewhat slower."""
    t = one_f_one_b(4, 8).simulate(Costs([[0.01], [0.013], [0.01], [0.01]], 0.022, unit="s"))
    return replace(t, source="measured: paced", hardware={"cores": 2, "cpu": "Some CPU"})


def two_replicas() -> Timeline:
    one = SIMULATED.columns()
    columns = {name: np.concatenate([column, column]) for name, column in one.items()}
    columns["replica"] = np.repeat([0, 1], len(SIMULATED))
    return Timeline.of(columns, SIMULATED.layout, source="measured: computed", schedule="1F1B")


def drawn(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file)).convert("RGB")


def test_png_is_small_and_wide_enough_to_read() -> None:
    for options in ({}, {"memory": True, "cap": 3}):
        file = png([SIMULATED, measured()], **options)
        assert len(file) < 60_000
        assert 900 <= drawn(file).width <= 1000


def test_png_of_a_large_timeline_is_small_and_says_what_it_shows() -> None:
    large = one_f_one_b(16, 512).simulate()
    assert len(png(large, memory=True)) < 60_000
    words = [t.get_text() for t in picture(large).texts]
    assert "More operations than pixels: heights show shares of time." in words


def test_png_is_the_same_every_time() -> None:
    assert png(SIMULATED) == png(SIMULATED)


def test_the_card_has_its_own_light_page() -> None:
    image = drawn(png(SIMULATED))
    assert image.getpixel((image.width - 8, image.height - 8)) == (255, 255, 255)


def test_bubble_step_ratio_and_sources_are_printed() -> None:
    words = [t.get_text() for t in picture([SIMULATED, measured()]).texts]
    for expected in ("27.3 %", "step 330 ms", "simulated, 1F1B", "measured: paced, 1F1B"):
        assert expected in words
    assert f"{measured().step_time / SIMULATED.step_time:.2f}×" in words
    assert "2 CPU cores, Some CPU" in words
    assert "backward (whole)" in words and "idle" in words
    assert any(w.startswith("measured ends") and w.endswith("later") for w in words)


def test_replicas_are_grouped() -> None:
    words = [t.get_text() for t in picture(two_replicas()).texts]
    assert words.count("rank 0") == 2
    assert words.index("rank 3") < words.index("rank 0", words.index("rank 0") + 1)
    assert {"replica 0", "replica 1"} <= set(words)


def test_over_the_cap_is_said_in_words() -> None:
    words = [t.get_text() for t in picture(SIMULATED, memory=True, cap=3).texts]
    assert "4 over" in words and "3" in words


def test_an_empty_timeline_has_a_picture() -> None:
    empty = SIMULATED.where(np.zeros(len(SIMULATED), dtype=bool))
    assert png(empty, memory=True)
    assert text(empty) == "[simulated] an empty timeline."


def test_pyplot_and_global_settings_stay_untouched() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    png(SIMULATED)
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules


def test_text_of_one_and_of_two() -> None:
    units = gpipe(4, 8).simulate()
    assert text(units) == (
        "[simulated] 4 ranks, 8 micro-batches, GPipe: step 33 units, 27% idle, all ranks alike."
    )
    lines = text([units, one_f_one_b(4, 8).simulate(latency=0.3)]).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("[compared] The 1F1B step takes 1.15 times the GPipe one;")


def test_every_line_with_a_measured_number_is_marked() -> None:
    lines = text([SIMULATED, measured()]).splitlines()
    assert lines[0].startswith("[simulated] ")
    assert lines[1].startswith("[measured] paced, 2 CPU cores, Some CPU: 4 ranks")
    assert lines[2].startswith("[measured] The measured step takes ")
    assert "differ most on rank 1, which is busy" in lines[2]


def test_what_cannot_share_a_picture() -> None:
    with pytest.raises(ValueError, match="different units"):
        picture([SIMULATED, gpipe(4, 8).simulate()])
