"""Beside the descheduler, which is built from its module: neither undoes the other's work, round by round."""

import pytest

from tests.control_plane.objects import GPU, pod_spec
from tests.control_plane.workbench import list_pods, wait_for
from tests.scenarios.standing_fairgate import TEAM

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
ROUNDS = 4
AFFINITY = {
    "RemovePodsViolatingNodeAffinity": {
        "nodeAffinityType": [
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ]
    }
}
DUPLICATES = {"RemoveDuplicates": {}}
UTILIZATION = {"LowNodeUtilization": {"thresholds": {GPU: 20}, "targetThresholds": {GPU: 50}}}
EVERYTHING = {"nodeFit": True}
OTHERS = {"nodeFit": True, "labelSelector": {"matchExpressions": [{"key": TEAM, "operator": "DoesNotExist"}]}}
"""What docs/coexistence.md advises: the descheduler leaves Fairgate's pods alone."""


def deployment(name, *, replicas, gpus):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(gpus=gpus, terminationGracePeriodSeconds=1, **SIZE)}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def all_running(cluster, namespace, count):
    """Wait until a namespace has so many pods that run, and no others; returns their UIDs."""

    def uids():
        found = list_pods(cluster, namespace)
        assert [each["status"].get("phase") for each in found] == ["Running"] * count
        assert not any("deletionTimestamp" in each["metadata"] for each in found)
        return {each["metadata"]["uid"] for each in found}

    return wait_for(cluster, uids, what=f"{count} pods of {namespace} run", timeout=90)


def evictions(cluster, namespace, count, descheduler, evictor_args, *, deschedule, balance):
    """How many pods of a namespace the descheduler evicts in each round; their controllers replace them in between."""
    found, before = [], all_running(cluster, namespace, count)
    for _ in range(ROUNDS):
        descheduler.round(evictor_args, deschedule=deschedule, balance=balance)
        after = all_running(cluster, namespace, count)
        found.append(len(before - after))
        before = after
    return found
