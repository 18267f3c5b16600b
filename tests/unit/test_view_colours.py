"""Everything that is drawn can be read: contrast computed, not guessed."""

import pytest

from pplab.view import colours
from pplab.view.colours import LIGHT, WORK, contrast, ink_on, mix, shade

DARK_PAGE = "#111111"  # --jp-layout-color0 of JupyterLab Dark
DARK_INK = "#ffffff"


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1
    assert contrast("#ffffff", "#d9730d") == pytest.approx(3.28, abs=0.01)  # known to fail


@pytest.mark.parametrize("kind", WORK)
@pytest.mark.parametrize("chunks", [1, 2, 4, 8])
def test_text_on_a_filled_bar(kind: str, chunks: int) -> None:
    for chunk in range(chunks):
        bar = shade(kind, chunk, chunks)
        assert contrast(ink_on(bar), bar) >= 4.5
    assert ink_on(shade(kind)) == "#ffffff"  # the legend writes its letters in white
    assert contrast("#ffffff", WORK[kind]) >= 4.5


@pytest.mark.parametrize("kind", WORK)
def test_edges_of_bars_stand_out_from_the_page(kind: str) -> None:
    assert contrast(WORK[kind], LIGHT["page"]) >= 4.5
    assert contrast(mix(WORK[kind], "#ffffff", 0.42), DARK_PAGE) >= 4.5  # chart.js, theme()


@pytest.mark.parametrize("kind", WORK)
def test_text_on_an_outlined_bar(kind: str) -> None:
    for share in (0.06, 0.28):
        assert contrast(LIGHT["ink"], mix(LIGHT["page"], WORK[kind], share)) >= 4.5
    edge = mix(WORK[kind], "#ffffff", 0.42)
    for share in (0.3, 0.55):
        assert contrast(DARK_INK, mix(DARK_PAGE, edge, share)) >= 4.5


def test_words_on_the_page() -> None:
    for name in ("ink", "soft", "cap"):
        assert contrast(LIGHT[name], LIGHT["page"]) >= 4.5
    assert contrast(LIGHT["hatch"], LIGHT["page"]) < 2  # idle is no work: it must recede
    assert contrast(colours.GREY, LIGHT["page"]) >= 3


def test_chunks_get_lighter() -> None:
    lights = [colours.luminance(shade("F", chunk, 4)) for chunk in range(4)]
    assert lights == sorted(lights) and len(set(lights)) == 4
