"""Nodes that reject pods, and what is chosen for the next one."""

from datetime import UTC, datetime

from tests.core.support.make import ALICE, node, pod, policy, world
from tests.core.support.outcomes import admitted
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.decision import Queue
from webhook.core.placement.rejecting_nodes import STRIKES, Rejection, Start

NOW = 1_000_000
REASON = "UnexpectedAdmissionError"


def rejection(on: str = "n0", *, at: int = NOW, uid: str = "", namespace: str = "team-a", reason: str = REASON):
    return Rejection(NodeName(on), Namespace(namespace), Uid(uid or f"{on}-{namespace}-{at}"), at, reason)


def started(on: str = "n0", *, at: int, namespace: str = "team-a"):
    return Start(NodeName(on), Namespace(namespace), at, datetime.fromtimestamp(at, UTC).isoformat())


def place_of(number: int = 2, **more):
    """A world at NOW, where ties go to n0."""
    place = world(policy(**more), nodes=[node(f"n{i}", gpus=8) for i in range(number)])
    place.tick(NOW)
    return place


def reject(place, times: int = STRIKES, on: str = "n0", *, at: int = NOW, namespace: str = "team-a"):
    for number in range(times):
        place.rejecting_nodes.note(rejection(on, at=at, uid=f"{at}-{number}", namespace=namespace))


def first_node(place, namespace: str = "team-a", *, count: int = 1):
    """The first node chosen for a new pod; None if it waits."""
    decision = admit(pod(count, namespace=namespace), ALICE, place)
    nodes = () if isinstance(decision, Queue) else admitted(decision).node_choice.nodes
    return nodes[0] if nodes else None
