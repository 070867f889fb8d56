"""Work that evictions lost.

What evictions cost: the work that was lost with evicted pods, and what a save after their warning kept of it.

Pure: the time is an argument, in seconds of Unix time. docs/tasks/usage.md defines both amounts.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from webhook.addons.history.meter import UsageKey, UsageKind, bounded, holding_of
from webhook.addons.history.reader import object_json
from webhook.addons.history.store import EVICTED, SCALERS_OF_NAMESPACE, ObjectRow, PodRow, PolicyRow, Trace
from webhook.core.model.amounts import ONE_GPU, Namespace, Uid, Units
from webhook.core.reclaim.costs import loses_no_work
from webhook.core.world.world import World
from webhook.kube.kinds.job_failures import DISRUPTION
from webhook.kube.nodes import nodes
from webhook.kube.objects import keys, objects
from webhook.kube.pod.outcomes import work_of
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.workloads import unknown_kinds

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


# Notes what comes on the event loop, cheaply and in bounded number: pods, refused requests, what surrounds them.
#
# A note keeps the decoded object; it becomes JSON in the writing thread.


MAX_PENDING: Final = 20_000
"""Pods, and objects, between two batches."""
MAX_REFUSALS: Final = 200
"""Kinds of refused requests of a team between two batches; usage counts all."""
_DAY_SECONDS: Final = 86_400
_KINDS: Final = {
    "nodes": ("Node", keys.CORE_API),
    "namespaces": ("Namespace", keys.CORE_API),
    "priorityclasses": ("PriorityClass", keys.PRIORITY_API),
    **{api.plural: (api.kind, api.version) for api in nodes.API.values()},
    unknown_kinds.SCALERS: (unknown_kinds.KIND, unknown_kinds.SCALER_API),
}
PODS: Final = "pods"


@dataclass(slots=True)
class _Life:
    """What is known of a pod that exists."""

    created: float
    bound: float = 0.0
    is_evicted: bool = False


class _Note(NamedTuple):
    """A row without its object, and the object that it is to have."""

    row: PodRow
    found: msgspec.Struct | None


class PodLog:
    """Collects notes until `take`. `dropped` counts those that were too many."""

    def __init__(self, world: World, clock: Callable[[], float]) -> None:
        self.dropped = 0
        self._world = world
        self._clock = clock
        self._lives: dict[str, _Life] = {}
        self._pods: dict[str, _Note] = {}
        self._objects: dict[tuple[str, str], tuple[ObjectRow, msgspec.Struct | None]] = {}
        self._scalers_of: Counter[str] = Counter()  # new ones, by namespace
        self._refusals: dict[str, _Note] = {}
        self._refusals_of: dict[str, int] = {}
        self._policy = ""
        self._policies: list[PolicyRow] = []

    def note(self, kind: str, found: msgspec.Struct | None, handle: str) -> None:
        """Note an object of a watched kind that changed, None if it is gone; after the world applied it."""
        if kind == PODS:
            if found is None:
                self._end(handle)
            elif isinstance(found, objects.Pod):
                self._note_pod(found, Uid(handle))
        elif kind == unknown_kinds.SCALERS:
            self._note_scaler(found if isinstance(found, unknown_kinds.Autoscaler) else None, handle)
        elif kind in _KINDS:
            self._note_object(kind, found, handle)

    def refused(self, row: PodRow, found: msgspec.Struct | None) -> None:
        """Note a refused request; equal ones of a day are one row."""
        now = self._clock()
        day, who = int(now // _DAY_SECONDS), f"{row.namespace}/{row.owner or row.name}"
        uid = bounded(f"refused/{day}/{row.code}/{row.user}/{row.gpus}/{who}")
        before = self._refusals.get(uid)
        if before is not None:
            self._refusals[uid] = _Note(before.row._replace(ended=now, times=before.row.times + 1), before.found)
        elif self._refusals_of.get(row.team, 0) < MAX_REFUSALS:
            self._refusals_of[row.team] = self._refusals_of.get(row.team, 0) + 1
            self._refusals[uid] = _Note(row._replace(uid=uid, created=now, ended=now, times=1), found)
        else:
            self.dropped += 1

    def note_policy(self, policy_hash: str, documents: Callable[[], str]) -> None:
        """Note the policy in force."""
        if policy_hash != self._policy:
            self._policy = policy_hash
            self._policies.append(PolicyRow(policy_hash, self._clock(), documents()))

    def take(self) -> "Notes":
        """Return all notes, and forget them."""
        taken = Notes(
            (*self._pods.values(), *self._refusals.values()), tuple(self._objects.values()), (*self._policies,)
        )
        self._pods, self._objects, self._refusals, self._refusals_of, self._policies = {}, {}, {}, {}, []
        self._scalers_of.clear()
        return taken

    # -- pods

    def _note_pod(self, found: objects.Pod, uid: Uid) -> None:
        row = self._row(found, uid)
        if row is None:
            return
        life = self._lives.get(uid)
        if life is not None:
            life.is_evicted = life.is_evicted or _is_evicted(found.status)
        if life is not None and (life.bound or not row.bound):
            return  # nothing that is kept has changed
        if len(self._pods) >= MAX_PENDING:
            self.dropped += 1
            return
        if life is None:
            life = self._lives[uid] = _Life(row.created)
        life.bound = row.bound
        self._pods[uid] = _Note(row, found)

    def _row(self, found: objects.Pod, uid: Uid) -> PodRow | None:
        world, metadata = self._world, found.metadata
        waiting, entry, pod = world.waiting.get(uid), world.entry_of(uid), world.pod(uid)
        if waiting is not None:
            team, user, gpus, tier, created = waiting.team, waiting.user, waiting.pod.demand.gpus, "", waiting.created
        elif entry is not None and pod is not None:
            team, user, gpus, tier = entry.charge.team, entry.charge.user, entry.charge.gpus, entry.charge.tier.value
            created = pod.created
        else:
            return None
        owner = next((each for each in metadata.owner_references or () if each.controller), None)
        return PodRow(
            uid=bounded(uid),
            namespace=metadata.namespace,
            name=metadata.name,
            owner="" if owner is None else bounded(f"{owner.kind}/{owner.name}"),
            team=bounded(team),
            user=bounded(user or ""),
            tier=tier,
            gpus=_number(gpus),
            created=created or self._clock(),
            bound=self._clock() if found.spec.node_name else 0.0,
        )

    def _end(self, uid: str) -> None:
        life = self._lives.pop(uid, None)
        if life is None:
            return
        noted = self._pods.get(uid)
        row = noted.row if noted is not None else PodRow(bounded(uid), "", "", created=life.created, bound=life.bound)
        ended = row._replace(ended=self._clock(), code=EVICTED if life.is_evicted else "")
        self._pods[uid] = _Note(ended, None if noted is None else noted.found)

    def _note_scaler(self, found: unknown_kinds.Autoscaler | None, path: str) -> None:
        """Note what scales a workload; tenants make any number of them, which displace no nodes."""
        namespace, _, name = path.partition("/")
        if (unknown_kinds.KIND, path) not in self._objects:
            if self._scalers_of[namespace] >= SCALERS_OF_NAMESPACE or len(self._objects) >= MAX_PENDING // 2:
                self.dropped += 1
                return
            self._scalers_of[namespace] += 1
        bare = objects.ObjectMeta(name=name, namespace=Namespace(namespace))
        self._note_object(unknown_kinds.SCALERS, found and msgspec.structs.replace(found, metadata=bare), path)

    def _note_object(self, kind: str, found: msgspec.Struct | None, name: str) -> None:
        key, now = (_KINDS[kind][0], name), self._clock()
        before = self._objects.get(key)
        if before is None and len(self._objects) >= MAX_PENDING:
            self.dropped += 1
            return
        row = ObjectRow(*key, since=now) if before is None else before[0]
        self._objects[key] = (row._replace(until=0.0 if found is not None else now), found)


class Notes(NamedTuple):
    """Notes to write."""

    pods: tuple[_Note, ...]
    objects: tuple[tuple[ObjectRow, msgspec.Struct | None], ...]
    policies: tuple[PolicyRow, ...]

    def trace(self) -> Trace:
        """Return the rows, with their objects as JSON; call it off the event loop."""
        apis = dict(_KINDS.values())
        return Trace(
            tuple(
                row if found is None else row._replace(object=object_json(found, api_version=keys.CORE_API, kind="Pod"))
                for row, found in self.pods
            ),
            tuple(
                row
                if found is None
                else row._replace(object=object_json(found, api_version=apis[row.kind], kind=row.kind))
                for row, found in self.objects
            ),
            self.policies,
        )


def _number(gpus: Units) -> float:
    return float(gpus / ONE_GPU)
