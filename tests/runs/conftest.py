"""Real runs: records go to a folder of the test, and no process may stay behind."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import pplab
from tests.runs.processes import MARK, none_left


@pytest.fixture(scope="session", autouse=True)
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the records of test runs out of the user's own."""
    path = tmp_path_factory.mktemp("records")
    before = os.environ.get("PPLAB_RUNS")
    os.environ["PPLAB_RUNS"] = str(path)
    yield path
    pplab.cool()
    if before is None:
        del os.environ["PPLAB_RUNS"]
    else:
        os.environ["PPLAB_RUNS"] = before


@pytest.fixture(scope="session")
def server_mark() -> Iterator[str]:
    """A mark that the process server, and so every rank, of this test session inherits."""
    mark = uuid.uuid4().hex
    pplab.cool()
    os.environ[MARK] = mark
    pplab.warm()
    yield mark
    os.environ.pop(MARK, None)


@pytest.fixture
def clean(server_mark: str) -> Iterator[str]:
    """After the test only the process server is left, within 3 seconds."""
    yield server_mark
    assert not none_left(server_mark, besides=1)
