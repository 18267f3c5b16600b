"""Loss curves: a picture, and the same in words."""

from __future__ import annotations

import base64

import pytest

from pplab.view.curves import curves


def test_a_picture_and_its_words() -> None:
    shown = curves({"1F1B": [4.0, 2.0, 1.0, 1.0], "PipeDream": [4.0, 3.0, 2.0, 1.0]}, window=2)
    data = shown._repr_mimebundle_()
    assert data["text/plain"] == (
        "[measured] loss over 4 micro-batches, means of 2: "
        "1F1B from 3.00 to 1.00, PipeDream from 3.50 to 1.50"
    )
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert shown.smooth("1F1B") == [3.0, 1.5, 1.0]


def test_wrong_input_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="give 1 to 4 curves"):
        curves({})
    with pytest.raises(ValueError, match="x has fewer than 16 losses"):
        curves({"x": [1.0]})
