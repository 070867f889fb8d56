"""Kinds that are not described, by manifests as people write them (tests/cases/unknown_kinds)."""

import pytest

from tests.cases.samples import FOLDER, read_yaml
from webhook.kube.kinds.model import Budget, Unknown
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.unknown_kinds import unknown_kind


def cases(name):
    return read_yaml(FOLDER / "unknown_kinds" / f"{name}.yaml")


def named(document):
    return f"{document['kind']}.{document['apiVersion']}"


@pytest.mark.parametrize("case", cases("asks"), ids=lambda case: named(case["of"]))
def test_what_asks_for_gpus_is_unknown_and_says_where(case):
    found = expand(case["of"], kinds=kind_table())
    assert isinstance(found, Unknown)
    assert f"it asks for GPUs or other devices at {case['at']};" in found.reason


@pytest.mark.parametrize("document", cases("mentions"), ids=named)
def test_what_only_mentions_gpus_is_skipped(document):
    assert expand(document, kinds=kind_table()) is None


def test_a_kind_whose_operator_decides_is_unknown_without_any_field():
    workspace = {"resource": {"instanceType": "<your-vm-sku>"}, "inference": {"preset": {"name": "phi-4"}}}
    found = unknown_kind(workspace, "kaito.sh", "Workspace", Budget())
    assert "its operator decides how many GPUs its pods request" in found.reason


def test_an_object_with_containers_is_unknown_without_devices():
    found = unknown_kind({"spec": {"pod": {"containers": [{"name": "a"}]}}}, "example.com", "Run", Budget())
    assert "it has containers at spec.pod.containers;" in found.reason


def test_an_object_of_many_values_is_too_large():
    found = expand({"apiVersion": "example.com/v1", "kind": "Run", "spec": [[1]] * 200_000}, kinds=kind_table())
    assert found.is_too_large
