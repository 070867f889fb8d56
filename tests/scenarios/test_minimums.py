"""Services that borrow and state a minimum: reclaim takes one replica of each, and none below its minimum."""

from collections import Counter

import pytest

from tests.control_plane.objects import pod_spec
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.evictor import alive, ask, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}
SERVICES = ("chat", "draw", "talk")


def service(name, *, replicas, minimum=None, asks=BORROW):
    """A Deployment of replicas of one GPU, which borrow by choice."""
    labels = {"app": name}
    template = {"metadata": {"labels": {**labels, **asks}}, "spec": pod_spec(gpus=1, cpu="1", memory="4Gi")}
    annotations = {} if minimum is None else {"fairgate.dev/minimum": str(minimum)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def autoscaler(name, *, least, most):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


def ready(cluster, namespace):
    """How many ready pods each service has."""
    found = Counter()
    for each in list_pods(cluster, namespace):
        conditions = each.get("status", {}).get("conditions", ())
        is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        if is_ready and "deletionTimestamp" not in each["metadata"] and "app" in each["metadata"]["labels"]:
            found[each["metadata"]["labels"]["app"]] += 1
    return dict(found)


def test_three_services_lose_a_replica_each_and_none_goes_below_its_minimum(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        (job,) = fill(cluster, mine, 1, prefix="job", labels=BORROW)  # an older pod: it would lose the most work
        by_annotation = [service(name, replicas=3, minimum=1) for name in SERVICES[:2]]
        by_autoscaler = [service(SERVICES[2], replicas=3), autoscaler(SERVICES[2], least=1, most=5)]
        cluster.kubectl.apply([*by_annotation, *by_autoscaler], "-n", mine)
        full = dict.fromkeys(SERVICES, 3)
        wait_for(cluster, lambda: ready(cluster, mine) == full, what="all replicas are ready")
        ask(cluster, theirs, "b0", gpus=3)
        wait_bound(cluster, theirs, "b0")
        assert ready(cluster, mine) == dict.fromkeys(SERVICES, 2)
        (plan,) = running.said("plan")
        assert plan["trimmed"] == [f"{mine}/Deployment/{name}" for name in SERVICES]
        ask(cluster, theirs, "b1", gpus=3)
        wait_bound(cluster, theirs, "b1")
        assert ready(cluster, mine) == dict.fromkeys(SERVICES, 1)
        assert job in alive(cluster, mine)
        ask(cluster, theirs, "b2", gpus=1)
        wait_bound(cluster, theirs, "b2")
        assert ready(cluster, mine) == dict.fromkeys(SERVICES, 1), "the job goes before a minimum"
        assert job not in alive(cluster, mine)
        ask(cluster, theirs, "b3", gpus=3)
        wait_bound(cluster, theirs, "b3")
        assert ready(cluster, mine) == {}, "where only minimums are left, the owner's share comes back all the same"


def tiers(cluster, namespace, name):
    """How many pods of a service have each tier."""
    there = list_pods(cluster, namespace, labelSelector=f"app={name}")
    return Counter(each["metadata"]["labels"].get(TIER) for each in there)


def test_a_minimum_takes_the_place_of_a_surplus_in_its_teams_share(cluster):
    make_nodes(cluster, 3)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        mine = fairgate.team_a
        cluster.kubectl.apply([service("large", replicas=20, minimum=5, asks={})], "-n", mine)
        wait_for(cluster, lambda: tiers(cluster, mine, "large") == {"guaranteed": 20}, what="it has all")
        cluster.kubectl.apply([service("small", replicas=3, minimum=2, asks={})], "-n", mine)
        wait_for(
            cluster,
            lambda: tiers(cluster, mine, "small") == {"guaranteed": 2, "preemptible": 1},
            what="the minimum is guaranteed",
            timeout=60,
        )
        wait_for(
            cluster,
            lambda: tiers(cluster, mine, "large") == {"guaranteed": 18, "preemptible": 2},
            what="a surplus gave way",
        )
