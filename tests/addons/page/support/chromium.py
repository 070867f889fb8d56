"""Where Chromium is; `python -m tests.addons.page.support.chromium` prints that, and fails where it is not."""

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # root, as in containers, cannot have one; it shows only pages of the tests
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
)


def chromium():
    """The browser's executable, None where there is none: $CHROMIUM, that of the system, or Playwright's own."""
    given = os.environ.get("CHROMIUM")
    if given:
        return given
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    return next((str(path) for path in sorted(cache.glob("chromium-*/chrome-linux*/chrome"))), None)


if __name__ == "__main__":
    path = chromium()
    print(path or "there is no Chromium")  # noqa: T201 - for .ci/browser.sh
    sys.exit(path is None)
