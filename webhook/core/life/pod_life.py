"""A pod's life: its stages, and what each of them means for charges, room, evictions and guaranteed shares.

The table is the only place that says so. Usage, placement, the queue, reclaim, explanations and status read it. Whether
a pod is at a stage follows from the pod, its node and the time; nothing else remembers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.core.model.pod import Handling, Obstacle, Resident


class Stage(StrEnum):
    """Where a pod is in its life.

    IN_LINE: it has Fairgate's scheduling gate, and waits (`webhook.core.waiting`). RESERVED: the same, and charged:
    it starts (`webhook.core.starting`), or its room is being made. ADMITTED: no scheduler has said anything about
    it yet. WAITS: no node has room for it, or no node is there that it may use. STALLED: something else than room
    keeps it off every node, such as a volume that does not exist, or another controller's gate. BOUND: it starts or
    runs on a node. ENDING: it is deleted, and its node has time to end it. OVERDUE: its node had time to end it and
    has not reported that. LOST: the same on a node that is lost. ENDED: no container of it can still run.
    """

    IN_LINE = "in line"
    RESERVED = "charged in line"
    ADMITTED = "admitted"
    WAITS = "waits for room"
    STALLED = "stalled"
    BOUND = "bound"
    ENDING = "ending"
    OVERDUE = "overdue"
    LOST = "lost"
    ENDED = "ended"


class RoomUse(StrEnum):
    """The room that a pod takes: none; on the node that was chosen for it, for a time; on its node."""

    NONE = "none"
    PROMISED = "promised"
    TAKEN = "taken"


class RemovalWay(StrEnum):
    """How a borrowing pod is made to leave.

    EVICT: by the Eviction API, with its grace period up to the bound of policy. DELETE: the same request, which the API
    server carries out at once for a pod without a node: no budget covers it, and no work is lost. SHORTEN: it leaves,
    and its grace period is cut to that bound.
    """

    NEVER = "never"
    EVICT = "evict"
    DELETE = "delete"
    SHORTEN = "shorten"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a stage means.

    `is_charged`: its GPUs count for limits and shares. `removal`: how it leaves, if it borrows. `is_entitled`: reclaim
    makes room for it, if it is inside its team's guaranteed share.
    """

    is_charged: bool
    room: RoomUse
    removal: RemovalWay
    is_entitled: bool = False


TERMS: Final[Mapping[Stage, Terms]] = {
    Stage.IN_LINE: Terms(is_charged=False, room=RoomUse.NONE, removal=RemovalWay.NEVER, is_entitled=True),
    Stage.RESERVED: Terms(is_charged=True, room=RoomUse.PROMISED, removal=RemovalWay.NEVER, is_entitled=True),
    Stage.ADMITTED: Terms(is_charged=True, room=RoomUse.PROMISED, removal=RemovalWay.DELETE),
    Stage.WAITS: Terms(is_charged=True, room=RoomUse.PROMISED, removal=RemovalWay.DELETE, is_entitled=True),
    Stage.STALLED: Terms(is_charged=True, room=RoomUse.PROMISED, removal=RemovalWay.DELETE),
    Stage.BOUND: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.EVICT),
    Stage.ENDING: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.SHORTEN),
    Stage.OVERDUE: Terms(is_charged=True, room=RoomUse.TAKEN, removal=RemovalWay.SHORTEN),
    Stage.LOST: Terms(is_charged=False, room=RoomUse.TAKEN, removal=RemovalWay.NEVER),
    Stage.ENDED: Terms(is_charged=False, room=RoomUse.NONE, removal=RemovalWay.NEVER),
}

_BY_OBSTACLE: Final[Mapping[Obstacle, Stage]] = {
    Obstacle.ROOM: Stage.WAITS,
    Obstacle.NODES: Stage.WAITS,
    Obstacle.GATE: Stage.STALLED,
    Obstacle.PEERS: Stage.STALLED,
    Obstacle.OTHER: Stage.STALLED,
}


def stage_of(pod: Resident, *, now: int, is_node_lost: bool) -> Stage:
    """Return the stage of a pod that is not in line and has not reported its end. `now` is in seconds of Unix time.

    `is_node_lost`: its node is gone, not ready, or out of service by its taint. A pod without a node that is deleted
    never runs: kube-scheduler skips it, and the API server refuses to bind it. Where the time is not known (0), as in a
    world file, a deadline has passed. ResourceQuota stops counting a pod at the same deadline, whatever its node is
    (kubernetes/pkg/quota/v1/evaluator/core/pods.go, QuotaV1Pod); here it counts until its node reports its end, unless
    that node is lost: a live kubelet may still run it.
    """
    if pod.node is None:
        if pod.is_terminating:
            return Stage.ENDED
        return Stage.ADMITTED if pod.unbound is None else _BY_OBSTACLE[pod.unbound.obstacle]
    if not pod.is_terminating:
        return Stage.BOUND
    if not pod.deadline or 0 < now <= pod.deadline:
        return Stage.ENDING
    return Stage.LOST if is_node_lost else Stage.OVERDUE


def removal_of(pod: Resident) -> RemovalWay:
    """Return how a pod is made to leave, if it borrows: that depends on neither the time nor its node's state.

    A static pod never does: kubelet runs it from a file of its node, and creates its object again.
    """
    if pod.handling is Handling.MIRROR:
        return RemovalWay.NEVER
    return TERMS[stage_of(pod, now=0, is_node_lost=False)].removal
