"""The packages are built, rebuilt and installed as for a release; all inconsistencies of a release are reported."""

import re
import sysconfig
import tarfile
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement

from tests.ci.packages import build, do, install, make_environment, see_tryout, unpack
from tests.ci.release import disagreements, uncommitted
from tests.docs.pages import ROOT
from webhook import __version__

pytestmark = pytest.mark.slow

NEEDED = ("CHANGELOG.md", "LICENSE", "README.md", "certs", "policies/default", "pyproject.toml", "webhook")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return build(ROOT, into=tmp_path_factory.mktemp("dist"))


def sources():
    """The inputs of a build, in the repository, or in a copy that is not a git repository."""
    for name in NEEDED:
        found = [ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*")
        yield from (str(f.relative_to(ROOT)) for f in found if f.is_file() and "__pycache__" not in f.parts)


def test_the_sdist_holds_what_a_build_needs_and_nothing_else(packages, tmp_path):
    with tarfile.open(packages.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert names == {*sources(), ".gitignore", "PKG-INFO"}  # the packager adds these two
    again = build(unpack(packages.sdist, into=tmp_path), into=tmp_path / "again")
    assert again.hashes() == packages.hashes()  # only the sources matter: no clock, no git, no folder


def test_the_wheel_works_in_an_environment_of_its_own(packages, tmp_path):
    python = make_environment(tmp_path / "environment")
    install(python, "--no-deps", "--no-index", packages.wheel)
    dependencies = {"PYTHONPATH": sysconfig.get_path("purelib")}  # they are installed already
    command = python.with_name("fairgate")
    assert do(command, "--version", env=dependencies) == f"fairgate, version {__version__}\n"
    where = "import webhook, certs; print(webhook.__file__, certs.__file__)"
    found = do(python, "-c", where, cwd=tmp_path, env=dependencies).split()
    assert all(path.startswith(str(tmp_path)) for path in found)
    assert "admitted: guaranteed" in see_tryout(command, folder=tmp_path, environ=dependencies)


def test_the_wheel_names_both_commands_its_licence_and_every_dependency(packages):
    with zipfile.ZipFile(packages.wheel) as archive:
        information = f"fairgate-{__version__}.dist-info"
        metadata = archive.read(f"{information}/METADATA").decode()
        commands = archive.read(f"{information}/entry_points.txt").decode()
        assert f"{information}/licenses/LICENSE" in archive.namelist()
    assert "License-Expression: Apache-2.0" in metadata
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {Requirement(each) for each in re.findall("^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)} == {
        Requirement(each) for each in wanted
    }
    assert "fairgate = webhook.cli.main:main\nkubectl-fairgate = webhook.cli.main:plugin" in commands
    assert "kubectl_complete-fairgate = webhook.cli.main:kubectl_complete" in commands


@pytest.fixture
def tree(tmp_path):
    """A repository in which every version is 1.2.3."""
    texts = {
        "webhook/__init__.py": '"""Fairgate."""\n\n__version__ = "1.2.3"\n',
        "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-21\n### Added\n- All.\n",
        "charts/fairgate/Chart.yaml": "version: 1.2.3\nappVersion: '1.2.3'\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_consistent_tree_is_ready(tree):
    assert disagreements(tree) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "want"),
    [
        ("CHANGELOG.md", "2026-11-21", "unreleased", "CHANGELOG.md: no heading `## [1.2.3] - YYYY-MM-DD`"),
        ("CHANGELOG.md", "\n## [1", "### Fixed\n- It.\n\n## [1", "CHANGELOG.md: something is still unreleased"),
        (
            "charts/fairgate/Chart.yaml",
            "'1.2.3'",
            "0.9",
            "charts/fairgate/Chart.yaml: appVersion is 0.9, expected 1.2.3",
        ),
    ],
)
def test_an_inconsistency_is_named(tree, name, old, new, want):
    (tree / name).write_text((tree / name).read_text().replace(old, new))
    assert disagreements(tree) == [want]


def test_an_uncommitted_change_is_named(tree):
    do("git", "init", tree)
    do("git", "add", "webhook", cwd=tree)
    assert uncommitted(tree) == [
        "not committed: webhook/__init__.py",
        "not committed: CHANGELOG.md",
        "not committed: charts/",
    ]
