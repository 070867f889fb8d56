"""Claims that get their devices, as the API server asks about them: bytes in, bytes out."""

import json
import time

import msgspec
import pytest

from tests.builders import encode, reviewed
from tests.core.support.make import demand, policy, resident, team, world
from webhook.core.model.amounts import DEVICE_CLASS, ONE_GPU
from webhook.core.model.demand import ClaimRef
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.pod import Admitted
from webhook.core.model.policy import BUILT_IN_RESOURCES, Enforcement
from webhook.kube.admission.reviews import ReviewError
from webhook.kube.pod import devices
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger
from webhook.server.review.workload_reviews import answer_claim

GPU = "gpu.nvidia.com"
WEIGHTS = {**BUILT_IN_RESOURCES, DEVICE_CLASS + GPU: ONE_GPU}


def claim(number, *, uid="c1", is_allocated=True):
    results = [{"request": "gpus", "driver": GPU, "pool": "n0", "device": f"gpu-{i}"} for i in range(number)]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "team-a", "uid": uid},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": GPU, "count": number}}]}},
        "status": status if is_allocated else {},
    }


def review(found, **more):
    user = {"username": "system:kube-scheduler"}
    asked = {"uid": "r1", "operation": "UPDATE", "namespace": "team-a", "name": "mine", "userInfo": user} | more
    return reviewed(object=found, **asked)


def place(known, **more):
    """A world in which the claim is known as given, and its pod was admitted with one GPU."""
    made = world(policy(team(limit_=None), resources=WEIGHTS, **more))
    made.set_device_class(GPU, DeviceClass(GPU, mentions_gpus=True))
    decoded = dra_claim(known)
    made.set_claim(devices.claim_key(decoded.metadata), devices.to_claim(decoded), decoded.metadata.uid)
    refs = (ClaimRef(claim="mine"),)
    made.set_pod(resident(0, uid="u1", demand=demand(0), claims=refs, admitted=Admitted(ONE_GPU, "p1")))
    return made


def dra_claim(manifest):
    return msgspec.json.decode(json.dumps(manifest), type=devices.ResourceClaim)


def answer(number, *, enforce=Enforcement.ENFORCE, **more):
    found = claim(number, **more)
    made = answer_claim(review(found), place(found, enforce=enforce))
    return json.loads(made.body)["response"], made.record


def test_devices_that_the_pod_was_admitted_with_are_allowed():
    response, record = answer(1)
    assert response["allowed"]
    assert (record.code, record.team, record.name, record.gpus) == ("ClaimCovered", "team-a", "mine", 1)


def test_more_devices_are_refused_with_a_remedy():
    response, record = answer(3)
    assert (response["allowed"], response["status"]["code"], record.outcome) == (False, 403, "deny")
    assert "takes 3 GPUs, its pod u1 was admitted with 1" in response["status"]["message"]
    assert "Delete the pod and create it again (ClaimChanged)" in response["status"]["message"]


def test_a_claim_in_an_unknown_version_is_retried():
    made = answer_claim(review(claim(1, uid="c2")), place(claim(1)))
    status = json.loads(made.body)["response"]["status"]
    assert (status["code"], status["details"]["retryAfterSeconds"], made.record.outcome) == (429, 1, "retry")


def test_a_claim_without_devices_is_allowed():
    assert answer(3, is_allocated=False)[0]["allowed"]


@pytest.mark.parametrize(("mode", "would"), [(Enforcement.SHADOW, "deny"), (Enforcement.OFF, "")])
def test_nothing_is_refused_while_nothing_is_enforced(mode, would):
    response, record = answer(3, enforce=mode)
    assert (response["allowed"], record.outcome, record.would) == (True, "skip", would)


@pytest.mark.parametrize(
    "metadata",
    [{"labels": {f"l{number}": "v" * 60 for number in range(40_000)}}, {"annotations": {"a": "x" * 2**20}}],
    ids=["3 MiB of labels", "more than a MiB of text"],
)
def test_a_claim_that_is_too_large_to_read_gets_no_devices(metadata):
    found = claim(1)
    found["metadata"] |= metadata
    reviewer = AdmissionReviewer(
        place(claim(1)), MemoryLedger(world(), lambda: 0.0), now_text=lambda: "2026-01-01T00:00:00Z"
    )
    body = review(found)
    answered = reviewer.claims(body)
    response = json.loads(answered.body)["response"]
    assert (response["allowed"], answered.record.code) == (False, "TooLarge")
    # a hundredth of what reading it would take, and here no more than making plain values of it, with room to spare
    assert quickest(lambda: reviewer.claims(body)) < 3 * quickest(lambda: json.loads(body))


def quickest(call):
    """The least processor time of some calls, in seconds: what else runs lengthens some of them, and rarely all."""

    def seconds():
        began = time.thread_time()
        call()
        return time.thread_time() - began

    return min(seconds() for _ in range(7))


@pytest.mark.parametrize(
    ("broken", "want"),
    [
        (review(None, uid=""), "request.uid is missing"),
        (review(None, namespace=""), "request.namespace is missing"),
        (encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), "request is missing"),
        (encode({"apiVersion": "v1", "kind": "Pod"}), "expected admission.k8s.io/v1 AdmissionReview"),
        (review({"metadata": 3}), "not a valid AdmissionReview of a ResourceClaim"),
    ],
)
def test_a_request_that_is_not_a_review_of_a_claim_is_an_error(broken, want):
    with pytest.raises(ReviewError, match=want):
        answer_claim(broken, world())
