"""Responses to reviews: patches, statuses and warnings."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.realistic import realistic_review
from webhook.core.model.amounts import printable
from webhook.core.model.reasons import Code, Reason
from webhook.kube.admission.answers import Refusal, Status, encode_response
from webhook.kube.admission.pod_patch import operations
from webhook.kube.admission.reviews import decode


def answered(**kwargs):
    return json.loads(encode_response("u-1", **kwargs))


def test_admission_without_changes_has_no_patch():
    want = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }
    assert answered() == want


def test_a_patch_is_json_in_base64():
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"a": "ü"}}]
    response = answered(patch=patch, audit_annotations={"team": "vision"})["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"], validate=True)) == patch
    assert response["auditAnnotations"] == {"team": "vision"}


def test_a_refusal_is_a_status_that_clients_understand():
    causes = (Reason(Code.TEAM_LIMIT_EXCEEDED, "21 of 20"),)
    response = answered(refusal=Refusal(Status.FORBIDDEN, "exceeded quota: 21 of 20", causes))["response"]
    assert response == {
        "uid": "u-1",
        "allowed": False,
        "status": {
            "status": "Failure",
            "message": "exceeded quota: 21 of 20",
            "reason": "Forbidden",
            "code": 403,
            "details": {"causes": [{"reason": "TeamLimitExceeded", "message": "21 of 20"}]},
        },
    }


def test_too_many_requests_has_retry_after_seconds():
    status = answered(refusal=Refusal(Status.TOO_MANY_REQUESTS, "again", retry_after_seconds=1))["response"]["status"]
    assert (status["code"], status["reason"], status["details"]) == (
        429,
        "TooManyRequests",
        {"retryAfterSeconds": 1},
    )


def test_a_refusal_without_causes_has_no_details():
    status = answered(refusal=Refusal(Status.BAD_REQUEST, "no"))["response"]["status"]
    assert status == {"status": "Failure", "message": "no", "reason": "BadRequest", "code": 400}


def test_a_refusal_never_carries_a_patch():
    patch = [{"op": "add", "path": "/a", "value": 1}]
    assert "patch" not in answered(refusal=Refusal(Status.FORBIDDEN, "no"), patch=patch)["response"]


@given(st.lists(st.text(max_size=300), max_size=6))
def test_warnings_stay_within_the_api_servers_limits(texts):
    shown = answered(warnings=texts)["response"].get("warnings", [])
    assert len(shown) == min(len(texts), 3)
    for text, found in zip(texts, shown, strict=False):
        assert len(found) <= 120
        assert len(found.splitlines()) <= 1
        assert found.isprintable()
        assert found.removesuffix("…")[:100] == printable(" ".join(text.split()))[:100][: len(found.removesuffix("…"))]


def test_a_realistic_patch_is_encoded_without_loss(make_admit):
    review = decode(realistic_review())
    patch = operations(review.pod, make_admit(), now_text="2026-01-01T00:00:00Z")
    response = json.loads(encode_response(review.uid, patch=patch))["response"]
    paths = [operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))]
    assert "/metadata/labels/fairgate.dev~1team" in paths
