"""What `fairgate explain` says of reclaim, and the objects that it reads for that.

The subject that the user named: a pod or a workload of the cluster by KIND/NAME, or manifests in a file. Pure.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.core.explain.explanation import Explanation
from webhook.core.model.amounts import Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy, WorkloadKind
from webhook.core.quota.charges import InFlightCharge
from webhook.core.reclaim.holds import NodeHold
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.reclaim_pods import Disruption, ReclaimPod
from webhook.core.reclaim.snapshot import Impossible, Outlook, RoomKept, outlook
from webhook.core.reclaim.victims import FailureBudget, WorkloadId
from webhook.core.starting.line_reclaim import as_charged
from webhook.core.tiers.shadow_labels import unlabeled_borrowers
from webhook.core.world.world import World
from webhook.kube.kinds.kind_row import KindTable, Row
from webhook.kube.ledger.team_ledger import TeamLedger, reclaiming
from webhook.kube.nodes.holds import DisruptionBudget, read_node_hold, to_disruption
from webhook.kube.objects import keys, objects
from webhook.kube.objects.events import LeaseRecord, read_lease
from webhook.kube.pod.existing import to_reclaim_pod
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.watched.world_kinds import BUDGETS

POD: Final = WorkloadKind("", "Pod", "pods")
_SHORT: Final = {
    "po": "pod",
    "rc": "replicationcontroller",
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "cj": "cronjob",
    "lws": "leaderworkerset",
    "isvc": "inferenceservice",
    "ksvc": "service.serving.knative.dev",
    "sparkapp": "sparkapplication",
    "sdep": "seldondeployment",
}
"""The short names that kubectl knows."""


@dataclass(frozen=True, slots=True)
class Target:
    """An object of the cluster: its kind, the known versions of its API ("*": the API server lists them), its name."""

    kind: WorkloadKind
    versions: tuple[str, ...]
    name: str

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod itself."""
        return (self.kind.group, self.kind.kind) == ("", "Pod")


def read_target(what: str, kinds: KindTable) -> Target | None:
    """Return the target of KIND/NAME as kubectl reads it: a kind, its plural or short name, with .GROUP if ambiguous.

    None where it is something else, such as a path.
    """
    kind, slash, name = what.partition("/")
    if not slash or not name or "/" in name:
        return None
    named = _SHORT.get(kind.lower(), kind.lower())
    row = next((row for row in kinds.values() if named in _names(row)), None)
    return None if row is None else Target(row.kind, row.versions, name)


def _names(row: Row) -> tuple[str, ...]:
    kind = row.kind
    plain = (kind.kind.lower(), kind.resource)
    full = tuple(f"{name}.{kind.group}" for name in plain) if kind.group else ()
    return full if kind.kind == "Service" else (*plain, *full)


# Further objects of a cluster: a workload, Events, PodDisruptionBudgets, and the leading evictor.
#
# Each is read once; what may not be read is left out with a note, since an explanation is useful without it.


if TYPE_CHECKING:
    from webhook.cluster.api.client import ApiConnection

