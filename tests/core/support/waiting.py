"""Pods that wait in line, as the core reads them."""

import json

from tests.core.support.make import pod
from webhook.core.admission.queueing import QUEUE_MODE
from webhook.core.model.amounts import GangId, TeamName, Uid, format_gpus
from webhook.core.model.constraints import Gang
from webhook.core.model.decision import Queue
from webhook.core.model.pod import Pod
from webhook.core.world.waiting_pods import WaitingPod


def waiting(name: str, count: int = 1, *, namespace: str = "team-a", created: int = 0, **more) -> WaitingPod:
    facts = {
        key: more.pop(key)
        for key in (
            "user",
            "priority",
            "text",
            "reason",
            "version",
            "is_terminating",
            "problem",
            "keeps_room",
            "gang_whole",
            "holds",
        )
        if key in more
    }
    made = pod(count, namespace=namespace, name=name, uid=Uid(f"uid-{name}"), **more)
    return WaitingPod(made, team=TeamName(namespace), created=created, **facts)


def member(
    name: str, gang: str = "g", count: int = 1, *, size: int = 0, is_requested: bool = False, **more
) -> WaitingPod:
    """A waiting pod of a gang."""
    namespace = more.get("namespace", "team-a")
    is_ordered, is_described = more.pop("is_ordered", False), more.pop("is_described", False)
    domain = more.pop("domain", None)
    found = Gang(GangId(f"{namespace}/{gang}"), gang, size, is_requested, is_ordered, is_described, domain)
    return waiting(name, count, gang=found, **more)


def queued_pod(pod_: Pod, queue: Queue) -> Pod:
    """The pod with the gate, the label and the decision that the mutating step writes."""
    decision = {
        "demand": {name: str(count) for name, count in queue.demand.devices},
        "gpus": format_gpus(queue.demand.gpus),
        "mode": QUEUE_MODE,
        "nodes": [],
        "code": queue.reason.code,
        "policy": queue.policy_hash,
        "at": "2026-01-01T00:00:00Z",
    }
    decision |= {"user": queue.user} if queue.user is not None else {}
    decision |= {"asked": str(queue.requested_tier)} if queue.requested_tier is not None else {}
    return pod_._replace(is_queued=True, team_label=queue.team, decision_annotation=json.dumps(decision))


def confirmed(pod_: Pod, queue: object, *, uid: str = "u1") -> Pod:
    """The pod as the validating step sees it."""
    assert isinstance(queue, Queue)
    return queued_pod(pod_, queue)._replace(uid=Uid(uid), name=uid)
