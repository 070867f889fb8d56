"""Volcano as it is compared: its scheduler and controllers with the capacity plugin and a tree of queues.

Job and pod are those of the other systems; Volcano makes the PodGroups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.side_by_side.loads import ROOT, Order, Shares
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU
from tests.control_plane.volcano import API, run_volcano
from tests.control_plane.workbench import wait_for

SCHEDULER = "volcano"
QUEUE_NOTE = "scheduling.volcano.sh/queue-name"
MEMBERS_NOTE = "scheduling.volcano.sh/group-min-member"
CPU_PER_GPU, MEMORY_GIB_PER_GPU = 8, 64
"""Of the nodes here: a queue deserves its part of both, or its pods could be reclaimed for the cpu that they use."""

# As in its user guide of the capacity plugin.
CONFIGURATION = {
    "actions": "enqueue, allocate, backfill, reclaim",
    "tiers": [
        {"plugins": [{"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}]},
        {
            "plugins": [
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "capacity", "enableHierarchy": True},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}


@contextmanager
def volcano(cluster: ControlPlane, shares: Shares) -> Iterator[None]:
    """Run Volcano with these shares until the end of the block."""
    configuration = cluster.folder / "volcano-scheduler.conf"
    configuration.write_text(json.dumps(CONFIGURATION))
    with run_volcano(cluster, scheduler=[f"--scheduler-conf={configuration}"]):
        cluster.kubectl.apply(queues(shares))
        path = f"/apis/{API}/queues"
        wait_for(cluster, lambda: all(map(_is_open, cluster.api.list(path))), what="Volcano's queues are open")
        yield


def queues(shares: Shares) -> list[dict[str, Any]]:
    """The tree of queues."""
    made = [_queue(ROOT, "root", shares.quota, {"capability": {GPU: str(shares.quota)}} if shares.is_limit else {})]
    made += [_queue(name, ROOT, gpus, {}) for name, gpus in shares.departments.items()]
    made += [_queue(team.name, team.department, team.guaranteed, {}) for team in shares.teams]
    return made


def _queue(name: str, parent: str, gpus: int, more: dict[str, Any]) -> dict[str, Any]:
    deserved = {GPU: str(gpus), "cpu": str(gpus * CPU_PER_GPU), "memory": f"{gpus * MEMORY_GIB_PER_GPU}Gi"}
    spec = {"parent": parent, "reclaimable": True, "weight": 1, "deserved": deserved, **more}
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _is_open(queue: dict[str, Any]) -> bool:
    return queue.get("status", {}).get("state") == "Open"


def mark_for_volcano(made: dict[str, Any], order: Order) -> None:
    """Put a Job, or a bare pod, into its team's queue; a Job starts when all its pods can."""
    pod = made if order.is_bare else made["spec"]["template"]
    pod["metadata"]["annotations"][QUEUE_NOTE] = order.team.name
    pod["spec"]["schedulerName"] = SCHEDULER
    if not order.is_bare:
        made["metadata"].setdefault("annotations", {})[MEMBERS_NOTE] = str(order.pods)