LEASE: Final = keys.EVICTOR_LEASE
EVENTS: Final = "200"
"""Events of one object that are read: kube-apiserver keeps them for an hour."""


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An Event of Fairgate, its count, and the last time in seconds of Unix time."""

    reason: str
    message: str
    count: int
    last: int


@dataclass(frozen=True, slots=True)
class Evictor:
    """The leading evictor: "" if none leads, None if that is not known; `why` is the reason."""

    leader: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClusterDetails:
    """The further objects; `failures` is how many failures workloads survive.

    `notes` are those that could not be read; `why_no_workload` is about the workload.
    """

    evictor: Evictor = Evictor(None, "a world file does not say which evictor leads")
    budgets: tuple[Disruption, ...] = ()
    failures: Mapping[WorkloadId, FailureBudget] = field(default_factory=dict)
    events: tuple[PastEvent, ...] = ()
    workload: Mapping[str, Any] | None = None
    why_no_workload: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DetailsRequest:
    """What to read: the object, and the namespace where Fairgate runs.

    `reads_reclaim`: the objects that reclaim depends on are read, too; `reads_failures`: and the workloads that count
    failures, of which there may be as many as pods.
    """

    target: Target | None
    namespace: str
    fairgate_namespace: str
    reads_reclaim: bool = True
    reads_failures: bool = False


class _EventMeta(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: str | None = None


class _Place(msgspec.Struct, frozen=True):
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Place = _Place()


class _Source(msgspec.Struct, frozen=True):
    component: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _EventMeta = _EventMeta()
    reason: str | None = None
    message: str | None = None
    count: int | None = None
    last_timestamp: str | None = None
    source: _Source | None = None


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _Version


def read_details(kubeconfig: Path | None, request: DetailsRequest) -> ClusterDetails:
    """Return the further objects. Raises ClusterError where the cluster cannot be reached."""
    return asyncio.run(fetch_details(kubeconfig, request))


async def fetch_details(kubeconfig: Path | None, request: DetailsRequest) -> ClusterDetails:
    """Return the further objects, inside an event loop. Raises ClusterError where the cluster cannot be reached."""
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it

    async with await connect(kubeconfig) as connection:
        reader = _Reader(connection)
        evictor, budgets, failures, events, workload = await asyncio.gather(
            reader.evictor(request),
            reader.budgets(request),
            reader.failures(request),
            reader.events(request),
            reader.workload(request),
        )
        return ClusterDetails(
            evictor, budgets, failures, events, workload, reader.why_no_workload, notes=tuple(reader.notes)
        )


async def fetch_evictor(connection: "ApiConnection", namespace: str) -> Evictor:
    """Return the leading evictor by its Lease, of a namespace before others."""
    return await _Reader(connection).evictor(DetailsRequest(None, "", namespace))


class _Reader:
    def __init__(self, connection: "ApiConnection") -> None:
        self.notes: list[str] = []
        self.why_no_workload = ""
        self._connection = connection

    async def evictor(self, request: DetailsRequest) -> Evictor:
        if not request.reads_reclaim:
            return Evictor(None, "its Lease was not read")
        namespace = request.fairgate_namespace
        path = f"/apis/{keys.LEASE_API}/namespaces/{namespace}/leases/{LEASE}"
        body, why = await self._get(path, action="get leases")
        if body is not None:
            return leading(read_lease(body).record, now=datetime.now(UTC))
        if why:
            return Evictor(None, f"its Lease could not be read: {why}")
        return await self._evictor_elsewhere() or Evictor("", f"there is no Lease {LEASE} in namespace {namespace}")

    async def _evictor_elsewhere(self) -> Evictor | None:
        """Return the leader of another namespace, where all may be read; users may create Leases in their own."""
        params = {"fieldSelector": f"metadata.name={LEASE}", "limit": EVENTS}
        body, _ = await self._get(f"/apis/{keys.LEASE_API}/leases", params, action="list leases")
        for raw in () if body is None else msgspec.json.decode(body, type=_List).items or ():
            found = leading(read_lease(raw).record, now=datetime.now(UTC))
            if found.leader:
                namespace = msgspec.json.decode(raw, type=_Named).metadata.namespace
                return Evictor(f"{found.leader} of namespace {namespace}")
        return None

    async def budgets(self, request: DetailsRequest) -> tuple[Disruption, ...]:
        """Return all disruption budgets; those that cannot be read are left out."""
        if not request.reads_reclaim:
            return ()
        from webhook.cluster.api.client import ApiError  # noqa: PLC0415 - slow to import, and files need none of it
        from webhook.cluster.reads.listing import list_kind  # noqa: PLC0415

        try:
            listed = await list_kind(self._connection, BUDGETS)
        except ApiError as error:
            self.notes.append(f"{BUDGETS.kind}s are not looked at: {error}")
            return ()
        found = []
        for each in listed:
            try:
                found.append(to_disruption(msgspec.convert(each, DisruptionBudget)))
            except ValueError:
                continue
        return tuple(found)

    async def failures(self, request: DetailsRequest) -> dict[WorkloadId, FailureBudget]:
        """Return how many failures each Job, and each other workload that counts them, survives."""
        found: dict[WorkloadId, FailureBudget] = {}
        if not request.reads_failures:
            return found
        from webhook.cluster.api.client import ApiError  # noqa: PLC0415 - slow to import, and files need none of it
        from webhook.cluster.reads.listing import load  # noqa: PLC0415
        from webhook.kube.watched.kinds import failure_kinds  # noqa: PLC0415

        def keep(workload: WorkloadId, budget: FailureBudget | None) -> None:
            if budget is not None:
                found[workload] = budget

        refused: dict[str, ApiError] = {}
        for kind in failure_kinds(keep):
            try:
                await load(self._connection, kind)
            except ApiError as error:
                refused[kind.name] = error
        if refused:
            self.notes.append(f"{', '.join(refused)} are not looked at: {next(iter(refused.values()))}")
        return found

    async def events(self, request: DetailsRequest) -> tuple[PastEvent, ...]:
        if request.target is None:
            return ()
        selector = f"involvedObject.name={request.target.name},involvedObject.kind={request.target.kind.kind}"
        path = f"/api/v1/namespaces/{request.namespace}/events"
        body, why = await self._get(path, {"fieldSelector": selector, "limit": EVENTS}, action="list events")
        if body is None:
            self.notes.append(f"Events are not shown: {why}")
            return ()
        found = (msgspec.json.decode(raw, type=_Event) for raw in msgspec.json.decode(body, type=_List).items or ())
        ours = [_past(each) for each in found if each.source and (each.source.component or "").startswith("fairgate")]
        return tuple(sorted(ours, key=lambda each: -each.last))

    async def workload(self, request: DetailsRequest) -> Mapping[str, Any] | None:
        """Return the named workload; None where it is a pod, or does not exist."""
        target = request.target
        if target is None or target.is_pod:
            return None
        base = f"/apis/{target.kind.group}" if target.kind.group else "/api"
        action = f"get {target.kind.resource}"
        for version in await self._versions(target, base):
            path = f"{base}/{version}/namespaces/{request.namespace}/{target.kind.resource}/{target.name}"
            body, why = await self._get(path, action=action)
            if body is not None:
                found: Mapping[str, Any] = msgspec.json.decode(body)
                return found
            self.why_no_workload = why or self.why_no_workload
        return None

    async def _versions(self, target: Target, base: str) -> tuple[str, ...]:
        if target.versions != ("*",):
            return target.versions
        body, _ = await self._get(base, action="get")
        return () if body is None else (msgspec.json.decode(body, type=_Group).preferred_version.version,)

    async def _get(
        self, path: str, params: Mapping[str, str] | None = None, *, action: str
    ) -> "tuple[bytes | None, str]":
        """Return a body; or None and why, "" where there is no such object."""
        from webhook.cluster.api.client import ApiError  # noqa: PLC0415

        try:
            return await self._connection.send("GET", path, action=action, params=params), ""
        except ApiError as error:
            return None, "" if error.is_missing else str(error)


def leading(record: LeaseRecord, *, now: datetime) -> Evictor:
    """Return the leader by a Lease; clocks may differ by the duration of the Lease."""
    if not record.holder:
        return Evictor("", f"its Lease {LEASE} is free")
    renewed = unix_seconds(record.renewed_at)
    silent = int(now.timestamp()) - renewed
    if silent > 2 * record.duration_seconds:
        return Evictor("", f"{record.holder} renewed its Lease {silent} s ago for the last time")
    return Evictor(record.holder)


def _past(event: _Event) -> PastEvent:
    last = unix_seconds(event.last_timestamp or event.metadata.creation_timestamp or "")
    return PastEvent(event.reason or "", event.message or "", event.count or 1, last)


# What reclaim can do for a waiting pod, or does to a borrowing one, from the objects of a world. Pure.


_HYPOTHETICAL: Final = Uid("explained")
_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)


@dataclass(frozen=True, slots=True)
class Evictions:
    """The evictor's view of a cluster: its world, where held nodes are open, and its reclaim index with the holds.

    `held` are the slots of those nodes.
    """

    world: World
    reclaim_index: ReclaimIndex
    held: int

    @classmethod
    def of(
        cls, found: Sequence[Mapping[str, Any]], world: World, details: ClusterDetails, node_holds: tuple[NodeHold, ...]
    ) -> "Evictions":
        """Return the evictor's view of the objects of a world; `world` is made of them, and is changed."""
        policy = world.policy
        reclaim_index = ReclaimIndex(policy.reclaim, world.minimums)
        for budget in details.budgets:
            reclaim_index.set_disruption(budget)
        for workload, failure_budget in details.failures.items():
            reclaim_index.set_failure_budget(workload, failure_budget)
        for each in found:
            if each.get("kind") == "Pod":
                _index(each, reclaim_index, world, policy)
            elif each.get("kind") == "PodDisruptionBudget":
                with suppress(ValueError):
                    reclaim_index.set_disruption(to_disruption(msgspec.convert(each, DisruptionBudget)))
        reclaim_index.set_borrowing(unlabeled_borrowers(world))
        held = world.fleet.held_bits
        for node in list(world.fleet.nodes()):
            if node.is_held:
                world.set_node(replace(node.unheld, kept=node.kept))
        for gpu_pod in list(_charged_in_line(found, world)):
            world.drop_reservation(gpu_pod.uid)
            world.set_pod(gpu_pod.pod)
            reclaim_index.set(replace(gpu_pod, pod=world.pod(gpu_pod.uid) or gpu_pod.pod))
        for node_hold in node_holds:
            reclaim_index.evictions.pick_up(node_hold, noticed=lambda _: False)
        return cls(world, reclaim_index, held)

    def outlook(self, explanation: Explanation, uid: str, *, now: int) -> Outlook | None:
        """Return what reclaim can do for a pod; None where it needs nothing.

        `uid` is that of a pod that exists, "" where the explanation is of one that would be created now.
        """
        for hold in self.reclaim_index.evictions.holds.values() if uid else ():
            if any(place.key == uid for place in hold.places):
                return RoomKept(hold, tuple([target for target in hold.targets if target.beneficiary == uid]))
        gpu_pod = self.reclaim_index.get(Uid(uid)) if uid else None
        if gpu_pod is not None:
            if gpu_pod.pod.node is not None or gpu_pod.pod.is_terminating:
                return None
            if gpu_pod.pod.tier is None:
                return Impossible("Fairgate did not decide on it")
            found = outlook(gpu_pod, self.reclaim_index, self.world, now=now)
            has_room = isinstance(found, Impossible) and found.cause is NoPlan.FITS
            return None if has_room and gpu_pod.in_line is not None else found  # the line says that it starts
        is_guaranteed = isinstance(explanation.decision, Admit) and explanation.decision.charge.tier is Tier.GUARANTEED
        if uid or explanation.team is None or explanation.runs_now or not is_guaranteed:
            return None
        pool = next((step.pool for step in explanation.pools if step.nodes is not None), None)
        pod = explanation.pod
        constraints = pod.constraints if pool is None else self.world.pools.joined(pod.constraints, pool)
        team, tier = explanation.team.name, Tier.GUARANTEED.value
        made = Resident(_HYPOTHETICAL, pod.namespace, pod.name, pod.demand, None, None, team, tier, created=now)
        waiting = ReclaimPod(made, labels=pod.labels, constraints=constraints, topology=pod.topology)
        return outlook(waiting, self.reclaim_index, self.world, now=now)


