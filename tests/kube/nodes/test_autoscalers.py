"""Autoscalers by what the API server serves and by Cluster Autoscaler's status; leftovers and namesakes are none."""

import json

import pytest

from webhook.core.model.node import Autoscaler
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import STOPPED_SECONDS, is_running, objects_of, serves_karpenter
from webhook.kube.world_file.world_file import add_objects

NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC
UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
POOLS = {"name": "nodepools", "kind": "NodePool", "namespaced": False}
POOL_STATUS = {"name": "nodepools/status", "kind": "NodePool", "namespaced": False}
CLAIMS = {"name": "nodeclaims", "kind": "NodeClaim", "namespaced": False}


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ([POOLS, POOL_STATUS, CLAIMS], True),
        ([POOLS, POOL_STATUS], False),
        ([{**POOLS, "namespaced": True}, {**CLAIMS, "namespaced": True}], False),
        ([{**POOLS, "kind": "Pool"}, CLAIMS], False),
        ([], False),
        (None, False),
    ],
    ids=["both kinds", "half installed", "namespaced ones", "another kind", "nothing served", "no list"],
)
def test_karpenter_is_two_cluster_scoped_kinds(resources, want):
    assert serves_karpenter(json.dumps({"kind": "APIResourceList", "resources": resources}).encode()) is want


@pytest.mark.parametrize("body", [b"", b"[]", b'{"resources": 5}', b"\xff"])
def test_what_is_no_list_is_an_error(body):
    with pytest.raises(ValueError, match=r"."):
        serves_karpenter(body)


def status(updated, name="cluster-autoscaler-status"):
    metadata = {"name": name, "namespace": "kube-system", "annotations": {UPDATED: updated} if updated else None}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"status": "x"}}).encode()


@pytest.mark.parametrize(
    ("updated", "want"),
    [
        ("2026-09-21 14:13:12.190150095 +0000 UTC", True),
        ("2026-09-21 16:13:12 +0200 CEST", True),
        ("2026-09-21 13:10:00.5 +0000 UTC", False),
        ("2027-09-21 13:10:00.5 +0000 UTC", True),
        ("yesterday", False),
        ("", False),
    ],
    ids=["now", "another zone", "an hour ago", "a clock ahead", "no time", "written by something else"],
)
def test_cluster_autoscaler_runs_where_it_updates_its_status(updated, want):
    assert is_running(status(updated), now=NOW) is want


def test_a_status_ages():
    body = status("2026-09-21 14:13:20 +0000 UTC")
    assert is_running(body, now=NOW + STOPPED_SECONDS - 1)
    assert not is_running(body, now=NOW + STOPPED_SECONDS)


def found_by(saved):
    """The autoscalers of a world file with these objects."""
    world = World(Policy())
    add_objects(world, saved, name="w")
    return world.autoscalers


@pytest.mark.parametrize(
    "found",
    [set(), {Autoscaler.KARPENTER}, {Autoscaler.CLUSTER_AUTOSCALER}, set(Autoscaler)],
    ids=("none", "karpenter", "cluster-autoscaler", "both"),
)
def test_a_file_says_which_there_are(found):
    assert found_by([*objects_of(found, at=NOW), {**json.loads(status("", name="other"))}]) == found


def test_half_a_karpenter_in_a_file_is_none():
    (pools, claims) = objects_of({Autoscaler.KARPENTER}, at=NOW)
    assert found_by([pools]) == frozenset()
    namesake = {**claims, "spec": {**claims["spec"], "group": "example.com"}}
    assert found_by([pools, {**namesake, "metadata": {"name": "x"}}]) == set()
