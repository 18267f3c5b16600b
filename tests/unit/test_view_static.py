"""The picture without a kernel, and the same in words."""

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pplab.core.costs import Costs
from pplab.core.schedules import gpipe, one_f_one_b, zb_h1
from pplab.core.timeline import Timeline
from pplab.view import card
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


def test_greys_have_no_tint() -> None:
    """The band between the ends of two steps must not look like work."""
    image = drawn(png([one_f_one_b(4, 8).simulate(), zb_h1(4, 8).simulate()]))
    row = [image.getpixel((x, 300)) for x in range(760, 940)]
    band = max(set(row), key=row.count)
    assert min(band) > 215 and max(band) < 235 and max(band) - min(band) <= 4


def test_no_text_is_smaller_than_eleven_pixels() -> None:
    for plan in (one_f_one_b(4, 8), one_f_one_b(16, 16), one_f_one_b(64, 64), zb_h1(8, 32)):
        t = plan.simulate()
        for timelines in ([t], [t, t]):
            figure = picture(timelines, memory=True)
            texts = [*figure.texts, *(text for ax in figure.axes for text in ax.texts)]
            assert min(text.get_fontsize() for text in texts) >= 7
    names = [text.get_text() for text in picture(one_f_one_b(64, 64).simulate()).texts]
    assert "rank 0" in names and "rank 1" not in names and "rank 62" in names


def test_the_memory_strip_says_whose_peaks_it_shows() -> None:
    words = [t.get_text() for t in picture([SIMULATED, measured()], memory=True, cap=3).texts]
    title = "Memory: activations in flight, and the peak (simulated / measured); dashed: the cap, 3"
    assert title in words


def test_blocks_of_the_header_move_together_before_they_take_another_line() -> None:
    three = [card.Block("27.3 %", "x" * 30, 25) for _ in range(3)]
    roomy = sum(block.width for block in three) + 2 * card.MARGIN + 2 * 22
    assert card.place(three, roomy)[1] == (card.MARGIN + three[0].width + 22, 0)
    assert {line for _, line in card.place(three, roomy - 20)} == {0}
    assert [line for _, line in card.place(three, roomy - 60)] == [0, 0, 1]


def test_long_names_become_smaller_and_then_are_cut() -> None:
    assert card.fitted("1F1B", 80, 9.5, "bold") == ("1F1B", 9.5)
    text, size = card.fitted("optimal, by hand", 80, 9.5, "bold")
    assert text == "optimal, by hand" and card.SMALL <= size < 9.5
    text, size = card.fitted("what everybody does at first", 80, 9.5, "bold")
    assert text.startswith("what every") and text.endswith("…") and size == card.SMALL
    assert card.wide(text, size, "bold") <= 80


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
