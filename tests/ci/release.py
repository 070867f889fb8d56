"""Is this commit ready to be released? Reports everything that is missing; `make release-check`."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from tests.ci.packages import PackagingError, build, do, install, make_environment, see_tryout, unpack

ROOT = Path(__file__).parents[2]


def version_of(root: Path) -> str:
    """The version, from its only source."""
    [version] = re.findall(r'^__version__ = "(.*)"$', (root / "webhook" / "__init__.py").read_text(), re.M)
    return version


def disagreements(root: Path) -> list[str]:
    """Return what does not name this version as the released one."""
    version = version_of(root)
    changelog = (root / "CHANGELOG.md").read_text()
    chart = yaml.safe_load((root / "charts" / "fairgate" / "Chart.yaml").read_text())
    found = []
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M):
        found.append(f"CHANGELOG.md: no heading `## [{version}] - YYYY-MM-DD`")
    if re.search(r"^## \[Unreleased\]\n+(?!## |\n|\Z)", changelog, re.M):
        found.append("CHANGELOG.md: something is still unreleased")
    found += [
        f"charts/fairgate/Chart.yaml: {key} is {chart.get(key)}, expected {version}"
        for key in ("version", "appVersion")
        if str(chart.get(key)) != version
    ]
    return found


def uncommitted(root: Path) -> list[str]:
    """Files that a clone of this commit would lack, or have with other content."""
    return [f"not committed: {line[3:]}" for line in do("git", "status", "--porcelain", cwd=root).splitlines()]


def try_packages(root: Path, *, dist: Path) -> None:
    """Build, build again from the sdist, check the metadata, and install into an empty environment by the lock file."""
    shutil.rmtree(dist, ignore_errors=True)
    packages = build(root, into=dist)
    do(sys.executable, "-m", "twine", "check", "--strict", packages.wheel, packages.sdist)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sdist").mkdir()
        again = build(unpack(packages.sdist, into=folder / "sdist"), into=folder / "again")
        if again.hashes() != packages.hashes():
            raise PackagingError("built from the sdist, the packages are others")
        python = make_environment(folder / "environment")
        install(python, "--require-hashes", "--requirement", root / ".ci" / "requirements.txt")
        install(python, "--no-deps", "--no-index", packages.wheel)
        do(sys.executable, "-m", "pip", "--python", python, "check")
        command = python.with_name("fairgate")
        printed = do(command, "--version").strip()
        if printed != f"fairgate, version {version_of(root)}":
            raise PackagingError(f"fairgate --version says {printed}")
        see_tryout(command, folder=folder)
    print(json.dumps(packages.hashes(), indent=2))  # noqa: T201


def main() -> int:
    """Check everything and report all that is missing at once."""
    problems = uncommitted(ROOT) + disagreements(ROOT)
    try:
        try_packages(ROOT, dist=ROOT / "dist")
    except PackagingError as error:
        problems.append(str(error))
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)  # noqa: T201
    if not problems:
        print(f"ready: tag this commit v{version_of(ROOT)}; docs/development/releasing.md says what is next")  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
