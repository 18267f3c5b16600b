"""A process server that nobody uses ends by itself, and nobody notices but the memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import pplab
from pplab.core.schedules import one_f_one_b
from pplab.runtime.client import Server

IDLE = 0.6  # seconds
MS = 1e-3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers of this test end after `IDLE` seconds without a run; the next test gets its own."""
    pplab.cool()
    monkeypatch.setenv("PPLAB_IDLE", str(IDLE))
    yield
    pplab.cool()


def ended(server: Server) -> bool:
    end = time.monotonic() + 10
    while server.alive() and time.monotonic() < end:
        time.sleep(0.05)
    return not server.alive()


def test_an_idle_server_ends_and_the_next_run_starts_another() -> None:
    plan, model = one_f_one_b(2, 2), pplab.models.paced(MS, MS)
    first = pplab.run(plan, model, quiet=True, keep=False)
    server = pplab.warm()
    assert ended(server) and server.process.returncode == 0
    assert not server.directory.exists()
    again = pplab.run(plan, model, quiet=True, keep=False)
    assert again.losses == first.losses
    assert pplab.warm() is not server


def test_a_run_may_last_longer_than_that() -> None:
    model = pplab.models.paced(200 * MS, 200 * MS)
    run = pplab.run(one_f_one_b(1, 2), model, steps=3, quiet=True, keep=False)
    assert sum(run.step_times) > 3 * IDLE and len(run.losses) == 3
    assert ended(pplab.warm())


def test_a_server_that_ends_just_now_is_replaced() -> None:
    """It is still there when the run asks for it, and gone when the run connects."""
    server = pplab.warm()
    server.connect().close()
    connect, server.connect = server.connect, lambda *_: ended(server) and connect()  # type: ignore[method-assign, assignment]
    run = pplab.run(one_f_one_b(1, 1), pplab.models.paced(MS, MS), quiet=True, keep=False)
    assert len(run.losses) == 3 and pplab.warm() is not server


def test_zero_means_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PPLAB_IDLE", "0")
    server = pplab.warm()
    server.connect().close()
    time.sleep(2 * IDLE)
    assert server.alive()
