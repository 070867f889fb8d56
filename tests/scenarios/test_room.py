"""Room as kube-scheduler counts it, on a real control plane: what it decides by, Fairgate knows and makes room for."""

import json

import pytest

from tests.control_plane.minors import DEVICES, device, device_request
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_bound, wait_for, wait_unschedulable
from tests.scenarios.evictor import alive, evictor, fill, node_of
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster]
BORROW = {TIER: "preemptible"}
SIZE = {"cpu": "1", "memory": "1Gi"}
ZONE = "topology.kubernetes.io/zone"
DRIVER = "gpu.nvidia.com"


def make_volume(cluster, namespace, zone):
    """Make a claim `home` and a volume for it that is usable in one zone, and wait until it is bound."""
    where = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    kept = {"storageClassName": "zonal", "accessModes": ["ReadWriteOnce"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"home-{namespace}"},
        "spec": {
            **kept,
            "capacity": {"storage": "1Gi"},
            "nfs": {"server": "192.0.2.1", "path": "/x"},
            "claimRef": {"namespace": namespace, "name": "home"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [where]}},
        },
    }
    cluster.api.create("/api/v1/persistentvolumes", volume)
    asked = {"volumeName": f"home-{namespace}", "resources": {"requests": {"storage": "1Gi"}}, **kept}
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    cluster.api.create(claims, {"metadata": {"name": "home"}, "spec": asked})
    wait_for(cluster, lambda: cluster.api.get(f"{claims}/home")["status"].get("phase") == "Bound", what="bound volume")


HOME = {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]}


def test_a_share_comes_back_in_the_zone_of_a_volume(cluster):
    make_nodes(cluster, 1, prefix="a", gpus=8, labels={ZONE: "a"})
    make_nodes(cluster, 1, prefix="b", gpus=8, labels={ZONE: "b"})
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        fill(cluster, fairgate.team_a, 8, labels=BORROW, nodeSelector={ZONE: "a"})
        make_volume(cluster, fairgate.team_b, "a")
        try:
            with evictor(fairgate):
                create_pod(cluster, fairgate.team_b, pod("notebook", gpus=8, **HOME, **SIZE))
                assert wait_bound(cluster, fairgate.team_b, "notebook") == "a-0"
            assert not alive(cluster, fairgate.team_a)
        finally:
            cluster.kubectl("delete", "pv", f"home-{fairgate.team_b}", "--wait=false")


def serving(name, gpus, **more):
    made = pod(name, gpus=gpus, **SIZE, **more)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    return made


def test_a_share_comes_back_where_its_host_port_is_free(cluster):
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        on = [{"nodeSelector": {"kubernetes.io/hostname": f"node-{number}"}} for number in (0, 1)]
        fill(cluster, fairgate.team_a, 8, labels=BORROW, **on[0])
        create_pod(cluster, fairgate.team_a, serving("router", 0, **on[1]))
        wait_bound(cluster, fairgate.team_a, "router")
        with evictor(fairgate):
            create_pod(cluster, fairgate.team_b, serving("serve", 8))
            assert wait_bound(cluster, fairgate.team_b, "serve") == "node-0"
        assert alive(cluster, fairgate.team_a) == ["router"]


def make_class(cluster, name, kind):
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    body = {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    cluster.api.create(f"{DEVICES}/deviceclasses", body)


def make_slice(cluster, name, node, *, slices=1, **more):
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **more}
    cluster.api.create(f"{DEVICES}/resourceslices", {"metadata": {"name": name}, "spec": spec})


def make_claim(cluster, namespace, name, device_class, count=1):
    asked = device_request("r", deviceClassName=device_class, allocationMode="ExactCount", count=count)
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [asked]}}}
    cluster.api.create(f"{DEVICES}/namespaces/{namespace}/resourceclaims", body)


def claiming(name, claim, **more):
    return pod(name, gpus=0, resourceClaims=[{"name": "g", "resourceClaimName": claim}], **more, **SIZE)


def test_devices_that_a_rule_taints_are_no_room(cluster):
    make_nodes(cluster, 1, prefix="bad", gpus=0)
    make_nodes(cluster, 1, prefix="good", gpus=0)
    make_class(cluster, DRIVER, "gpu")
    for node in ("bad-0", "good-0"):
        gpus = [device(f"gpu-{number}", attributes={"type": {"string": "gpu"}}) for number in range(2)]
        make_slice(cluster, node, node, devices=gpus)
    taint = {"key": "example.org/firmware", "value": "bad", "effect": "NoSchedule"}
    rule = {"metadata": {"name": "firmware"}, "spec": {"deviceSelector": {"pool": "bad-0"}, "taint": taint}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(head | rule))
    try:
        with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
            make_claim(cluster, fairgate.team_a, "two", DRIVER, 2)
            create_pod(cluster, fairgate.team_a, claiming("borrows", "two", labels=BORROW))
            assert wait_bound(cluster, fairgate.team_a, "borrows") == "good-0"
            make_claim(cluster, fairgate.team_b, "mine", DRIVER, 2)
            with evictor(fairgate):
                create_pod(cluster, fairgate.team_b, claiming("owner", "mine"))
                assert wait_bound(cluster, fairgate.team_b, "owner") == "good-0"
            assert not alive(cluster, fairgate.team_a)
    finally:
        cluster.kubectl("delete", "devicetaintrule", "firmware")


