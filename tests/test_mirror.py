"""Tests mirror the source: webhook/ROOM/MODULE.py is tested by tests/ROOM/test_MODULE.py.

What is not is listed here with its reason, and leaves the list when it gets a file of its name.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "webhook"
MIRRORED = ("core", "kube")
CASES = TESTS / "cases" / "kinds"

BY_CASES = {
    f"kube/kinds/{name}.py"
    for name in (
        "apps",
        "argo",
        "batch",
        "dynamo",
        "inference",
        "path_kinds",
        "kubevirt",
        "tekton",
        "kubeflow",
        "pod_groups",
        "ray",
        "seldon",
        "serving",
        "spark",
        "trainjob",
    )
}
"""Kinds: tests/cases/kinds/MODULE.yaml has a sample of each row, tests/cases/expansions/MODULE.yaml its pods."""


INTERFACES = {"core/queue/verdict.py"}
"""Values and a Protocol: the tests of their callers cover them."""


def modules(layer):
    found = (SOURCE / layer).rglob("*.py")
    return sorted(str(path.relative_to(SOURCE)) for path in found if path.name != "__init__.py")


def has_behavior(module):
    return "def " in (SOURCE / module).read_text() and module not in INTERFACES


def path_of_tests(module):
    return TESTS / Path(module).parent / f"test_{Path(module).name}"


@pytest.mark.parametrize("layer", MIRRORED)
def test_every_module_with_behavior_has_a_test_file_of_its_name(layer):
    wanted = [each for each in modules(layer) if has_behavior(each) and each not in BY_CASES]
    assert [each for each in wanted if not path_of_tests(each).is_file()] == []


def test_the_kinds_have_samples_in_files_of_their_name():
    named = {Path(module).stem for module in BY_CASES}
    assert named <= {path.stem for path in CASES.glob("*.yaml")}
