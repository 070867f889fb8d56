"""Where kube-scheduler, with its default scores, binds pods that Fairgate chose nodes for."""

from collections import Counter

import pytest

from tests.builders import decision_of
from tests.control_plane.objects import pod, pod_spec
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]
SIZE = {"cpu": "6", "memory": "48Gi"}
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def deployment(name, *, replicas, **spec):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**SIZE, **spec)}
    made = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": made}


def goes_where_it_was_sent(cluster, namespace, *, pods):
    """Return whether each of so many pods is bound to the first node of its decision."""
    found = list_pods(cluster, namespace, labelSelector="app")
    assert len(found) == pods
    assert all(p["spec"].get("nodeName") for p in found)
    return all(decision_of(p)["nodes"][0] == p["spec"]["nodeName"] for p in found)


def test_replicas_of_a_deployment_are_bound_to_the_chosen_nodes_despite_default_spreading(cluster):
    nodes = make_nodes(cluster, 4)
    with serve_fairgate(cluster) as fairgate:
        ours = fairgate.team_a
        for name in nodes:
            create_pod(cluster, ours, pod(f"on-{name}", gpus=1, nodeName=name, **SIZE))
            wait_bound(cluster, ours, f"on-{name}")
        cluster.api.create(f"/apis/apps/v1/namespaces/{ours}/deployments", deployment("web", replicas=9, gpus=1))
        assert wait_for(cluster, lambda: goes_where_it_was_sent(cluster, ours, pods=9), what="nine replicas bound")


def test_concurrent_pods_of_whole_nodes_get_one_node_each(cluster):
    make_nodes(cluster, 12, gpus=8)
    with serve_fairgate(cluster, limit_a="unlimited") as fairgate:
        ours = fairgate.team_a
        made = deployment("large", replicas=12, gpus=8)
        cluster.api.create(f"/apis/apps/v1/namespaces/{ours}/deployments", made)
        assert wait_for(cluster, lambda: goes_where_it_was_sent(cluster, ours, pods=12), what="twelve replicas bound")


def spread_by(app, key, *, how):
    selector = {"matchLabels": {"app": app}}
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": how, "labelSelector": selector}


def test_replicas_with_their_own_topology_spread_are_bound_to_the_chosen_nodes_and_spread(cluster):
    for zone in ("za", "zb", "zc"):
        make_nodes(cluster, 4, prefix=zone, gpus=8, labels={ZONE: zone})
    apps = [f"app-{number}" for number in range(4)]
    with serve_fairgate(cluster, limit_a="unlimited") as fairgate:
        ours = fairgate.team_a
        for app in apps:
            spread = [spread_by(app, ZONE, how="DoNotSchedule"), spread_by(app, HOSTNAME, how="ScheduleAnyway")]
            made = deployment(app, replicas=10, gpus=1, topologySpreadConstraints=spread)
            cluster.api.create(f"/apis/apps/v1/namespaces/{ours}/deployments", made)
        assert wait_for(cluster, lambda: goes_where_it_was_sent(cluster, ours, pods=40), what="forty replicas bound")
        for app in apps:
            nodes = [p["spec"]["nodeName"] for p in list_pods(cluster, ours, labelSelector=f"app={app}")]
            assert sorted(Counter(node[:2] for node in nodes).values()) == [3, 3, 4]
            assert len(set(nodes)) == 10


def beside(app, key):
    """The required term that is about the pods of an app."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def weighed(app, key):
    """The same as a preference."""
    (term,) = beside(app, key)["requiredDuringSchedulingIgnoredDuringExecution"]
    return {"weight": 100, "podAffinityTerm": term}


def test_pods_with_affinity_or_anti_affinity_are_bound_to_the_chosen_nodes(cluster):
    for zone in ("za", "zb"):
        make_nodes(cluster, 4, prefix=zone, gpus=8, labels={ZONE: zone})
    apart = {"podAntiAffinity": beside("apart", HOSTNAME)}
    near = {"podAffinity": beside("near", ZONE), "podAntiAffinity": beside("near", HOSTNAME)}
    wished = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighed("loose", HOSTNAME)]}}
    with serve_fairgate(cluster, limit_a="unlimited") as fairgate:
        ours = fairgate.team_a
        for app, affinity, replicas in (("apart", apart, 8), ("near", near, 4), ("loose", wished, 6)):
            made = deployment(app, replicas=replicas, gpus=1, affinity=affinity)
            cluster.api.create(f"/apis/apps/v1/namespaces/{ours}/deployments", made)
        assert wait_for(cluster, lambda: goes_where_it_was_sent(cluster, ours, pods=18), what="all replicas bound")

        def nodes(app):
            return {p["spec"]["nodeName"] for p in list_pods(cluster, ours, labelSelector=f"app={app}")}

        assert len(nodes("apart")) == 8
        assert len(nodes("near")) == 4
        assert len(nodes("loose")) == 6
        assert len({name[:2] for name in nodes("near")}) == 1
