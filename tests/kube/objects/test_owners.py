"""Owners of objects: reading owner references, and paths that a tenant's text cannot escape."""

import json

import msgspec
import pytest

from webhook.kube.objects import objects
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.owners import controller_of, owner_in, path_of

RS = ObjectRef("ReplicaSet", "team-a", "web-1", "u1", "apps/v1")
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u2", "controller": True}


def metadata(*owners, **more):
    return msgspec.convert({"name": "p", "ownerReferences": list(owners), **more}, objects.ObjectMeta)


def body(**meta):
    return json.dumps({"kind": "PartialObjectMetadata", "metadata": {"name": "web-1", **meta}}).encode()


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        pytest.param([DEPLOYMENT], ObjectRef("Deployment", "team-a", "web", "u2", "apps/v1"), id="a controller"),
        pytest.param([DEPLOYMENT | {"controller": False}], None, id="an owner that is not the controller"),
        pytest.param([DEPLOYMENT | {"uid": ""}], None, id="one without a UID"),
        pytest.param([DEPLOYMENT | {"name": "w" * 400}], None, id="one whose name no object can have"),
        pytest.param([], None, id="no owner"),
    ],
)
def test_the_controller_must_have_all_fields(owners, want):
    assert controller_of(metadata(*owners), namespace="team-a") == want


def test_the_next_owner_is_read_only_if_the_uid_matches():
    deployment = ObjectRef("Deployment", "team-a", "web", "u2", "apps/v1")
    assert owner_in(body(uid="u1", ownerReferences=[DEPLOYMENT]), RS) == deployment
    assert owner_in(body(uid="another", ownerReferences=[DEPLOYMENT]), RS) is None
    itself = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u1", "controller": True}
    assert owner_in(body(uid="u1", ownerReferences=[itself]), RS) is None
    with pytest.raises(ValueError, match="metadata"):
        owner_in(b"{}", RS)


@pytest.mark.parametrize(
    ("ref", "want"),
    [
        pytest.param(RS, "/apis/apps/v1/namespaces/team-a/replicasets/web-1", id="a group"),
        pytest.param(ObjectRef("Pod", "n", "p", "u", "v1"), "/api/v1/namespaces/n/pods/p", id="the core"),
        pytest.param(ObjectRef("Notebook", "n", "p", "u", "kubeflow.org/v1"), None, id="a kind that users create"),
        pytest.param(ObjectRef("Job", "n", "j", "u", "apps/v1"), None, id="a kind of another group"),
        pytest.param(
            ObjectRef("Job", "n", "../../../secrets", "u", "batch/v1"), None, id="a name that leaves the namespace"
        ),
        pytest.param(ObjectRef("Job", "n", "..", "u", "batch/v1"), None, id="a name that is the parent directory"),
        pytest.param(ObjectRef("Job", "n", "a?watch=1", "u", "batch/v1"), None, id="a name with a query"),
        pytest.param(ObjectRef("Job", "n", "j", "u", "batch/v1/../.."), None, id="a version that leaves the API"),
        pytest.param(ObjectRef("Job", "n", "j", "u", "batch"), None, id="no version"),
    ],
)
def test_a_path_never_leaves_the_namespace(ref, want):
    assert path_of(ref) == want