def test_a_share_of_partitions_comes_back_from_the_whole_device(cluster):
    make_nodes(cluster, 1, gpus=0)
    make_class(cluster, DRIVER, "gpu")
    make_class(cluster, "mig.nvidia.com", "mig")

    def part(name, kind, size):
        shared = {"counterSet": "gpu-0", "counters": {"memory": {"value": size}}}
        return device(name, attributes={"type": {"string": kind}}, consumesCounters=[shared])

    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    make_slice(cluster, "counters", "node-0", slices=2, sharedCounters=counters)
    parts = [part(f"mig-{number}", "mig", "10Gi") for number in range(7)]
    make_slice(cluster, "devices", "node-0", slices=2, devices=[part("gpu-0", "gpu", "80Gi"), *parts])
    policy = 'resources:\n  deviceclass.resource.kubernetes.io/mig.nvidia.com: {gpus: "1/7"}\n'
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate:
        make_claim(cluster, fairgate.team_a, "whole", DRIVER)
        create_pod(cluster, fairgate.team_a, claiming("borrows", "whole", labels=BORROW))
        wait_bound(cluster, fairgate.team_a, "borrows")
        make_claim(cluster, fairgate.team_b, "slice", "mig.nvidia.com")
        with evictor(fairgate):
            create_pod(cluster, fairgate.team_b, claiming("owner", "slice"))
            wait_bound(cluster, fairgate.team_b, "owner")
        assert not alive(cluster, fairgate.team_a)


def test_nodes_with_a_soft_taint_are_taken_last(cluster):
    make_nodes(cluster, 2, gpus=8)
    cluster.kubectl("taint", "node", "node-0", "lifecycle=leaving:PreferNoSchedule")
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        for number in range(4):
            create_pod(cluster, fairgate.team_a, pod(f"p-{number}", gpus=2, **SIZE))
        assert {wait_bound(cluster, fairgate.team_a, f"p-{number}") for number in range(4)} == {"node-1"}
        create_pod(cluster, fairgate.team_a, pod("last", gpus=2, **SIZE))
        assert wait_bound(cluster, fairgate.team_a, "last") == "node-0"


def test_a_share_of_the_alternative_that_there_is_comes_back(cluster):
    """A claim wants a device of one class, else two of another; nodes have only those of the second."""
    make_nodes(cluster, 1, gpus=0)
    for name in ("large", "small"):
        make_class(cluster, name, name)
    gpus = [device(f"gpu-{number}", attributes={"type": {"string": "small"}}) for number in range(2)]
    make_slice(cluster, "node-0", "node-0", devices=gpus)
    policy = "resources:\n" + "".join(
        f"  deviceclass.resource.kubernetes.io/{name}: {{gpus: 1}}\n" for name in ("large", "small")
    )
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate:
        make_claim(cluster, fairgate.team_a, "two", "small", 2)
        create_pod(cluster, fairgate.team_a, claiming("borrows", "two", labels=BORROW))
        wait_bound(cluster, fairgate.team_a, "borrows")
        either = [
            {"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": count}
            for name, count in (("large", 1), ("small", 2))
        ]
        asked = {"devices": {"requests": [{"name": "r", "firstAvailable": either}]}}
        claims = f"{DEVICES}/namespaces/{fairgate.team_b}/resourceclaims"
        cluster.api.create(claims, {"metadata": {"name": "either"}, "spec": asked})
        with evictor(fairgate):
            create_pod(cluster, fairgate.team_b, claiming("owner", "either"))
            assert wait_bound(cluster, fairgate.team_b, "owner") == "node-0"
        assert not alive(cluster, fairgate.team_a)


def test_the_node_that_is_nominated_to_a_pod_is_not_named(cluster):
    make_nodes(cluster, 2, gpus=8)
    urgent = {"metadata": {"name": "business"}, "value": 100000}
    cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    try:
        with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
            team, first = fairgate.team_a, {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
            high = {"gpus": 0, "memory": "1Gi", "priorityClassName": "business", **first}
            create_pod(cluster, team, pod("ends", cpu="50", **high))
            create_pod(cluster, team, pod("left", gpus=4, **SIZE, **first))
            wait_bound(cluster, team, "ends")
            wait_bound(cluster, team, "left")
            create_pod(cluster, team, pod("high", cpu="60", **high))
            wait_unschedulable(cluster, team, "high")
            status = json.dumps({"status": {"nominatedNodeName": "node-0"}})
            cluster.kubectl("patch", "pod", "high", "-n", team, "--subresource=status", "--type=merge", "-p", status)
            create_pod(cluster, fairgate.team_b, pod("serve", gpus=1, cpu="8", memory="1Gi"))
            wait_bound(cluster, fairgate.team_b, "serve")
            assert node_of(cluster, fairgate.team_b, "serve") == "node-1"
    finally:
        cluster.kubectl("delete", "priorityclass", "business")
