"""A pod that cannot be read whole still counts: by who it is, where it is, and what can be read of its amounts."""

import json

import msgspec
import pytest

from tests.core.support.make import gpus
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import objects
from webhook.kube.pod.pod_recovery import UNREADABLE_PIECES, recovered_pod
from webhook.kube.pod.pods import to_resident

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
def test_a_field_that_is_not_what_it_should_be(broken):
    raw = json.dumps(pod(**broken)).encode()
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(raw)
    found = counted(raw)
    assert (found.uid, found.namespace, found.node, found.tier_label) == ("u1", "team-a", "n0", "guaranteed")
    assert found.demand.gpus == gpus(2)


@pytest.mark.parametrize("amount", ["lots", "1e99", "-1", [], None], ids=str)
def test_an_amount_that_cannot_be_read_is_a_large_one(amount):
    raw = json.dumps(pod(amount)).encode()
    assert counted(raw).demand.gpus == gpus(UNREADABLE_PIECES)


def test_a_pod_that_was_decoded_and_makes_no_sense():
    found = DECODER.decode(json.dumps(pod("lots")).encode())
    with pytest.raises(ValueError, match="not a quantity"):
        to_resident(found, BUILT_IN_RESOURCES)
    assert counted(found).demand.gpus == gpus(UNREADABLE_PIECES)
    assert counted(found).node == "n0"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b'{"metadata": {}, "spec": 1}'])
def test_what_is_no_pod_at_all(raw):
    assert recovered_pod(raw) is None
