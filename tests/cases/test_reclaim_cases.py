"""Reclaim as data: a policy, a full node of pods that borrow, and which of these a guaranteed pod of n GPUs evicts.

`running` are Deployments of one GPU for each replica, which run for so many hours; `annotation` is their own minimum,
`autoscaler` that of what scales them. Their containers run for the hours in `runs`, or wait for the reason in `waits`,
after so many `restarts`. `group` is the scheduling policy of their PodGroup, null where that does not exist, and `mode`
its disruption mode. `want` has how many replicas of each go, by the evictor's plan on the world file.

In `room` there are worlds as a whole, with the pod that asks, and the pods that go for it.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import builders as b
from tests.cases.samples import read_yaml
from webhook.cli.explain.reclaim import ClusterDetails, Evictions
from webhook.core.model.amounts import Uid
from webhook.core.reclaim.snapshot import Possible, outlook
from webhook.core.world.world import World
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys
from webhook.kube.world_file.world_file import add_objects
from webhook.policy.watch import parse

NOW = 1_764_000_000
FOLDER = Path(__file__).parent / "reclaim"
ROOM = {path.stem: read_yaml(path) for path in sorted((FOLDER / "room").glob("*.yaml"))}
CASES = {path.stem: read_yaml(path) for path in sorted(FOLDER.glob("*.yaml"))}
NO_ROOM = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    "lastTransitionTime": rfc3339(NOW - 60),
}


def borrowing(given):
    """The pods of a Deployment, and what scales it."""
    name, labels = given["name"], {keys.TEAM: "mine", keys.TIER: "preemptible"}
    pods = b.replicas(name, given["replicas"], namespace="mine", node="n0", labels=labels, gpus=given.get("gpus", 1))
    since = rfc3339(NOW - 3600 * given["hours"])
    for pod in pods:
        pod["metadata"] |= {"creationTimestamp": since, "annotations": {keys.DECISION: "{}"}}
        pod["status"] |= {"startTime": since} | container_of(given)
        if "annotation" in given:
            pod["metadata"]["annotations"][keys.MINIMUM] = str(given["annotation"])
        if "group" in given:
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
    scaled = [b.autoscaler(name, namespace="mine", minimum=given["autoscaler"])] if "autoscaler" in given else []
    return [*pods, *scaled, *group_of(given)]


def group_of(given):
    """The PodGroup of a case."""
    if not given.get("group"):
        return []
    spec = {"schedulingPolicy": given["group"], "disruptionMode": {given.get("mode", "single"): {}}}
    metadata = {"name": given["name"], "namespace": "mine"}
    return [{"apiVersion": keys.GROUPS_API, "kind": "PodGroup", "metadata": metadata, "spec": spec}]


def container_of(given):
    """The status of the only container, if the case says it."""
    if "waits" in given:
        state = {"waiting": {"reason": given["waits"]}}
    elif "runs" in given:
        state = {"running": {"startedAt": rfc3339(NOW - 3600 * given["runs"])}}
    else:
        return {}
    return {"containerStatuses": [{"name": "train", "restartCount": given.get("restarts", 0), "state": state}]}


def asking(gpus):
    labels = {keys.TEAM: "theirs", keys.TIER: "guaranteed"}
    made = b.pod("asks", namespace="theirs", uid="asks", gpus=gpus, labels=labels, annotations={keys.DECISION: "{}"})
    made["metadata"]["creationTimestamp"] = rfc3339(NOW - 120)
    return made | {"status": {"phase": "Pending", "conditions": [NO_ROOM]}}


@pytest.mark.parametrize(
    ("case", "number"), [(name, n) for name in CASES for n in range(len(CASES[name]["reclaimed"]))]
)
def test_reclaim(case, number):
    given = CASES[case]
    asked = given["reclaimed"][number]
    policy = policy_of(given)
    found = [
        b.node("n0", gpus=given["gpus"], cpu="640", memory="8Ti"),
        *(each for row in given["running"] for each in borrowing(row)),
    ]
    found.append(asking(asked["gpus"]))
    move = planned(found, policy)
    assert Counter(victim.name.partition("-")[0] for victim in move.victims) == asked["want"]


def policy_of(given):
    document = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy", **given["policy"]}
    return parse({"policy.yaml": json.dumps(document).encode()}, origin="case")


def planned(found, policy):
    """The move that the evictor plans for the pod that asks."""
    world = World(policy)
    add_objects(world, found, name="case")
    world.tick(NOW)
    evictions = Evictions.of(found, world, ClusterDetails(), ())
    answer = outlook(evictions.reclaim_index.get(Uid("asks")), evictions.reclaim_index, world, now=NOW)
    assert isinstance(answer, Possible), answer
    return answer.move


def running(name, given):
    """A borrowing pod on a node."""
    labels = {keys.TEAM: "mine", keys.TIER: "preemptible"}
    made = b.pod(name, namespace="mine", uid=name, labels=labels, annotations={keys.DECISION: "{}"}, **given)
    made["metadata"]["creationTimestamp"] = since = rfc3339(NOW - 3600)
    return made | {"status": {"phase": "Running", "startTime": since}}


@pytest.mark.parametrize("case", ROOM)
def test_room_is_made_where_the_pod_may_use_it(case):
    given = ROOM[case]
    asks = asking(given["asks"].get("gpus"))
    asks["spec"] |= given["asks"].get("spec", {})
    asks["spec"]["containers"][0] |= given["asks"].get("container", {})
    nodes = [b.node(name, **more) for name, more in given["nodes"].items()]
    found = [*nodes, *(running(name, more) for name, more in given["running"].items()), *given.get("objects", ()), asks]
    move = planned(found, policy_of(given))
    assert (move.node, sorted(victim.name for victim in move.victims)) == (
        given["want"]["node"],
        given["want"]["evicted"],
    )
