"""An add-on is a folder: without it the rest is imported, serves, reclaims and passes its own tests."""

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.ci.packages import see_tryout
from webhook.cli.addons import ADDONS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COPIED = ("webhook", "certs", "policies", "tests")
LINKED = ("benchmarks", "charts", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
SHORT = ("tests/evictor/test_executor.py", "tests/server/http/test_reviews.py", "tests/cli/explain", "tests/cli/queue")
LONG = tuple(f"tests/{name}" for name in ("policy", "cluster", "evictor", "server", "cli", "addons"))
REMOVED = [pytest.param((name,), id=name) for name in ADDONS] + [pytest.param(tuple(ADDONS), id="all")]
POLICY = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams: [{name: a, namespaces: [a], gpus: {guaranteed: 1}}]
"""
SECTIONS = {
    "idle": "{prometheus: {url: 'http://prometheus'}, series: {job: dcgm}}",
    "defragment": "{onDemand: true}",
    "notify": "{targets: [{name: a, url: 'https://example.org'}]}",
}


def gone_with(names):
    """These add-ons, and those that do not work without them."""
    found = set(names)
    while more := {name for name, addon in ADDONS.items() if found & {*addon.needs}} - found:
        found |= more
    return found


@cache
def imported(file):
    """What a file of the tree imports, by dotted names."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{each.name}" for each in node.names}
    return found


@cache
def addons_of(file, *, seen=frozenset()):
    """The add-ons that a test file imports, by itself or by a file of the tests that it imports."""
    names, inner = imported(file), set()
    for name in names:
        if name.startswith("tests.") and (path := ROOT / f"{name.replace('.', '/')}.py").is_file() and path not in seen:
            inner |= addons_of(path, seen=seen | {file})
    return inner | {match[1] for name in names if (match := re.match(r"(?:webhook|tests)\.addons\.(\w+)", name))}


def files_without(gone, places):
    """The test files in these places that need none of some add-ons, as paths in the tree."""
    files = [
        each
        for place in places
        for each in ([ROOT / place] if place.endswith(".py") else ROOT.rglob(f"{place}/**/test_*.py"))
    ]
    own = {ROOT / "tests" / "addons" / name for name in gone}
    kept = (each for each in files if each != Path(__file__) and not (own & {*each.parents} or addons_of(each) & gone))
    return sorted(str(each.relative_to(ROOT)) for each in kept)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Copies of the tree without some add-ons."""
    made = {}

    def without(names):
        if names not in made:
            made[names] = tree = tmp_path_factory.mktemp("tree")
            for name in COPIED:
                shutil.copytree(ROOT / name, tree / name)  # with compiled modules: each process imports most of them
            for name in LINKED:
                (tree / name).symlink_to(ROOT / name)
            for name in names:
                shutil.rmtree(tree / "webhook" / "addons" / name)
                shutil.rmtree(tree / "tests" / "addons" / name, ignore_errors=True)
        return made[names]

    return without


def run(tree, *arguments):
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environ, capture_output=True, text=True, check=False, timeout=3500
    )


@pytest.mark.parametrize("names", REMOVED)
def test_the_rest_serves_and_reclaims(trees, names):
    tree, gone = trees(names), gone_with(names)
    done = run(tree, "-c", "import webhook.server.root, webhook.evictor.root as m; print(m.__file__)")
    assert done.stdout.startswith(str(tree)), done.stderr
    shown = run(tree, "-m", "webhook", "--help").stdout.partition("Commands:")[2]
    listed = set(re.findall(r"^  ([\w-]+)", shown, re.MULTILINE))
    commands = {command: name for name, addon in ADDONS.items() for command in addon.commands}
    assert {each for each in listed if each in commands} == {each for each in commands if commands[each] not in gone}
    for command in ("serve", "evict"):
        assert run(tree, "-m", "webhook", command, "--help").returncode == 0
    command = tree / "fairgate"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={tree} exec {sys.executable} -m webhook "$@"\n')
    command.chmod(0o755)
    assert "admitted" in see_tryout(command, folder=tree)
    done = run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files_without(gone, SHORT))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("names", REMOVED)
def test_a_section_of_the_policy_that_no_addon_reads_is_a_problem(trees, names, tmp_path):
    for section, line in SECTIONS.items():
        (tmp_path / "policy.yaml").write_text(f"{POLICY}{section}: {line}\n")
        is_read = all(addon.section != section or name not in gone_with(names) for name, addon in ADDONS.items())
        done = run(trees(names), "-m", "webhook", "policy", "check", str(tmp_path))
        want = f"{tmp_path / 'policy.yaml'}:4: {section}: is without effect"
        assert (done.returncode == 0, want in done.stdout) == (is_read, not is_read), done.stdout


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", REMOVED)
def test_the_rest_passes_its_tests(trees, names):
    chosen = files_without(gone_with(names), LONG)
    marks = "not cluster and not slow and not long"
    done = run(trees(names), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-m", marks, *chosen)
    assert done.returncode == 0, done.stdout[-5000:]
