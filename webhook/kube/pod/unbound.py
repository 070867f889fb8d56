"""Why an existing pod is not bound.

What keeps a pod off every node, by the condition that its scheduler writes. Users may not write a pod's status.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.amounts import (
    printable,
    shortened,
)
from webhook.core.model.pod import Obstacle, Unbound
from webhook.kube.objects import objects

MAX_WHY: Final = 200
"""Characters of a scheduler's words that are kept; some name a volume or a claim, which the user chose."""

_ROOM: Final = ("Insufficient ", "Too many pods", "cannot allocate all claims")
"""In messages of kube-scheduler's resource and device filters, and of its extenders that share GPUs."""
_NODES: Final = (
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    "node(s) had untolerated taint",
    "node(s) were unschedulable",
    "node(s) had unknown conditions",
    "no nodes available to schedule pods",
    "waiting for minCount pods from a gang",
    "waiting for pods's pod group",
    "waiting for composite pod group",
    "waiting for the preemption",
)
"""Of its filters by labels and taints, and of its gangs: nodes, or the other members, are still to come."""
_PEERS: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
"""Of its filter by what pods on the nodes require: those pods may be anyone's."""
_GROUP: Final = re.compile(
    r"minCount \(\d+\) (cannot be|is not yet) satisfied: \d+ scheduled, \d+ remaining"
    r"|\d+/\d+ placements are available|^pod group is unschedulable"
)
"""In its messages on the pods of a PodGroup that fit, while others of the group do not: those say what they lack
(kubernetes/pkg/scheduler/framework/plugins/gangscheduling, schedule_one_podgroup.go)."""
_TAINTED: Final = "untolerated taint"
_ZONES: Final = ("volume node affinity", "PersistentVolume's node affinity", "no available volume zone")
"""In its messages on volumes that exist elsewhere: no eviction on these nodes helps."""
_HEAD: Final = re.compile(r"^\d+/\d+ nodes are available: ")
_COUNT: Final = re.compile(r"^\d+ ")
_MAX_MESSAGE: Final = 8192


class _Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Condition(NamedTuple):
    """The scheduler's report on a pod without a node.

    `since` is when the pod was first without one, as RFC 3339. `is_for_room`: some node lacks what the pod requests, or
    its PodGroup has no room together.
    `is_for_taints`: some node has a taint that it does not tolerate. `is_unschedulable`: the scheduler tried it.
    `is_for_zone`: some node is outside the zone of its volumes. `is_for_peers`: pods on some node exclude it. `text` is
    what it says of the nodes.
    """

    unbound: Unbound
    since: str
    is_for_room: bool
    is_for_taints: bool
    is_unschedulable: bool
    is_for_zone: bool = False
    is_for_peers: bool = False
    text: str = ""


_decoder: Final = msgspec.json.Decoder(list[_Condition] | None)


def read_condition(status: objects.PodStatus | None) -> Condition | None:
    """Return why a pod has no node; None before a scheduler has said so, or where it cannot be read."""
    raw = b"" if status is None else bytes(status.conditions)
    if not raw:
        return None
    try:
        conditions = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    for each in conditions or ():
        if each.type == "PodScheduled" and each.status == "False":
            return _read(each)
    return None


def _read(found: _Condition) -> Condition:
    message, since = (found.message or "")[:_MAX_MESSAGE], found.last_transition_time or ""
    if found.reason != "Unschedulable":
        obstacle = Obstacle.GATE if found.reason == "SchedulingGated" else Obstacle.OTHER
        return Condition(Unbound(obstacle, _shown(message or found.reason or "")), since, False, False, False)
    is_for_room = any(words in message for words in _ROOM) or _GROUP.search(message) is not None
    return Condition(
        _unbound(message),
        since,
        is_for_room,
        _TAINTED in message,
        is_unschedulable=True,
        is_for_zone=any(words in message for words in _ZONES),
        is_for_peers=_PEERS in message,
        text=_text(message),
    )


@lru_cache(maxsize=1024)
def _text(message: str) -> str:
    return _shown(_said(message))


def _said(message: str) -> str:
    """Return what a message says of the nodes, without what preemption would do."""
    return message.partition(" preemption: ")[0].rstrip(". ")


@lru_cache(maxsize=1024)  # the pods of a workload wait for the same
def _unbound(message: str) -> Unbound:
    """Return what a message of kube-scheduler says: `0/4 nodes are available: 1 Insufficient cpu, 3 node(s) …`.

    The nodes are listed by the first filter that excludes them (kubernetes/pkg/scheduler/framework/types.go, FitError).
    Room counts first: where a node lacks it, an end or an eviction may help. Then what no node can mend.
    """
    why = _HEAD.sub("", _said(message))
    parts = [_COUNT.sub("", part) for part in why.split(", ")]
    if any(words in part for part in parts for words in _ROOM):
        return Unbound(Obstacle.ROOM)
    if _GROUP.search(why) is not None or all(any(words in part for words in _NODES) for part in parts):
        return Unbound(Obstacle.NODES, _shown(why))
    is_for_peers = all(any(words in part for words in (*_NODES, _PEERS)) for part in parts)
    return Unbound(Obstacle.PEERS if is_for_peers else Obstacle.OTHER, _shown(why))


def without_names(message: object) -> str:
    """Return a message of kube-scheduler that says the same of a pod, without names of volumes, claims or labels."""
    if not isinstance(message, str) or not message:
        return ""
    match _unbound(message[:_MAX_MESSAGE]).obstacle:
        case Obstacle.ROOM:
            kept = [part for part in re.split(r", |: |\. ?", message) if any(words in part for words in _ROOM)]
            return ", ".join(kept)
        case Obstacle.NODES:
            group = _GROUP.search(message)
            return "node(s) didn't match Pod's node affinity/selector" if group is None else group.group()
        case Obstacle.PEERS:
            return _PEERS
        case _:
            return "another reason than room"


def _shown(text: str) -> str:
    return shortened(printable(text), MAX_WHY)
