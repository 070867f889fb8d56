"""An add-on is a folder: without it the rest is imported, serves, reclaims and passes its own tests."""

import ast
import json
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
SHORT = ("tests/evictor/test_executor.py", "tests/cli/explain")
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


ASKED = """
import json, sys
from importlib.abc import MetaPathFinder
from click.testing import CliRunner

class Gone(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if any(f"{name}.".startswith(f"webhook.addons.{gone}.") for gone in sys.argv[2:]):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Gone())
import webhook.server.root, webhook.evictor.root
from webhook.cli.main import main

def call(words):
    done = CliRunner().invoke(main, words)
    return done.exit_code, done.output

print(json.dumps([webhook.__file__, *map(call, json.loads(sys.argv[1]))]))
"""


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


def without(names, tree):
    """A copy of the tree without some add-ons."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name)  # with compiled modules: each process imports most of them
    for name in LINKED:
        (tree / name).symlink_to(ROOT / name)
    for name in names:
        shutil.rmtree(tree / "webhook" / "addons" / name)
        shutil.rmtree(tree / "tests" / "addons" / name, ignore_errors=True)


def run(tree, *arguments):
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environ, capture_output=True, text=True, check=False, timeout=3500
    )


def check_what_is_gone(tree, folder, names, *, blocked):
    """The servers are imported, and command line and policy know which add-ons are there."""
    gone, asked = gone_with(names), [["--help"], ["serve", "--help"], ["evict", "--help"]]
    for section, line in SECTIONS.items():
        (folder / f"{section}.yaml").write_text(f"{POLICY}{section}: {line}\n")
        asked.append(["policy", "check", str(folder / f"{section}.yaml")])
    done = run(tree, "-c", ASKED, json.dumps(asked), *blocked)
    assert done.returncode == 0, done.stderr
    file, shown, *helped = json.loads(done.stdout)
    assert file.startswith(str(tree))
    listed = set(re.findall(r"^  ([\w-]+)", shown[1].partition("Commands:")[2], re.MULTILINE))
    commands = {command: name for name, addon in ADDONS.items() for command in addon.commands}
    assert {each for each in listed if each in commands} == {each for each in commands if commands[each] not in gone}
    assert [status for status, _ in helped[:2]] == [0, 0]
    for section, (status, output) in zip(SECTIONS, helped[2:], strict=True):
        is_read = all(addon.section != section or name not in gone for name, addon in ADDONS.items())
        want = f"{folder / section}.yaml:4: {section}: is without effect"
        assert (status == 0, want in output) == (is_read, not is_read), output


@pytest.mark.parametrize("name", ADDONS)
def test_without_one_the_rest_knows_that_it_is_gone(tmp_path, name):
    check_what_is_gone(ROOT, tmp_path, (name,), blocked=(name,))


def test_without_all_the_rest_serves_and_reclaims(tmp_path_factory):
    tree, names = tmp_path_factory.mktemp("tree"), tuple(ADDONS)
    without(names, tree)
    check_what_is_gone(tree, tmp_path_factory.mktemp("policies"), names, blocked=())
    command = tree / "fairgate"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={tree} exec {sys.executable} -m webhook "$@"\n')
    command.chmod(0o755)
    assert "admitted" in see_tryout(command, folder=tree)
    done = run(tree, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files_without({*names}, SHORT))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", REMOVED)
def test_the_rest_passes_its_tests(tmp_path_factory, names):
    tree = tmp_path_factory.mktemp("tree")
    without(names, tree)
    chosen = files_without(gone_with(names), LONG)
    marks = "not cluster and not slow and not long"
    done = run(tree, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-m", marks, *chosen)
    assert done.returncode == 0, done.stdout[-5000:]
