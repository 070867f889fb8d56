"""The browser of the tests of the page."""

from tests.addons.page.conftest import browser, idle_windows, window

__all__ = ["browser", "idle_windows", "window"]
