"""Runs the tests that need other minors of Kubernetes, one minor after the other: `make test-versions`.

What is chosen are all scenarios and attacks but those in LEFT_OUT. A test that needs a newer minor is skipped with the
reason (tests/control_plane/minors.py), and the report of each run lists those.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.control_plane import build
from tests.control_plane.assets import missing_binaries
from tests.control_plane.versions import MINORS, OTHER_MINORS, Recipe, minor_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/scenarios", "tests/attacks")
MARKS = "cluster and not long and not operators"
OPTIONS = ("--timing", "--limit-reruns=2")
MINUTES_OF_A_MINOR = 12.0
"""So long takes one minor on two cores; with less time left it is not begun."""

LEFT_OUT = {
    f"tests/{file}": why
    for why, files in {
        "a thousand pods; test_uninstall.py takes the same steps": ("scenarios/test_emergency.py",),
        "TLS under load, between Fairgate and any client": ("scenarios/test_certificates.py",),
        "a browser, or commands that read what the watches of the others read": (
            "scenarios/test_page.py",
            "scenarios/test_review.py",
            "scenarios/test_usage.py",
        ),
        "kubectl's own reading of YAML, and kubectl is the newest on all": ("scenarios/test_kubectl_yaml.py",),
        "several replicas, whose ledger is one object with a resourceVersion": (
            "scenarios/test_lost_races.py",
            "scenarios/test_replicas.py",
        ),
        "sums and choices of the core, whatever the API server is": (
            "attacks/test_queue.py",
            "scenarios/test_department_limits.py",
            "scenarios/test_departments.py",
            "scenarios/test_fragmentation.py",
            "scenarios/test_greedy_team.py",
            "scenarios/test_idle_share.py",
            "scenarios/test_nodes_change.py",
        ),
    }.items()
    for file in files
}
"""Files whose tests run on the newest minor only, and why."""

_CLOSING = re.compile(r"=+ (.*\d+ (?:passed|failed|errors?|skipped|deselected)\b.*) =+")


def main(arguments: Sequence[str] | None = None) -> int:
    """Test each minor; return the status of the first that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.ci.versions", description=__doc__.splitlines()[0])
    parser.add_argument("minors", nargs="*", metavar="MINOR", help=f"of {', '.join(MINORS)}; all but the newest")
    parser.add_argument("--minutes", type=float, metavar="N", help="only what is built, and can be tested in the time")
    parser.add_argument("--workers", default="2", metavar="N", help="tests at a time")
    options = parser.parse_args(arguments)
    if unknown := set(options.minors) - set(MINORS):
        parser.error(f"no minor is called {', '.join(sorted(unknown))}")
    started = time.monotonic()
    results: list[str] = []
    status = 0
    for recipe in [MINORS[minor] for minor in options.minors] or OTHER_MINORS:
        minor = minor_of(recipe.version)
        if why := _why_not(recipe, options.minutes, started=started):
            results.append(f"left out, as {why}: Kubernetes {minor}")
            continue
        began = time.monotonic()
        failed, closing = _test(recipe, workers=options.workers)
        results.append(f"Kubernetes {recipe.version}: {closing}, {(time.monotonic() - began) / 60:.1f} minutes in all")
        status = status or failed
    print(*results, sep="\n", flush=True)  # noqa: T201  the answer of this command
    return status


def _why_not(recipe: Recipe, minutes: float | None, *, started: float) -> str | None:
    """Why a minor is not tested now; without a bound on the time it is built if need be."""
    if minutes is None:
        build.ensure([*build.FOR_TEST, recipe])
        return None
    if missing_binaries(recipe):
        return "it is not built"
    left = minutes - (time.monotonic() - started) / 60
    return None if left >= MINUTES_OF_A_MINOR else "the time is over"


def _test(recipe: Recipe, *, workers: str) -> tuple[int, str]:
    """Run pytest on one minor, showing its output; return its status and its closing line."""
    ignored = [f"--ignore={file}" for file in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-n", workers, "-m", MARKS, *OPTIONS, *ignored]
    environment = os.environ | {"KUBERNETES": minor_of(recipe.version)}
    closing = "no test ran"
    with subprocess.Popen(
        [*command, *FOLDERS], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            print(line, end="", flush=True)  # noqa: T201  as pytest would
            if found := _CLOSING.match(line):
                closing = found[1]
    return tests.returncode, closing


if __name__ == "__main__":
    sys.exit(main())
