"""The lock files pin what pyproject.toml requires, completely, by hash, and nothing else."""

import re
import tomllib
from importlib.metadata import requires

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"^([A-Za-z0-9].*?) \\\n {4}--hash=sha256:[0-9a-f]{64}\b", re.M)


def pins(lock):
    text = (ROOT / ".ci" / lock).read_text()
    found = [Requirement(match[1]) for match in PIN.finditer(text)]
    # the file has no line that the pattern does not match
    assert len(found) == len(re.findall(r"^[^ #\n]", text, re.M))
    return {canonicalize_name(pin.name): pin for pin in found}


def here(requirement):
    return requirement.marker is None or requirement.marker.evaluate(dict(default_environment()) | {"extra": ""})


@pytest.mark.parametrize(
    ("lock", "asked"),
    [
        ("requirements.txt", PROJECT["project"]["dependencies"]),
        ("requirements-build.txt", PROJECT["dependency-groups"]["build"]),
    ],
)
def test_every_dependency_is_pinned_to_a_version_that_pyproject_allows(lock, asked):
    pinned = pins(lock)
    for requirement in map(Requirement, asked):
        [pin] = pinned[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), f"{pin} is not {requirement}: make lock"


def test_what_dependencies_need_is_pinned_too_and_nothing_more():
    needed, open_requirements = set(), [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    while open_requirements:
        requirement = open_requirements.pop()
        name = canonicalize_name(requirement.name)
        if here(requirement) and name not in needed:
            needed.add(name)
            open_requirements += map(Requirement, requires(name) or ())
    assert needed == {name for name, pin in pins("requirements.txt").items() if here(pin)}
