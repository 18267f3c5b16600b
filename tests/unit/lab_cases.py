"""Labs whose cases are simulated, and the learner's folder out of the way."""

from __future__ import annotations

import pytest

from pplab.teach.lab import Lab, open_lab
from tests.unit.test_teach_misconceptions import case


@pytest.fixture
def somewhere(tmp_path, monkeypatch):
    """Progress goes to a folder of the test, and no lab is strict."""
    monkeypatch.setenv("PPLAB_PROGRESS", str(tmp_path))
    monkeypatch.delenv("PPLAB_STRICT", raising=False)


def opened(number: int) -> Lab:
    """A lab whose cases are simulated."""
    lab = open_lab(number)
    if number != 4:  # whose cases are a config and a description of a model
        lab.cases = {name: (lambda name=name: case(name)) for name in lab.cases}
    return lab
