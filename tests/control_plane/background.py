"""Builds what is missing in a separate process, while the tests that do not need it run.

On two cores a first build takes longer than all those tests. It has the lowest priority, so that none of them is late.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.control_plane.assets import missing_binaries
from tests.control_plane.build import Say
from tests.control_plane.processes import Processes
from tests.control_plane.versions import Recipe

REPOSITORY = Path(__file__).parents[2]
POLL_SECONDS = 0.2
NAME = "build"
GIVES_WAY = True


class BackgroundBuild:
    """A build that ends, with all its processes, when this object is closed or its Python process ends."""

    def __init__(self, recipes: Sequence[Recipe]):
        self._processes = Processes()
        self._log = self._processes.log_path(NAME)
        self._shown = 0
        command = [
            sys.executable,
            "-m",
            "tests.control_plane.build",
            *(["--give-way"] if GIVES_WAY else []),
            *(recipe.name for recipe in recipes),
        ]
        build = self._processes.start(NAME, command, env=os.environ, cwd=REPOSITORY)
        # Where Linux shares the processor between sessions, niceness counts inside of one only. The session here is the
        # supervisor's own: written from inside of a shell's, this would slow down that whole shell.
        autogroup = Path(f"/proc/{build}/autogroup")
        if GIVES_WAY and autogroup.exists():
            autogroup.write_text("19")

    def wait_for(self, recipes: Sequence[Recipe], *, say: Say) -> str | None:
        """Return when all binaries of these recipes exist, or, if the build has ended without them, why."""
        while any(missing_binaries(recipe) for recipe in recipes):
            running = self._processes.is_running(NAME)  # asked first: the last lines come before the end
            self._show(say)
            if not running:
                break
            time.sleep(POLL_SECONDS)
        else:
            return None
        return self._log.read_text(errors="replace").rpartition("error: ")[2].strip() or "the build ended without them"

    def close(self) -> None:
        """End the build and everything that it started."""
        self._processes.close()

    def _show(self, say: Say) -> None:
        lines = self._log.read_text(errors="replace").splitlines()
        for line in lines[self._shown :]:
            say(line)
        self._shown = len(lines)
