"""Owners of objects: reading owner references, and paths that a tenant's text cannot escape."""

import json

import msgspec
import pytest

from webhook.kube.objects import objects
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.objects import controller_of, owner_in

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