def node_holds_of(found: Iterable[Mapping[str, Any]]) -> tuple[NodeHold, ...]:
    """Return the holds of the nodes of a world."""
    nodes = (each["metadata"] for each in found if each.get("kind") == "Node")
    read = (read_node_hold(msgspec.convert(metadata, objects.ObjectMeta)) for metadata in nodes)
    return tuple([node_hold for node_hold in read if node_hold is not None])


class EvictedFor(NamedTuple):
    """The pod for which another one is evicted, and the node with a place for its replacement; "" where unknown."""

    pod: str = ""
    moves_to: str = ""


def evicted_for(uid: str, node_holds: Iterable[NodeHold]) -> EvictedFor:
    """Return why a pod is evicted."""
    holds = tuple(node_holds)
    wanted = {target.beneficiary for hold in holds for target in hold.targets if target.uid == uid}
    named = [(each.uid, f"{each.namespace}/{each.name}") for hold in holds for each in hold.beneficiaries]
    named += [(Uid(place.key), place.name) for hold in holds for place in hold.places if place.key]
    moves_to = next((hold.node for hold in holds for place in hold.places if uid and place.replaces == uid), "")
    return EvictedFor(next((name for key, name in named if key in wanted), ""), moves_to)


def _charged_in_line(found: Iterable[Mapping[str, Any]], world: World) -> Iterator[ReclaimPod]:
    """Yield the charged queued pods whose room the evictor makes, and which it plans for like pods without a gate."""
    ledgers = [msgspec.convert(each, TeamLedger) for each in found if each.get("kind") == keys.TEAM_LEDGER]
    due = {uid for ledger in ledgers for uid in reclaiming(ledger)}
    for waiting in world.waiting.all():
        uid = waiting.uid
        entry, pod = world.entry_of(uid), world.pod(uid)
        if entry is not None and pod is not None and (uid in due or not ledgers):
            flight = InFlightCharge(pod, entry.charge, world.node_of(uid), takes_back=True)
            if (charged := as_charged(waiting, flight, world)) is not None:
                yield charged


def _index(found: Mapping[str, Any], reclaim_index: ReclaimIndex, world: World, policy: Policy) -> None:
    """Index a pod with the demand that the world counts: only the world resolves its device claims."""
    try:
        gpu_pod = to_reclaim_pod(_pod_decoder.decode(msgspec.json.encode(found)), policy.resources)
    except ValueError:
        return
    if gpu_pod is None:
        return
    counted = world.pod(gpu_pod.pod.uid) or gpu_pod.pod
    unpromised = counted.for_reclaim
    if counted != unpromised:  # a pod that is known keeps the room that it was promised
        world.remove_pod(counted.uid)
        world.set_pod(unpromised)
    if counted.demand.gpus or counted.demand.devices:
        reclaim_index.set(replace(gpu_pod, pod=unpromised))
