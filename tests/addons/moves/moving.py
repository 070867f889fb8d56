"""A cluster whose free GPUs are scattered: nodes of four, each with one pod of a Job, and a pod that needs a node."""

import asyncio
from dataclasses import replace

from tests import builders
from tests.evictor.support.stage import PODS, POOR
from webhook.core.model.policy_addons import DefragmentRules
from webhook.kube.nodes.holds import rfc3339

REPORTS = "/apis/fairgate.dev/v1alpha1/reports"
RULES = DefragmentRules(on_demand=True, minimum_runtime_seconds=0)


def rules(**more):
    """The policy of the stage, with moves on demand."""
    return replace(POOR, defragment=replace(RULES, **more))


def job_pod(stage, name, *, on=None, job=None, saved=0, tier="preemptible", gpus=1, team="team-a", **annotations):
    """A pod of a Job, which runs on a node or has none yet."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job or name, "uid": f"uid-of-{job or name}"}
    labels = {"fairgate.dev/team": team, "fairgate.dev/tier": tier}
    if saved:
        annotations["fairgate.dev/checkpointed-at"] = rfc3339(saved)
    body = builders.pod(name, namespace=team, labels=labels, annotations=annotations, gpus=gpus, node=on)
    at = rfc3339(int(stage.now()))
    body["metadata"] |= {"ownerReferences": [owner | {"controller": True}], "creationTimestamp": at}
    status = {"phase": "Running", "startTime": rfc3339(int(stage.now()) - 100)} if on else {}
    return stage.api.put(PODS, name, namespace=team, **body | {"status": status})["metadata"]["uid"]


def scatter(stage, *nodes, fixed=2, **more):
    """One pod of a Job on each node, beside `fixed` GPUs of pods that never move."""
    for number, node in enumerate(nodes):
        stage.node(node)
        if number:
            stage.pod(f"fixed-{node}", "team-a", "guaranteed", gpus=fixed, node=node)
        job_pod(stage, f"j-{node}", on=node, **more)


def wide(stage, name="wide", *, gpus=4, tier="preemptible", team="team-b", **more):
    """A pod that kube-scheduler finds no room for, since long ago."""
    since = {"lastTransitionTime": rfc3339(int(stage.now()) - 1000)}
    report = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "3 Insufficient nvidia.com/gpu",
    }
    status = {"phase": "Pending", "conditions": [report | since]}
    return stage.pod(name, team, tier, gpus=gpus, status=status, **more)


def place(stage, name, node, *, team="team-b"):
    """Do what the scheduler does."""
    pod = stage.api.objects[PODS][f"{team}/{name}"]
    stage.api.keep(PODS, f"{team}/{name}", {**pod, "spec": {**pod["spec"], "nodeName": node}})


def held(stage):
    """The nodes that keep room, and how many pods each may be given now."""
    return {node: len(uids) for node, uids in stage.locked().items()}


async def turns(seconds=20):
    """Let the evictor look again and again."""
    await asyncio.sleep(seconds)
