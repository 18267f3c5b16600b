"""Loss curves: a picture, and the same in words."""

from __future__ import annotations

import base64

import pytest

from pplab.view.curves import LiveCurves, curves


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


def test_live_curves_grow_and_redraw_in_place() -> None:
    class Handle:
        shown: list[str] = []  # noqa: RUF012

        def update(self, data: dict[str, str], raw: bool) -> None:
            self.shown.append(data["text/plain"])

    live = LiveCurves(window=2)
    live._handle = Handle()
    step = live.follow("1F1B")
    step(4, 3.0)  # a step of four micro-batches
    live._drawn = 0.0
    step(8, 1.0)
    stream = live.follow("PipeDream")
    stream(1, 5.0)
    live.redraw()  # the second curve is too short to show yet
    assert live.losses == {"1F1B": [3.0] * 4 + [1.0] * 4, "PipeDream": [5.0]}
    assert Handle.shown[-1].endswith("1F1B from 3.00 to 1.00")
    for name in ("a third", "a fourth"):
        live.follow(name)
    with pytest.raises(ValueError, match="no more than 4 curves"):
        live.follow("one too many")
