"""Applies a workload where nodes have room for a part of it, and waits until its operator's pods start whole."""

from __future__ import annotations

import json
from typing import Any

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.predicted import in_namespace
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate

QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\n"
_SIZE = {"cpu": "1", "memory": "1Gi"}
_WAITING = "fairgate.dev/waiting"


def assert_starts_whole(cluster: ControlPlane, *manifests: dict[str, Any], first: int = 4) -> None:
    """Each has four pods of 4 GPUs; two nodes with 10 GPUs each hold them once another team's pod has gone.

    `first` of them are made before any of them runs; room for the others is kept once those start.
    """
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        for manifest in manifests:
            _assert_whole(fairgate, manifest, first=first)
            kind = f"{manifest['kind']}.{manifest['apiVersion'].partition('/')[0]}"
            cluster.kubectl("delete", "-n", fairgate.team_a, kind, manifest["metadata"]["name"])
            wait_for(cluster, lambda: not list_pods(cluster, fairgate.team_a), what="its pods gone")
            wait_for(cluster, lambda: fairgate.charged("a") == 0, what="no GPU charged")


def _assert_whole(fairgate: FairgateServer, manifest: dict[str, Any], *, first: int) -> None:
    cluster, team = fairgate.cluster, fairgate.team_a
    create_pod(cluster, fairgate.team_b, pod("holder", gpus=8, **_SIZE))
    wait_bound(cluster, fairgate.team_b, "holder")
    done = cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(in_namespace(manifest, team)))
    assert done.returncode == 0, done.stderr

    def all_wait() -> bool:
        texts = [each["metadata"]["annotations"].get(_WAITING, "") for each in with_gpus(cluster, team)]
        assert ["starts whole, with 4 pods" in text for text in texts] == [True] * first, texts
        return True

    wait_for(cluster, all_wait, what=f"{first} pods of {manifest['kind']} wait together")
    assert started(cluster, team) == 0
    assert fairgate.charged("a") == 0
    cluster.kubectl("delete", "pod", "holder", "-n", fairgate.team_b, "--wait=true")
    wait_for(cluster, lambda: fairgate.charged("a") == 16, what="room for all is charged")
    wait_for(cluster, lambda: started(cluster, team) == 4, what="all four started", timeout=90)
    wait_for(cluster, lambda: fairgate.charged("a") == 16, what="four pods are charged, and nothing besides")


def with_gpus(cluster: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """The pods of a namespace that ask for GPUs."""
    return [each for each in list_pods(cluster, namespace) if "nvidia.com/gpu" in json.dumps(each["spec"])]


def started(cluster: ControlPlane, namespace: str) -> int:
    """How many pods with GPUs are on a node."""
    return sum(1 for each in with_gpus(cluster, namespace) if each["spec"].get("nodeName"))
