"""What can be checked of the image without a build; `make image-check` checks a built one."""

import re
import subprocess
import sysconfig
from pathlib import Path, PurePosixPath

from tests.docs.pages import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


def copied():
    """Every path of the repository that a COPY names."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.M)
    return [path for line in lines for path in line.split()[:-1]]


def test_hadolint_reports_nothing():
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_build_context_is_exactly_what_is_copied():
    assert all((ROOT / path).exists() for path in copied())
    sent = [line[1:] for line in IGNORED if line.startswith("!")]
    assert IGNORED[IGNORED.index("**") :][1:] == [*(f"!{path}" for path in sent), "**/__pycache__"]
    assert all(any(PurePosixPath(path).match(pattern) for pattern in sent) for path in copied())
    assert all(any(PurePosixPath(path).match(pattern) for path in copied()) for pattern in sent)


def test_the_base_is_pinned_by_digest_and_is_the_same_in_every_stage():
    assert re.search(r"^ARG BASE=python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}$", DOCKERFILE, re.M)
    assert {line.split()[1] for line in re.findall(r"^FROM .*", DOCKERFILE, re.M)} == {"${BASE}"}


def test_nothing_is_fetched_without_its_hash():
    installs = re.findall(r"pip\b[^&]*?\binstall\b[^&]*", DOCKERFILE)
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-deps --no-index" in line for line in installs)


def test_its_user_is_a_number_other_than_root():
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.M) == ["65532:65532"]
