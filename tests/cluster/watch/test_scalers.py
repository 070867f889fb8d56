"""Autoscalers as they come and go: what they say counts in the world, and makes replicas of pods in reclaim."""

import json

import msgspec

from tests.core.support import make
from tests.core.support.reclaim_pods import take
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.pod import Replica
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.world.world import World
from webhook.kube.watched.world_kinds import AUTOSCALERS

WEB, CHAT = (WorkloadName(f"team-a/Deployment/{name}") for name in ("web", "chat"))


def scaler(target, least, *, kind):
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": target}, "minReplicas": least, "maxReplicas": 9}
    made = {"metadata": {"name": "h", "namespace": "team-a"}, "spec": spec}
    return msgspec.json.decode(json.dumps(made), type=kind.item)


def borrower(uid, workload, minimum=None):
    pod = make.resident(uid=uid, node="n0", tier="preemptible", replica=Replica(workload, minimum), is_ready=True)
    return ReclaimPod(pod)


def replicas_of(index):
    return {victim.uid: victim.replica_of for victim in index.victim_index}


def test_pods_are_replicas_of_a_minimum_for_as_long_as_something_scales_their_workload():
    world = World(make.policy())
    world.set_node(make.node())
    index = ReclaimIndex(world.policy.reclaim, world.minimums)
    kind = AUTOSCALERS.watched(world)
    kind.apply(scaler("web", 1, kind=kind))
    for each in (borrower("w", WEB), borrower("c", CHAT), borrower("own", CHAT, 1)):
        take(each, index, world)
    assert replicas_of(index) == {"w": WEB, "c": None, "own": CHAT}
    kind.apply(scaler("chat", 2, kind=kind))
    assert replicas_of(index) == {"w": None, "c": CHAT, "own": CHAT}
    assert world.minimums.of(CHAT).minimum == 1, "what a pod states goes before"
    kind.remove("team-a/h")
    assert replicas_of(index) == {"w": None, "c": None, "own": CHAT}
    assert world.minimums.of(WEB) is None


def test_pods_that_are_not_ready_are_no_replicas_that_a_minimum_counts():
    world = World(make.policy())
    index = ReclaimIndex(world.policy.reclaim)
    waiting = borrower("w", WEB, 1)
    take(ReclaimPod(waiting.pod._replace(is_ready=False)), index, world)
    assert replicas_of(index) == {"w": None}
