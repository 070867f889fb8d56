"""Builds Fairgate's wheel and sdist, and installs them as a user would: the steps that releasing and its test share."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ANSWER_SECONDS = 60


class PackagingError(Exception):
    """A step failed; the text names it and shows its output."""


@dataclass(frozen=True, slots=True)
class Packages:
    """The two files of a release."""

    wheel: Path
    sdist: Path

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each by its name."""
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (self.wheel, self.sdist)}


def do(*command: str | Path, **options: object) -> str:
    """Run a command and return what it printed on standard output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise PackagingError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(source: Path, *, into: Path) -> Packages:
    """Build both from a folder of sources."""
    do(sys.executable, "-m", "hatchling", "build", "--directory", into.absolute(), cwd=source)
    [wheel], [sdist] = into.glob("fairgate-*.whl"), into.glob("fairgate-*.tar.gz")
    return Packages(wheel, sdist)


def unpack(sdist: Path, *, into: Path) -> Path:
    """Unpack the sdist and return its one folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    [folder] = into.iterdir()
    return folder


def make_environment(folder: Path) -> Path:
    """Make an empty virtual environment, without pip, and return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def install(python: Path, *arguments: str | Path) -> None:
    """Install into another environment."""
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install"]
    do(*pip, *arguments)


def see_tryout(command: Path, *, folder: Path, environ: dict[str, str] | None = None) -> str:
    """Start `fairgate tryout` in a folder and return what it printed once it serves."""
    output = folder / "tryout.log"
    environment = os.environ | (environ or {}) | {"PYTHONUNBUFFERED": "1"}
    with output.open("w") as log:
        process = subprocess.Popen(
            [command, "tryout", "--port", "0"], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + ANSWER_SECONDS
        while "Serving" not in output.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise PackagingError(f"{command} tryout did not answer:\n{output.read_text()}")
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait()
    return output.read_text()
