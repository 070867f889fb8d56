"""Reviews of ResourceClaims: the devices and the pods that the core decides on."""

import pytest

from tests.builders import encode
from webhook.core.devices.claim_users import ClaimKey
from webhook.kube.admission.reviews import Operation, ReviewError, decode_claim
from webhook.kube.objects import keys

SPEC = {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
RESULT = {"request": "gpus", "driver": "gpu.example.com", "pool": "n0", "device": "gpu-0"}


def claim(status, **metadata):
    return {
        "metadata": {"name": "mine", "namespace": "team-a", "uid": "c1", **metadata},
        "spec": SPEC,
        "status": status,
    }


def allocated(*reserved):
    return {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": list(reserved)}


def decoded(found, **more):
    request = {"uid": "r1", "operation": "UPDATE", "namespace": "team-a", "object": found, **more}
    return decode_claim(encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))


def test_an_allocation_has_its_devices_and_only_the_pods_that_reserve_it():
    job = {"resource": "jobs", "name": "j", "uid": "u2", "apiGroup": "batch"}
    review = decoded(claim(allocated({"resource": "pods", "name": "p", "uid": "u1"}, job)))
    assert (review.operation, review.name, review.dry_run) == (Operation.UPDATE, "mine", False)
    found = review.allocation
    assert (found.key, found.uid, found.pods) == (ClaimKey("claim", "team-a", "mine"), "c1", ("u1",))
    assert len(found.devices) == 1
    assert found.made_for is None


def test_the_namespace_is_that_of_the_request():
    """The URL decides where an object is stored, not what its metadata says."""
    review = decoded(claim(allocated(), namespace="team-b"))
    assert review.allocation.key.namespace == "team-a"


def test_a_claim_for_container_requests_says_for_which_pod():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": True}
    marked = {"annotations": {keys.EXTENDED_CLAIM: "true"}}
    assert decoded(claim(allocated(), **marked, ownerReferences=[owner])).allocation.made_for == "u1"
    assert decoded(claim(allocated(), **marked)).allocation.made_for is None
    assert decoded(claim(allocated(), ownerReferences=[owner])).allocation.made_for is None
    other = owner | {"controller": None}
    assert decoded(claim(allocated(), **marked, ownerReferences=[other])).allocation.made_for is None


@pytest.mark.parametrize("found", [None, claim({}), claim(None)], ids=["no object", "no allocation", "no status"])
def test_a_claim_without_devices_has_no_allocation(found):
    assert decoded(found).allocation is None


def test_errors_name_the_kind():
    with pytest.raises(ReviewError, match="not a valid AdmissionReview of a ResourceClaim: "):
        decoded({"metadata": 3})
    with pytest.raises(ReviewError, match="every ResourceClaim has a namespace"):
        decoded(claim({}), namespace="")
