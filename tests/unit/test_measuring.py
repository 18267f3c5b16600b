"""The tests' own way to try a check of measured values again."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tests import measuring
from tests.measuring import MeasuredAgain, measured, taken


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which others take nothing, and a test that does not wait for them."""
    monkeypatch.setattr(measuring, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(measuring, "taken", lambda: 0.0)


@pytest.fixture
def busy(free: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "taken", lambda: 0.33)


def holds_at(number: int, *, wrong: type[BaseException] = AssertionError) -> list[int]:
    """Run a test that fails until its `number`-th try; the tries there were."""
    tries: list[int] = []

    @measured
    def test(unit: str) -> None:
        tries.append(len(tries) + 1)
        if tries[-1] < number:
            raise wrong(f"try {tries[-1]} took 3 {unit}")

    test("s")
    return tries


def test_what_holds_is_tried_once(free: None) -> None:
    assert holds_at(1) == [1]


def test_what_fails_is_tried_again_and_warns(free: None) -> None:
    with pytest.warns(MeasuredAgain) as seen:
        assert holds_at(3) == [1, 2, 3]
    said = "measured again, because the first time: try {} took 3 s"
    assert [str(warning.message) for warning in seen] == [said.format(1), said.format(2)]


@pytest.mark.filterwarnings("ignore::tests.measuring.MeasuredAgain")
def test_what_is_false_fails(free: None) -> None:
    with pytest.raises(AssertionError, match="try 3 took"):
        holds_at(4)


def test_an_error_is_no_measurement(busy: None) -> None:
    with pytest.raises(ValueError, match="try 1 took"):
        holds_at(2, wrong=ValueError)


@pytest.mark.filterwarnings("ignore::tests.measuring.MeasuredAgain")
def test_where_others_take_the_processors_it_is_skipped_and_says_so(busy: None) -> None:
    with pytest.raises(pytest.skip.Exception, match="33%, 33%, 33% of the processors' time"):
        holds_at(4)


def test_the_tests_arguments_are_still_seen() -> None:
    @measured
    def test_of_mine(clean: str) -> None: ...

    assert list(inspect.signature(test_of_mine).parameters) == ["clean"]


def test_others_are_noticed() -> None:
    """Two programs a core that never stop: a reader of the clock gets half of it, or less."""
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(4)]
    try:
        assert taken() > 0.25
    finally:
        for other in others:
            other.kill()
            other.wait()
