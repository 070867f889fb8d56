"""Room is what kube-scheduler says: where it refuses a node that looks free, for a cause that Fairgate does not read.

In each case node `full-0` is full of borrowers, and node `odd-0` has free GPUs that the owner's pod cannot use.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from tests.control_plane.minors import DEVICES, device, device_request, needs_devices
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_for, wait_unschedulable
from tests.scenarios.evictor import alive, evictor, fill, node_of, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from webhook.cli.main import main

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

HOSTNAME = "kubernetes.io/hostname"
DRIVER = "gpu.nvidia.com"
SIZE = {"cpu": "1", "memory": "1Gi"}
BORROWS = {TIER: "preemptible"}


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {HOSTNAME: node}}


def volumes(cluster, namespace: str, *names: str, mode: str = "ReadWriteOnce") -> None:
    """Bound volumes of a CSI driver, which may be used on every node."""
    for name in names:
        volume = {"driver": DRIVER, "volumeHandle": f"{namespace}-{name}"}
        size = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "made", "accessModes": [mode]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": "made",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": volume,
            "claimRef": {"namespace": namespace, "name": name},
        }
        made = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{namespace}-{name}"},
            "spec": spec,
        }
        cluster.api.create("/api/v1/persistentvolumes", made)
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {"volumeName": f"{namespace}-{name}", **size},
        }
        cluster.api.create(claims, claim)
        wait_for(
            cluster,
            lambda path=f"{claims}/{name}": cluster.api.get(path)["status"].get("phase") == "Bound",
            what="bound",
        )


def using(*claims: str) -> dict[str, Any]:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


@contextmanager
def attach_limit(cluster, *nodes: str) -> Iterator[None]:
    """Let one volume be attached to each node."""
    for node in nodes:
        drivers = [{"name": DRIVER, "nodeID": node, "allocatable": {"count": 1}}]
        made = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": node},
            "spec": {"drivers": drivers},
        }
        cluster.api.create("/apis/storage.k8s.io/v1/csinodes", made)
    try:
        yield
    finally:
        cluster.kubectl("delete", "csinode", *nodes, "--ignore-not-found")


def served_elsewhere(cluster, fairgate, name: str, *, said: str) -> None:
    """The pod gets the room of the borrowers, and Events and `explain` say what kube-scheduler reports of odd-0."""
    wait_bound(cluster, fairgate.team_b, name)
    assert node_of(cluster, fairgate.team_b, name) == "full-0"
    assert alive(cluster, fairgate.team_a) == []
    described = cluster.kubectl("describe", "pod", name, "-n", fairgate.team_b)
    assert "kube-scheduler finds no room on odd-0: " in described
    assert said in described
    assert "Fairgate cannot see why" in described


@pytest.fixture
def scene(cluster) -> Iterator[Callable[[], Any]]:
    """Both nodes, the borrowers, a server and an evictor."""
    make_nodes(cluster, 1, prefix="full", gpus=8)
    make_nodes(cluster, 1, prefix="odd", gpus=8)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        fill(
            cluster,
            fairgate.team_a,
            2,
            gpus=4,
            labels=BORROWS,
            cpu="1",
            memory="1Gi",
            nodeSelector={HOSTNAME: "full-0"},
        )
        try:
            yield fairgate
        finally:
            cluster.kubectl("delete", "pv", "--all", "--wait=false")


def test_as_many_volumes_as_may_be_attached(cluster, scene):
    with attach_limit(cluster, "full-0", "odd-0"):
        volumes(cluster, scene.team_b, "mine", "other")
        create_pod(cluster, scene.team_b, pod("first", **using("other"), **on("odd-0"), **SIZE))
        wait_bound(cluster, scene.team_b, "first")
        with evictor(scene):
            create_pod(cluster, scene.team_b, pod("owner", gpus=8, **using("mine"), **SIZE))
            served_elsewhere(cluster, scene, "owner", said="exceed max volume count")


def test_anti_affinity_to_pods_of_selected_namespaces(cluster, scene):
    apart = {
        "labelSelector": {"matchLabels": {"app": "noisy"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.team_a}},
        "topologyKey": HOSTNAME,
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    create_pod(cluster, scene.team_a, pod("noisy", labels={"app": "noisy"}, **on("odd-0"), **SIZE))
    wait_bound(cluster, scene.team_a, "noisy")
    with evictor(scene):
        create_pod(cluster, scene.team_b, pod("owner", gpus=8, affinity=affinity, **SIZE))
        wait_bound(cluster, scene.team_b, "owner")
        assert node_of(cluster, scene.team_b, "owner") == "full-0"
        assert alive(cluster, scene.team_a) == ["noisy"]


def test_what_a_profile_of_the_scheduler_adds_to_every_pods_affinity(cluster, scene):
    off_odd = {"matchExpressions": [{"key": HOSTNAME, "operator": "NotIn", "values": ["odd-0"]}]}
    added = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [off_odd]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": added}}]}],
    }
    file = cluster.folder / "scheduler-with-added-affinity.yaml"
    file.write_text(json.dumps(configuration))
    cluster.restart("kube-scheduler", f"--config={file}")
    template = {"spec": pod("owner", gpus=8, restartPolicy="Never", **SIZE)["spec"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "owner"}, "spec": {"template": template}}
    try:
        cluster.api.create(f"/apis/batch/v1/namespaces/{scene.team_b}/jobs", job)
        (first,) = wait_for(cluster, lambda: alive(cluster, scene.team_b), what="the Job's pod")
        message = wait_unschedulable(cluster, scene.team_b, first)
        assert "1 node(s) didn't match scheduler-enforced node affinity" in message
        with evictor(scene, "--repair-after", "40"):
            wait_for(cluster, lambda: set(alive(cluster, scene.team_b)) - {first}, what="it is replaced")
            (second,) = alive(cluster, scene.team_b)
            wait_bound(cluster, scene.team_b, second)
        assert node_of(cluster, scene.team_b, second) == "full-0"
        assert alive(cluster, scene.team_a) == []
    finally:
        cluster.restart("kube-scheduler")


def slices(cluster, node: str, *devices: dict[str, Any]) -> None:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    named = [device(f"gpu-{number}", **fields) for number, fields in enumerate(devices)]
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": named}
    cluster.api.create(f"{DEVICES}/resourceslices", {"metadata": {"name": node}, "spec": spec})


def claim(cluster, namespace: str, name: str, *, count: int, constraints: list[Any] = [], **more: Any) -> None:  # noqa: B006
    request = device_request("r", deviceClassName=DRIVER, allocationMode="ExactCount", count=count, **more)
    spec = {"devices": {"requests": [request], "constraints": constraints}}
    cluster.api.create(f"{DEVICES}/namespaces/{namespace}/resourceclaims", {"metadata": {"name": name}, "spec": spec})


def numa(number: int, memory: str = "80Gi") -> dict[str, Any]:
    return {"attributes": {"numa": {"int": number}}, "capacity": {"memory": {"value": memory}}}


LARGE = {"selectors": [{"cel": {"expression": f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"}}]}
SAME_NUMA = {"constraints": [{"requests": ["r"], "matchAttribute": f"{DRIVER}/numa"}]}


@needs_devices
@pytest.mark.parametrize(
    ("odd", "asked"),
    [
        pytest.param([numa(0), numa(1)], SAME_NUMA, id="an attribute that all devices must share"),
        pytest.param([numa(0, "10Gi"), numa(0, "10Gi")], LARGE, id="an expression of the claim"),
    ],
)
def test_devices_of_claims(cluster, odd, asked):
    cluster.api.create(
        f"{DEVICES}/deviceclasses",
        {
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
        },
    )
    make_nodes(cluster, 1, prefix="full", gpus=0)
    make_nodes(cluster, 1, prefix="odd", gpus=0)
    slices(cluster, "full-0", numa(0), numa(0))
    slices(cluster, "odd-0", *odd)

    def claiming(name: str, **more: Any) -> dict[str, Any]:
        return pod(name, resourceClaims=[{"name": "g", "resourceClaimName": name}], **more, **SIZE)

    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        claim(cluster, fairgate.team_a, "borrows", count=2)
        create_pod(cluster, fairgate.team_a, claiming("borrows", labels=BORROWS, **on("full-0")))
        wait_bound(cluster, fairgate.team_a, "borrows")
        claim(cluster, fairgate.team_b, "owner", count=2, **asked)
        with evictor(fairgate):
            create_pod(cluster, fairgate.team_b, claiming("owner"))
            served_elsewhere(cluster, fairgate, "owner", said="cannot allocate all claims")


def test_explain_and_the_evictor_say_the_same_of_a_pod_that_no_eviction_helps(cluster, scene):
    """A volume that one pod may use is in use: no room helps, and no third plan is made for it."""
    volumes(cluster, scene.team_b, "mine", mode="ReadWriteOncePod")
    create_pod(cluster, scene.team_b, pod("first", **using("mine"), **on("odd-0"), **SIZE))
    wait_bound(cluster, scene.team_b, "first")
    create_pod(cluster, scene.team_b, pod("owner", gpus=4, **using("mine"), **on("odd-0"), **SIZE))
    text = wait_unschedulable(cluster, scene.team_b, "owner")
    assert "ReadWriteOncePod" in text
    with evictor(scene) as running:
        told = wait_for(cluster, lambda: running.said("no plan"), what="it says why nothing is planned")
        assert told[0]["cause"] == "NotForRoom"
        described = wait_for(
            cluster,
            lambda: (
                "ReadWriteOncePod" in (said := cluster.kubectl("describe", "pod", "owner", "-n", scene.team_b)) and said
            ),
            what="an Event",
        )
        assert "CannotReclaim" in described
        options = [
            "--policy",
            str(scene.policy),
            "--kubeconfig",
            str(cluster.kubeconfig),
            "-n",
            scene.team_b,
            "-o",
            "json",
        ]
        shown = CliRunner().invoke(main, ["explain", *options, "pod/owner"])
        assert "ReadWriteOncePod" in json.loads(shown.output)[0]["reclaim"]["why"]
        assert len(alive(cluster, scene.team_a)) == 2


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("taint", "node", "example.com/maintenance=x:NoSchedule"), id="a taint"),
        pytest.param(("label", "node", "team-b=no", "--overwrite"), id="a label"),
    ],
)
def test_a_plan_ends_once_its_node_does_not_take_the_pod(cluster, change):
    verb, kind, what = change[:3]
    nodes = make_nodes(cluster, 2, gpus=8, labels={"team-b": "yes"})
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 5s}") as fairgate:
        mine = fairgate.team_a
        fill(cluster, mine, 16, labels=BORROWS, cpu="1", memory="1Gi")
        with evictor(fairgate) as running:
            create_pod(cluster, fairgate.team_b, pod("owner", gpus=3, nodeSelector={"team-b": "yes"}, **SIZE))
            (planned,) = wait_for(cluster, lambda: running.said("plan"), what="a plan")
            cluster.kubectl(verb, kind, planned["node"], what, *change[3:])
            wait_bound(cluster, fairgate.team_b, "owner")
            (other,) = set(nodes) - {planned["node"]}
            assert node_of(cluster, fairgate.team_b, "owner") == other
            assert len(running.said("evicted")) == 3
            assert len(alive(cluster, mine)) == 13
