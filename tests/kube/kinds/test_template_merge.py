"""Merging of pod specs: containers by name, resources by side and name, lists appended."""

from webhook.kube.kinds.gpu_requests import merge_container, merge_spec
from webhook.kube.kinds.model import Budget


def test_containers_are_merged_by_name_and_new_ones_come_last():
    base = {"containers": [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]}
    patch = {"containers": [{"name": "new"}, {"name": "main", "image": "c"}]}
    want = [{"name": "main", "image": "c", "resources": {}}, {"name": "side", "image": "b"}, {"name": "new"}]
    assert merge_spec(base, patch, Budget())["containers"] == want


def test_requests_and_limits_are_merged_by_resource():
    base = {"resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}}
    patch = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    want = {"limits": {"cpu": "1", "nvidia.com/gpu": "2"}, "requests": {"cpu": "1"}}
    assert merge_container(base, patch, Budget())["resources"] == want


def test_tolerations_are_appended_mappings_merged_and_the_rest_replaced():
    base = {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "1", "y": "1"}, "schedulerName": "old"}
    patch = {"tolerations": [{"key": "b"}], "nodeSelector": {"y": "2"}, "schedulerName": "new"}
    want = {
        "tolerations": [{"key": "a"}, {"key": "b"}], "nodeSelector": {"x": "1", "y": "2"}, "schedulerName": "new"
    }  # fmt: skip
    assert merge_spec(base, patch, Budget()) == want


def test_a_merge_changes_neither_of_its_parts():
    base, patch = {"containers": [{"name": "main"}]}, {"containers": [{"name": "main", "image": "c"}]}
    merge_spec(base, patch, Budget())
    assert base == {"containers": [{"name": "main"}]}
