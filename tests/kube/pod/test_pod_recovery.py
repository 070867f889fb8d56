"""A pod that cannot be decoded completely still counts, by its identity, node and readable amounts."""

import json

import msgspec
import pytest

from tests.core.support.make import gpus
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import objects
from webhook.kube.pod.existing import to_resident
from webhook.kube.pod.waiting import UNREADABLE_AMOUNT, recovered_pod

DECODER = msgspec.json.Decoder(objects.Pod)


def pod(amount="2", **more):
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": amount}}}]
    metadata = {"name": "p", "namespace": "team-a", "uid": "u1", "labels": {"fairgate.dev/tier": "guaranteed"}}
    spec = {"containers": containers, "nodeName": "n0"}
    return {"metadata": metadata | more.get("metadata", {}), "spec": spec | more.get("spec", {})}


def counted(found):
    return to_resident(recovered_pod(found), BUILT_IN_RESOURCES)


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"labels": {"fairgate.dev/tier": "guaranteed", "x": 7}}},
        {"metadata": {"ownerReferences": [{"name": 1}]}},
        {"spec": {"priority": "high"}},
        {"spec": {"initContainers": [{"resources": []}]}},
        {"spec": {"volumes": "?"}},
    ],
    ids=[
        "a label that is a number",
        "an owner of no kind",
        "a priority in words",
        "a nameless container",
        "no volumes",
    ],
)
def test_a_pod_with_a_malformed_field_is_counted(broken):
    raw = json.dumps(pod(**broken)).encode()
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(raw)
    found = counted(raw)
    assert (found.uid, found.namespace, found.node, found.tier_label) == ("u1", "team-a", "n0", "guaranteed")
    assert found.demand.gpus == gpus(2)


@pytest.mark.parametrize("amount", ["lots", "1e99", "-1", [], None], ids=str)
def test_a_malformed_amount_counts_as_a_large_one(amount):
    raw = json.dumps(pod(amount)).encode()
    assert counted(raw).demand.gpus == gpus(UNREADABLE_AMOUNT)


def test_a_decoded_pod_with_malformed_amounts_is_counted():
    found = DECODER.decode(json.dumps(pod("lots")).encode())
    with pytest.raises(ValueError, match="not a quantity"):
        to_resident(found, BUILT_IN_RESOURCES)
    assert counted(found).demand.gpus == gpus(UNREADABLE_AMOUNT)
    assert counted(found).node == "n0"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b'{"metadata": {}, "spec": 1}'])
def test_other_objects_are_ignored(raw):
    assert recovered_pod(raw) is None
