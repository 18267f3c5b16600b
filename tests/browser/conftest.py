"""The fixtures of the kit, for every test in this folder."""

from collections.abc import Iterator
from typing import Any

import page as pages
import pytest

from tests.browser.lab import browser, lab_page, lab_server

__all__ = ["browser", "chromium", "lab_page", "lab_server"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for pages without a server."""
    pages.require_browser()
    with pages.browser() as started:
        yield started
