"""Borrowers that end in other ways than by their eviction alone, and room that comes back all the same."""

import pytest

from tests.control_plane.api import STRATEGIC_PATCH
from tests.control_plane.workbench import get_pod, make_nodes, wait_for
from tests.scenarios.evictor import ask, evicted, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}
STUBBORN = {"fairgate.test/ignores-sigterm": "true"}


def path_of(namespace, name):
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def test_a_borrower_with_a_finalizer_counts_nothing_once_its_containers_ended(cluster):
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        (name,) = fill(cluster, fairgate.team_a, 1, gpus=4, labels=BORROW)
        path = path_of(fairgate.team_a, name)
        cluster.api.patch(path, {"metadata": {"finalizers": ["example.org/never"]}})
        try:
            ask(cluster, fairgate.team_b, "b", gpus=4)
            wait_bound(cluster, fairgate.team_b, "b")
            assert cluster.api.exists(path), "nothing removes its finalizer"
            assert len(running.said("plan")) == 1
            wait_for(cluster, lambda: fairgate.charged("a") == 0, what="its charge ends")
        finally:
            cluster.api.patch(path, {"metadata": {"finalizers": None}})


def test_the_room_of_a_namespace_that_is_deleted_is_awaited_and_nothing_else_is_evicted_for_it(cluster):
    """Its borrower takes its time, and no Event can be created there."""
    make_nodes(cluster, 2, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        fill(cluster, mine, 1, gpus=4, labels=BORROW, annotations=STUBBORN, terminationGracePeriodSeconds=8)
        kept = fill(cluster, theirs, 1, gpus=4, prefix="kept", labels=BORROW)
        cluster.kubectl("delete", "namespace", mine, "--wait=false")
        wait_for(
            cluster, lambda: "deletionTimestamp" in get_pod(cluster, mine, "a00")["metadata"], what="it is deleted"
        )
        ask(cluster, theirs, "b", gpus=4)
        wait_bound(cluster, theirs, "b")
        assert evicted(cluster, theirs, kept) == []
        assert not running.said("evicted")


def test_a_borrower_in_phase_unknown_is_a_victim_like_others(cluster):
    """Its kubelet may still run it, so it is charged, and takes its room."""
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate):
        (name,) = fill(cluster, fairgate.team_a, 1, gpus=4, labels=BORROW)
        path = path_of(fairgate.team_a, name)
        cluster.api.patch(f"{path}/status", {"status": {"phase": "Unknown"}}, content_type=STRATEGIC_PATCH)
        assert fairgate.charged("a") == 4
        ask(cluster, fairgate.team_b, "b", gpus=4)
        wait_bound(cluster, fairgate.team_b, "b")


def test_a_victim_that_is_deleted_by_force_during_its_notice_costs_no_second_one(cluster):
    make_nodes(cluster, 2, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 30s}") as fairgate:
        names = fill(cluster, fairgate.team_a, 2, gpus=4, labels=BORROW)
        with evictor(fairgate) as running:
            ask(cluster, fairgate.team_b, "b", gpus=4)
            (plan,) = wait_for(cluster, lambda: running.said("plan"), what="a plan")
            (victim,) = plan["victims"]
            name = victim.rpartition("/")[2]
            cluster.api.delete(path_of(fairgate.team_a, name), {"gracePeriodSeconds": 0})
            wait_bound(cluster, fairgate.team_b, "b")
            assert not running.said("evicted"), "its room is free before its notice is over"
            assert evicted(cluster, fairgate.team_a, names) == [name]
            assert len(running.said("plan")) == 1
