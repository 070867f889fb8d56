"""Are the pinned dependencies known to be vulnerable, and do they still have the pinned hashes? `make audit`.

pip-audit reads the advisories of PyPI. If they cannot be reached, that is reported, and the check is limited to the
hashes: every file on the index must still have the hash of the lock file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

ROOT = Path(__file__).parents[2]
LOCKS = (ROOT / ".ci" / "requirements.txt", ROOT / ".ci" / "requirements-build.txt")


@dataclass(frozen=True, slots=True)
class Clean:
    """Every dependency was checked, and no vulnerability is known."""

    dependencies: int


@dataclass(frozen=True, slots=True)
class Vulnerable:
    """One line for each advisory."""

    advisories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not every dependency could be checked."""

    why: str


def verdict(report: str, *, complaint: str) -> Clean | Vulnerable | Unknown:
    """Interpret pip-audit's JSON: it calls an index without advisories clean, and only notes what it skipped."""
    try:
        dependencies = json.loads(report)["dependencies"]
    except json.JSONDecodeError:
        return Unknown(complaint.strip().rpartition("\n")[2] or "pip-audit printed no report")
    advisories = tuple(
        f"{found['name']} {found['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'none'}"
        for found in dependencies
        for known in found.get("vulns", ())
    )
    skipped = [found["skip_reason"] for found in dependencies if "skip_reason" in found]
    if advisories:
        return Vulnerable(advisories)
    if skipped or not dependencies:
        return Unknown(f"{len(skipped)} of {len(dependencies)} were skipped; {''.join(skipped[:1])}")
    return Clean(len(dependencies))


def _audit(lock: Path) -> bool:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--requirement", lock]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    name = lock.relative_to(ROOT)
    match verdict(done.stdout, complaint=done.stderr):
        case Clean(dependencies):
            print(f"{name}: no known vulnerabilities in {dependencies} dependencies")  # noqa: T201
            return True
        case Vulnerable(advisories):
            print(f"{name}:", *advisories, sep="\n  ")  # noqa: T201
            return False
        case Unknown(why):
            print(f"{name}: NOT AUDITED, the advisories cannot be reached: {why}")  # noqa: T201
            return _hashes_hold(lock)
        case other:
            assert_never(other)


def _hashes_hold(lock: Path) -> bool:
    """Fetch what the lock file pins for this platform; pip refuses a file with another hash."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*pip, "--require-hashes", "--requirement", lock, "--dest", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        fetched = len(list(Path(folder).iterdir()))
    if done.returncode == 0:
        print(f"  instead: {fetched} files fetched, all with the pinned hashes")  # noqa: T201
    else:
        print(f"  and the pinned hashes could not be verified:\n{done.stderr.strip()}")  # noqa: T201
    return done.returncode == 0


def main() -> int:
    """Audit both lock files; return 1 if a dependency is known to be vulnerable or has another hash."""
    outcomes = [_audit(lock) for lock in LOCKS]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
