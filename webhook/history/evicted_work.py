"""What evictions cost: the work that was lost with evicted pods, and what a save after their warning kept of it.

Pure: the time is an argument, in seconds of Unix time. docs/usage.md defines both amounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import Uid
from webhook.core.reclaim.surplus import loses_no_work
from webhook.core.world.world import World
from webhook.history.meter import holding_of
from webhook.history.usage_row import UsageKey, UsageKind
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.objects import keys, objects
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.pod.work import work_of

AHEAD_SECONDS: Final = 60
"""How far ahead the clock of a node may be: a checkpoint later than that is of no time, and counts as none."""

_ENDED: Final = ("Succeeded", "Failed")


class Work(NamedTuple):
    """GPU-seconds of one evicted pod."""

    key: UsageKey
    gpu_seconds: float


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


_conditions: Final = msgspec.json.Decoder(list[_Condition] | None)


@dataclass(slots=True)
class _Warned:
    """A pod whose eviction is announced or under way: what it held, its start, and its checkpoints.

    `before` is the last checkpoint before the warning, or its start; `saved` the last one, and `text` as it was stated.
    `is_idle`: it was evicted since it did not use its GPUs; what it did before is not known to be done again.
    `is_replica`: of a workload with a minimum, as reclaim counts it: nothing is done again.
    """

    key: UsageKey
    gpus: Units
    before: float
    saved: float
    text: str
    is_evicted: bool = False
    is_moved: bool = False
    is_idle: bool = False
    is_replica: bool = False


class EvictedWork:
    """Follows pods from their warning to their end: one entry for each pod that is warned now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._warned: dict[Uid, _Warned] = {}

    def note(self, found: objects.Pod | None, uid: Uid, now: float) -> tuple[Work, ...]:
        """Note a pod that changed, None if it is gone; return what its eviction lost and saved, once it has ended."""
        if found is None or (found.status is not None and found.status.phase in _ENDED):
            warned = self._warned.pop(uid, None)
            return () if warned is None or not warned.is_evicted else _work(warned, now)
        annotations = found.metadata.annotations or {}
        is_evicted = _is_evicted(found.status)
        if not is_evicted and keys.EVICT_AT not in annotations:
            self._warned.pop(uid, None)  # its notice was withdrawn
            return ()
        text, warned = annotations.get(keys.CHECKPOINTED, ""), self._warned.get(uid)
        if warned is None:
            warned = self._begin(found, uid, text, now)
        elif text != warned.text:
            warned.saved, warned.text = max(warned.saved, _checkpoint(text, now)), text
        if warned is not None:
            if is_evicted and not warned.is_evicted:
                warned.is_evicted, warned.is_idle = True, _is_idle(annotations)
            warned.is_moved = warned.is_moved or self._is_moved(uid)
        return ()

    def _is_moved(self, uid: Uid) -> bool:
        """Whether a node keeps a place for the replacement of a pod, which no user can have it do."""
        nodes = filter(None, map(self._world.fleet.get, self._world.keeping))
        return any(place.replaces == uid for node in nodes for place in node.kept)

    def _begin(self, found: objects.Pod, uid: Uid, text: str, now: float) -> _Warned | None:
        """Follow a pod that holds GPUs and has started; any other one has no work to lose."""
        holding = holding_of(uid, self._world)
        work = work_of(found)
        if holding is None or holding.node is None or not work.is_working or not work.since:
            return None
        before = max(work.since, _checkpoint(text, now))
        pod = self._world.pod(uid)
        is_replica = pod is not None and loses_no_work(pod, self._world.minimums)
        self._warned[uid] = _Warned(holding.key, holding.gpus, before, before, text, is_replica=is_replica)
        return self._warned[uid]


def _is_evicted(status: objects.PodStatus | None) -> bool:
    """Whether Kubernetes says that something else than its owner ends the pod. Users may not write a pod's status."""
    if status is None or DISRUPTION.encode() not in bytes(status.conditions):
        return False
    try:
        conditions = _conditions.decode(status.conditions)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return any(each.type == DISRUPTION and each.status == "True" for each in conditions or ())


def _is_idle(annotations: Mapping[str, str]) -> bool:
    """Whether an eviction that was announced for no team is that of a pod that does not use its GPUs."""
    return {keys.IDLE_SINCE, keys.EVICT_AT} <= annotations.keys() and keys.EVICT_FOR not in annotations


def _checkpoint(text: str, now: float) -> float:
    """Return the time of a checkpoint as its pod states it, never later than now; 0 for one that cannot be."""
    at = unix_seconds(text)
    return min(at, now) if at <= now + AHEAD_SECONDS else 0


def _work(warned: _Warned, now: float) -> tuple[Work, ...]:
    if (warned.is_idle or warned.is_replica) and not warned.is_moved:
        return ()
    gpus, again = float(warned.gpus / ONE_GPU), UsageKind.MOVED if warned.is_moved else UsageKind.LOST
    amounts = ((again, now - warned.saved), (UsageKind.SAVED, warned.saved - warned.before))
    return tuple(
        Work(warned.key._replace(kind=kind), gpus * seconds) for kind, seconds in amounts if seconds > 0 and gpus
    )
