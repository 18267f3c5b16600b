"""The picture of a topology: everything on the card, every line in the legend."""

from __future__ import annotations

import pytest

from pplab.core.topology import Topology
from pplab.view import card
from pplab.view.topology import picture


@pytest.mark.parametrize(
    "topology",
    [
        Topology(pipe=2, data=4, model=2, ranks_per_node=8),
        Topology(pipe=4, data=2, ranks_per_node=4),
        Topology(pipe=8, data=8, ranks_per_node=8),
        Topology(pipe=1),
    ],
)
def test_no_text_leaves_the_card_or_is_too_small(topology: Topology) -> None:
    figure = picture(topology)
    across = figure.get_figwidth() * 72
    for text in figure.texts:
        weight = str(text.get_fontweight())
        wide = card.wide(text.get_text(), text.get_fontsize(), weight)
        start = text.get_position()[0] * across - (wide / 2 if text.get_ha() == "center" else 0)
        assert start >= 0 and start + wide <= across, text.get_text()
        assert text.get_fontsize() >= 7


def test_the_legend_explains_the_lines_that_are_there() -> None:
    words = [t.get_text() for t in picture(Topology(2, 4, 2, ranks_per_node=8)).texts]
    assert "dashed red: between nodes" in words and "one colour: one node" in words
    assert any(text.startswith("line down") for text in words)
    words = [t.get_text() for t in picture(Topology(pipe=4)).texts]
    assert not any("node" in text for text in words)
    assert any(text.startswith("arrow") for text in words)
