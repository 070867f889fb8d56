"""Reviews of workloads whose annotation makes their pods a gang."""

import base64
import json

import pytest

from tests import builders
from tests.core.support.make import policy, team, world
from webhook.core.model.policy import Enforcement
from webhook.kube.admission.reviews import ReviewError
from webhook.server.review.workload_reviews import answer_gang


def answered(*, annotations=None, operation="CREATE", enforce=Enforcement.ENFORCE, namespace="team-a", **spec):
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": annotations or {"fairgate.dev/gang": "true"}},
        "spec": {"template": {"spec": builders.pod()["spec"]}, **spec},
    }
    request = {"uid": "u", "operation": operation, "namespace": namespace, "object": document, "userInfo": {}}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    made = policy(team(), enforce=enforce, exempt_namespaces=("kube-*",))
    answer = answer_gang(body.encode(), world(made))
    response = json.loads(answer.body)["response"]
    assert response["allowed"]
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return patch, answer.record


def test_the_template_gets_the_annotation():
    patch, record = answered()
    value = {"annotations": {"fairgate.dev/gang": "true"}}
    assert patch == [{"op": "add", "path": "/spec/template/metadata", "value": value}]
    assert (record.code, record.name, record.outcome) == ("GangMarked", "Job/train", "admit")


def test_run_times_are_copied_without_making_a_gang():
    patch, record = answered(annotations={"fairgate.dev/run-time": "2h"})
    [change] = patch
    want = {"fairgate.dev/run-time": "2h"}
    assert (change["path"], change["value"]) == ("/spec/template/metadata", {"annotations": want})
    assert (record.code, record.outcome) == ("RunTimeCopied", "admit")
    _, record = answered(annotations={"fairgate.dev/run-time": "2h", "fairgate.dev/gang": "true"})
    assert record.code == "GangMarked"


def test_a_minimum_is_copied_without_making_a_gang():
    [change], record = answered(annotations={"fairgate.dev/minimum": "2"})
    assert change["value"] == {"annotations": {"fairgate.dev/minimum": "2"}}
    assert (record.code, record.outcome) == ("MinimumCopied", "admit")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"annotations": {"a": "b"}}, "NotACreate"),
        ({"operation": "UPDATE"}, "NotACreate"),
        ({"namespace": "kube-x"}, "Exempt"),
        ({"enforce": Enforcement.SHADOW}, "NotEnforced"),
        ({"note": "x" * 2_000_000}, "TooLarge"),
        ({"note": [{"a": [[]] * 30}] * 2000}, "TooLarge"),
        ({"note": [[]] * 45_000}, "TooLarge"),
    ],
    ids=["no annotation", "an update", "exempt", "not enforced", "too long", "too many values", "too much to search"],
)
def test_everything_else_stays_as_it_is(more, code):
    patch, record = answered(**more)
    assert patch == []
    assert (record.code, record.outcome) == (code, "skip")


def test_a_malformed_review_is_refused():
    with pytest.raises(ReviewError):
        answer_gang(b'{"request": 3}', world(policy(team())))
