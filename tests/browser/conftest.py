"""The fixtures of the kit, for every test in this folder."""

from tests.browser.lab import browser, lab_page, lab_server

__all__ = ["browser", "lab_page", "lab_server"]
