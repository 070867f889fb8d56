"""Notes what comes on the event loop, cheaply and in bounded number: pods, refused requests, what surrounds them.

A note keeps the decoded object; it becomes JSON in the writing thread.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import Namespace, Uid
from webhook.core.world.world import World
from webhook.history.object_json import object_json
from webhook.history.trace_row import SCALERS_OF_NAMESPACE, ObjectRow, PodRow, PolicyRow, Trace
from webhook.history.usage_row import bounded
from webhook.kube.nodes import autoscalers
from webhook.kube.objects import keys, objects
from webhook.kube.workloads import scalers

MAX_PENDING: Final = 20_000
"""Pods, and objects, between two batches."""
MAX_REFUSALS: Final = 200
"""Kinds of refused requests of a team between two batches; usage counts all."""
_DAY_SECONDS: Final = 86_400
_KINDS: Final = {
    "nodes": ("Node", keys.CORE_API),
    "namespaces": ("Namespace", keys.CORE_API),
    "priorityclasses": ("PriorityClass", keys.PRIORITY_API),
    **{api.plural: (api.kind, api.version) for api in autoscalers.API.values()},
    scalers.SCALERS: (scalers.KIND, scalers.SCALER_API),
}
PODS: Final = "pods"


@dataclass(slots=True)
class _Life:
    """What is known of a pod that exists."""

    created: float
    bound: float = 0.0


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
        elif kind == scalers.SCALERS:
            self._note_scaler(found if isinstance(found, scalers.Autoscaler) else None, handle)
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
        self._pods[uid] = _Note(row._replace(ended=self._clock()), None if noted is None else noted.found)

    def _note_scaler(self, found: scalers.Autoscaler | None, path: str) -> None:
        """Note what scales a workload; tenants make any number of them, which displace no nodes."""
        namespace, _, name = path.partition("/")
        if (scalers.KIND, path) not in self._objects:
            if self._scalers_of[namespace] >= SCALERS_OF_NAMESPACE or len(self._objects) >= MAX_PENDING // 2:
                self.dropped += 1
                return
            self._scalers_of[namespace] += 1
        bare = objects.ObjectMeta(name=name, namespace=Namespace(namespace))
        self._note_object(scalers.SCALERS, found and msgspec.structs.replace(found, metadata=bare), path)

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
