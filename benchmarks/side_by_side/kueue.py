"""Kueue as it is compared: a ClusterQueue for each team in one Cohort, fair sharing between them, its own webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.side_by_side.loads import ROOT, Order, Shares, Team
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU
from tests.control_plane.operators import operator
from tests.control_plane.workbench import wait_for

API = "kueue.x-k8s.io/v1beta2"
FLAVOR = QUEUE = "gpus"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PLENTY = {"cpu": "1000000", "memory": "1000000Gi"}
"""Quota for what the pods request besides GPUs: Kueue admits nothing whose resources a queue does not list."""


@contextmanager
def kueue(cluster: ControlPlane, shares: Shares) -> Iterator[None]:
    """Run Kueue with these shares until the end of the block."""
    with operator(cluster, "kueue"):
        cluster.kubectl.apply(queues(shares))
        path = f"/apis/{API}/clusterqueues"
        wait_for(cluster, lambda: all(map(_is_active, cluster.api.list(path))), what="the ClusterQueues are active")
        yield


def queues(shares: Shares) -> list[dict[str, Any]]:
    """The objects that say what each team may use."""
    made = [_made("ResourceFlavor", FLAVOR, {})]
    made += [_made("Cohort", ROOT, {})]
    made += [_made("Cohort", name, {"parentName": ROOT}) for name in shares.departments]
    for team in shares.teams:
        made.append(_made("ClusterQueue", team.name, _cluster_queue(team, reclaims=shares.reclaims)))
        local = _made("LocalQueue", QUEUE, {"clusterQueue": team.name})
        local["metadata"]["namespace"] = team.name
        made.append(local)
    return made


def _cluster_queue(team: Team, *, reclaims: bool) -> dict[str, Any]:
    quotas = [{"name": name, "nominalQuota": quota} for name, quota in PLENTY.items()]
    quotas.append({"name": GPU, "nominalQuota": str(team.guaranteed)})
    group = {"coveredResources": [each["name"] for each in quotas], "flavors": [{"name": FLAVOR, "resources": quotas}]}
    return {
        "cohortName": team.department,
        "namespaceSelector": {},
        "resourceGroups": [group],
        "fairSharing": {"weight": "1"},
        "preemption": {"reclaimWithinCohort": "Any" if reclaims else "Never", "withinClusterQueue": "Never"},
    }


def _made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _is_active(queue: dict[str, Any]) -> bool:
    conditions = queue.get("status", {}).get("conditions", [])
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


def mark_for_kueue(made: dict[str, Any], _order: Order) -> None:
    """Put a Job, or a bare pod, into its team's queue; a Job is admitted whole."""
    made["metadata"].setdefault("labels", {})[QUEUE_LABEL] = QUEUE
