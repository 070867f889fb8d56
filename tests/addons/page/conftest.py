"""A headless Chromium for the tests of a module, and pages in it that notice every error."""

import os

import pytest
from playwright.sync_api import sync_playwright

from tests.addons.page.support.chromium import ARGUMENTS, chromium


@pytest.fixture(scope="module")
def browser():
    """One browser for the module. Without Chromium the tests are skipped; with $REQUIRE_CHROMIUM they fail."""
    path = chromium()
    if path is None:
        why = "there is no Chromium: .ci/browser.sh installs it, or $CHROMIUM names one"
        (pytest.fail if os.environ.get("REQUIRE_CHROMIUM") else pytest.skip)(why)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield running
        running.close()


class Window:
    """One page in a browser context of its own; `errors` are those of its console and scripts."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
        self.page = self.context.new_page()
        self.errors = []
        self.asked = []
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def close(self):
        self.context.close()

    def reset(self):
        """Leave what was shown, and forget who looked."""
        self.page.goto("about:blank")
        self.context.clear_cookies()
        self.errors.clear()
        self.asked.clear()


@pytest.fixture(scope="module")
def idle_windows():
    """Windows that earlier tests have left, by their options: to open one takes most of a second."""
    return {}


@pytest.fixture
def window(browser, idle_windows):
    """Open a window with options of Playwright's; each must end without an error in its console."""
    opened = []

    def make(**options):
        idle = idle_windows.get(repr(options))
        found = idle.pop() if idle else Window(browser, **options)
        opened.append((options, found))
        return found

    yield make
    errors = [error for _, each in opened for error in each.errors]
    for options, each in opened:
        each.reset()
        idle_windows.setdefault(repr(options), []).append(each)
    assert errors == []
