"""Reviews and responses: decoding, error messages, and the encoded response."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.examples import examples
from tests.realistic import realistic_review
from webhook.kube.admission.reviews import Operation, ReviewError, decode


def test_a_creation_has_user_and_pod():
    review = decode(realistic_review(index=3, dry_run=True))
    assert (review.operation, review.namespace, review.name) == (
        Operation.CREATE,
        "vision",
        "resnet50-imagenet-worker-3",
    )
    assert review.uid == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert review.dry_run
    assert review.username == "system:serviceaccount:kubeflow:training-operator"
    assert [c.name for c in review.pod.spec.containers] == ["pytorch", "metrics-exporter"]
    assert review.old_pod is None


def test_the_realistic_review_has_the_benchmark_size():
    assert 9_300 <= len(realistic_review()) <= 9_700


def test_a_pod_with_a_generated_name_has_no_name_yet():
    nameless = b.pod()
    nameless["metadata"] = {"generateName": "train-", "namespace": "vision"}
    review = decode(b.review(nameless))
    assert review.name == ""
    assert review.pod.metadata.generate_name == "train-"


def test_an_update_has_the_old_metadata():
    review = decode(b.review(b.pod(), old=b.pod(labels={"fairgate.dev/team": "vision"}), operation="UPDATE"))
    assert review.operation is Operation.UPDATE
    assert review.old_pod.metadata.labels == {"fairgate.dev/team": "vision"}


def test_a_deletion_has_only_the_old_pod():
    review = decode(b.review(old=b.pod("gone"), operation="DELETE"))
    assert review.pod is None
    assert (review.old_pod.metadata.name, review.name) == ("gone", "gone")


def test_dry_run_defaults_to_false():
    assert not decode(b.review(dry_run=None)).dry_run


def envelope(**changes):
    body = json.loads(b.review())
    body["request"].update(changes)
    return b.encode(body)


def without(field):
    body = json.loads(b.review())
    del body["request"][field]
    return b.encode(body)


def pods_like(**changes):
    return {"group": "", "version": "v1", "resource": "pods", **changes}


BAD = {
    "empty body": (b"", "the body is empty"),
    "not JSON": (b"{nope", "not valid JSON"),
    "NaN": (b.review().replace(b'"dryRun":false', b'"dryRun":NaN'), "not valid JSON"),
    "NaN in an unread field": (b'{"apiVersion":"x","more":NaN}', "not valid JSON"),
    "truncated": (b.review()[:-1], "not valid JSON"),
    "not UTF-8": (b.review().replace(b"alice", b"al\xffce"), "not UTF-8: invalid start byte at byte"),
    "not UTF-8 in an unread field": (b'{"more":"\xff"}', "not UTF-8"),
    "deep nesting": (b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "deep nesting in a raw part": (
        b.review().replace(b'"spec":{', b'"spec":{"affinity":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b","),
        "nested too deeply",
    ),
    "a list": (b"[]", "expected object, got array"),
    "the old API": (
        b.encode({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}}),
        "expected admission.k8s.io/v1 AdmissionReview, got admission.k8s.io/v1beta1 AdmissionReview",
    ),
    "another kind": (
        b.encode({"apiVersion": "v1", "kind": "Pod"}),
        "expected admission.k8s.io/v1 AdmissionReview, got v1 Pod",
    ),
    "an empty object": (b"{}", "got no apiVersion no kind"),
    "no request": (
        b.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
        "request is missing",
    ),
    "no uid": (without("uid"), "request.uid is missing"),
    "a uid that is a number": (envelope(uid=7), "request.uid: expected str, got int"),
    "no operation": (without("operation"), "missing required field operation"),
    "an unknown operation": (envelope(operation="PATCH"), "request.operation: invalid enum value 'PATCH'"),
    "a deployment": (
        envelope(
            resource={"group": "apps", "version": "v1", "resource": "deployments"},
            object={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"template": {}}},
        ),
        "expected pods, got deployments.apps",
    ),
    "a config map": (envelope(resource=pods_like(resource="configmaps")), "expected pods, got configmaps"),
    "pods of another group": (envelope(resource=pods_like(group="metrics.k8s.io")), "got pods.metrics.k8s.io"),
    "pods of another version": (envelope(resource=pods_like(version="v2")), "expected pods of version v1, got v2"),
    "a subresource": (envelope(subResource="exec"), "got the subresource pods/exec"),
    "no object": (envelope(object=None), "request.object is missing: a review of CREATE carries the pod"),
    "an object of another kind": (
        envelope(object={**b.pod(), "kind": "PodTemplate"}),
        "request.object: expected v1 Pod, got v1 PodTemplate",
    ),
    "an object of another kind and shape": (
        envelope(object={"apiVersion": "v1", "kind": "Binding", "metadata": {}}),
        "request.object: expected v1 Pod, got v1 Binding",
    ),
    "an object without metadata": (
        envelope(object={"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}),
        "request.object: object missing required field metadata",
    ),
    "labels that are numbers": (
        envelope(object={**b.pod(), "metadata": {"labels": {"app": 1}}}),
        "request.object.metadata.labels[]: expected str, got int",
    ),
    "an update without the old pod": (envelope(operation="UPDATE"), "request.oldObject is missing"),
    "a deletion without the old pod": (
        envelope(operation="DELETE", object=None),
        "request.oldObject is missing",
    ),
    "no namespace": (
        envelope(namespace="", object={**b.pod(), "metadata": {"name": "x"}}),
        "request.namespace is missing",
    ),
}


@pytest.mark.parametrize(("body", "want"), BAD.values(), ids=BAD)
def test_malformed_reviews_are_refused_with_the_problem(body, want):
    with pytest.raises(ReviewError) as refused:
        decode(body)
    assert refused.value.status == 400
    assert want in refused.value.text


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_review_error(body):
    with pytest.raises(ReviewError):
        decode(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@examples(60)
@given(st.sampled_from(sorted(json.loads(b.review())["request"])), json_values)
def test_any_value_in_any_field_is_read_or_refused(field, value):
    with suppress(ReviewError):
        assert decode(envelope(**{field: value})).uid
