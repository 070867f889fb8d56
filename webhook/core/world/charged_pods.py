"""Charges and room of pods, by stage.

The pods of the world: the room that each takes on its node, and its charge in its team's usage.

Both change together, for any reason: a pod is added or removed, its claims, node or team become known, it is promoted,
policy changes. The world translates events into these reasons.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final, NamedTuple

from webhook.core.devices.claims import AS_IS, Claims, Instead, ResolvedDemand
from webhook.core.model.amounts import (
    ANY_MODEL,
    DepartmentName,
    GpuModel,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
)
from webhook.core.model.constraints import TIERS, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.demand import reweighed
from webhook.core.model.gpu_shares import replicas_of
from webhook.core.model.node import Node
from webhook.core.model.pod import TERMS, Handling, Pod, Resident, RoomUse, Stage, stage_of
from webhook.core.model.policy import Policy, ReclaimRules, Team
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.pod_counts import PodCounts
from webhook.core.quota.charges import ENDED, UNSEEN, Alive, Evidence, InFlightCharge, Unseen
from webhook.core.quota.shares import DepartmentUsage, EndedCharges, Tenancies
from webhook.core.quota.usage import TeamUsage
from webhook.core.world.pod_index import PodIndex, PodPlace, PodRecord, Promises
from webhook.core.world.waiting_pods import WaitingPods

_BOUND: Final = Stage.BOUND
_STANDING: Final = frozenset({Handling.DAEMON_SET, Handling.MIRROR})
"""Pods that come with a node: no end of other pods makes their room free."""


class _Kind(NamedTuple):
    """What a pod's node has said of its GPUs while it had the pod: the model, and the slices; None for whole GPUs."""

    model: GpuModel
    slices: frozenset[ResourceName | None]


class ChargedPods:
    """Pods with their room and charges.

    `on_change` is called at each change of a usage, `on_pod` with the UID of each pod that may count as something else.
    """

    def __init__(self, policy: Policy, *, tenancies: Tenancies, pod_counts: PodCounts) -> None:
        self.on_change: Callable[[], None] = _no_listener
        self.on_pod: Callable[[Uid], None] = _no_pod_listener
        self.fleet = Fleet()
        self.claims = Claims()
        self.pods = PodIndex(pod_counts)
        self.usage: dict[TeamName, TeamUsage] = {}
        self.departments: dict[DepartmentName, DepartmentUsage] = {}
        self.ended = EndedCharges()
        self._promotions: dict[Uid, Evidence] = {}
        self._kinds: dict[Uid, _Kind] = {}  # of pods whose nodes said something else before
        self._policy = policy
        self._tenancies = tenancies
        self._set_levels()

    def set_policy(self, policy: Policy) -> None:
        """Weigh and charge every pod by another policy."""
        self._policy = policy
        self.usage.clear()
        self._set_levels()
        self.on_change()
        for record in self.pods.all():
            demand = reweighed(record.pod.demand, policy.resources)
            self._change_demand(record, self._resolved(record.pod._replace(demand=demand), record.node))
            self._charge(record)

    def _set_levels(self) -> None:
        """Prepare the usage of every team that has departments above it: it counts to theirs from the first pod on."""
        self.departments.clear()
        known = self.departments
        known.update((each.name, DepartmentUsage(each)) for each in self._policy.departments)
        for team in self._policy.teams:
            if team.departments:
                levels = [known.setdefault(each.name, DepartmentUsage(each)) for each in team.departments]
                self.usage[team.name] = TeamUsage(tuple(levels))

    def keep_room(self, team: TeamName, waiting: WaitingPods) -> None:
        """Keep room under a team's limits for those of its waiting pods that reclaim makes it for."""
        found, usage = self._policy.team(team), self.usage.get(team)
        if found is not None and usage is not None:
            usage.keep_room(team, waiting.kept(team), line=waiting.gpus(team), share=found.gpus.guaranteed)

    # -- pods

    def add(self, record: PodRecord, charge: Charge | None = None, *, devices: tuple[int, ...] = ()) -> None:
        """Add a pod, or replace its earlier record; without a `charge` its own fields say what it is charged."""
        uid = record.pod.uid
        if self._keeps_room(record):
            self._replace(record, charge)
            return
        self._take_off(uid)
        self.pods.add(record)
        if record.pod.claims or record.pod.demand.strange or record.pod.shares_by:
            changed = self._join(record)
            record.pod = self._resolved(record.pod, record.node)
            self.recount(changed)
        elif self._may_be_sliced(record.pod):
            record.pod = self._resolved(record.pod, record.node)
        if not record.is_reserved:
            self._tenancies.note_pods(record.pod.namespace, are_there=True)
        self._charge(record, charge, is_placed=False)
        self._take(record, devices=devices)

    def _join(self, record: PodRecord) -> Iterable[Uid]:
        """Set the claims that a pod uses; return the pods whose part of a claim changed.

        Another user is charged for the claims of a pod that is not.
        """
        pod = record.pod
        if not TERMS[record.stage].is_charged:
            return self.claims.leave(pod.uid)
        is_expected = pod.node is None
        return self.claims.join(pod.uid, pod.namespace, pod.claims, node=record.node, is_expected=is_expected)

    def place(self, record: PodRecord, place: PodPlace) -> None:
        """Charge a known pod, and take its room, by its stage now."""
        if place != (record.stage, record.node):
            devices = () if place.node is None else self.fleet.devices_of(place.node, record.pod.uid)
            self.add(replace(record, stage=place.stage, node=place.node), devices=devices)

    @contextmanager
    def what_if(self) -> Iterator[Callable[[InFlightCharge], None]]:
        """Give a function that charges pods until the context ends: nothing is woken, and nothing is learned."""
        assumed: list[Uid] = []
        listeners, self.on_change, self.on_pod = (self.on_change, self.on_pod), _no_listener, _no_pod_listener

        def assume(flight: InFlightCharge) -> None:
            if flight.pod.uid not in self.pods:
                assumed.append(flight.pod.uid)
                self.add(PodRecord(flight.pod, flight.charge.team, flight.node, is_reserved=True), flight.charge)

        try:
            yield assume
        finally:
            for uid in assumed:
                self.remove(uid)
            self.on_change, self.on_pod = listeners

    def remove(self, uid: Uid) -> None:
        """Remove a pod."""
        self._take_off(uid)
        self._kinds.pop(uid, None)
        self.recount(self.claims.leave(uid))

    def end_reservation(self, uid: Uid, *, now: int) -> None:
        """Remove a reservation; what a pod deleted by force left is kept for those in the queue for a moment."""
        usage = self.usage.get(self.pods[uid].team)
        entry = None if usage is None else usage.get(uid)
        if usage is not None and entry is not None and entry.lingers:
            self.ended.add(usage, entry.charge.gpus, now=now)
        self.remove(uid)

    def recount(self, uids: Iterable[Uid]) -> None:
        """Resolve the demand again of pods whose claims changed, or that are no longer charged for shared claims."""
        for uid in uids:
            record = self.pods[uid]
            pod = self._resolved(record.pod, record.node)
            if pod.demand == record.pod.demand:
                continue
            self._change_demand(record, pod)
            usage = self.usage.get(record.team)
            entry = None if usage is None else usage.get(uid)
            if usage is not None and entry is not None:
                usage.release(uid)
            self._charge(record, None if entry is None else entry.charge._replace(gpus=pod.demand.gpus))

    def keep_kind(self, before: Node) -> None:
        """Keep what a node that changes has said of its GPUs, for the pods there: a kubelet has given them these.

        While operators change a node it has no labels of a model, and then others.
        """
        for uid in self.pods.on_node(before.name) if before.model or before.slice else ():
            if self.pods[uid].pod.node == before.name:
                known = self._kinds.get(uid)
                seen = frozenset((before.slice,))
                self._kinds[uid] = _Kind(before.model, seen if known is None else known.slices | seen)

    def recharge(self, uids: Iterable[Uid]) -> None:
        """Charge pods again whose team, tier or GPU model may have changed."""
        for uid in uids:
            if not (record := self.pods[uid]).is_reserved:
                if (usage := self.usage.get(record.team)) is not None:
                    usage.release(record.pod.uid)
                self._charge(record)

    def update_team(self, namespace: Namespace) -> None:
        """Charge the pods of a namespace to the team that it belongs to now."""
        if self._tenancies.reassign(namespace):
            self.recharge(self.pods.in_namespace(namespace))

    def resolve(self, pod: Pod | Resident, *, instead: Instead = AS_IS) -> ResolvedDemand:
        """Resolve a pod's demand: its claims, the device classes of its resources, and its shares of devices."""
        return self.claims.resolve(
            pod.demand,
            pod.claims,
            namespace=pod.namespace,
            uid=pod.uid,
            is_admin=self._tenancies.of(pod.namespace).has_admin_access,
            shares_by=pod.shares_by,
            slices=self._slices(pod),
            policy=self._policy,
            may_inherit=self._was_admitted_with,
            instead=instead,
        )

    def _was_admitted_with(self, charged: Uid, claim: Uid) -> bool:
        """Whether the pod that is charged for a claim was admitted with it, or with as many GPUs as it is charged."""
        record = self.pods.get(charged)
        held = None if record is None else record.pod.admitted
        return record is not None and held is not None and (claim in held.claims or record.pod.demand.gpus <= held.gpus)

    # -- promotions

    def promotion(self, uid: Uid) -> Evidence:
        """Return what was seen of the label of a promoted pod."""
        return self._promotions.get(uid, UNSEEN)

    def promote(self, uid: Uid) -> None:
        """Charge a pod as guaranteed, once it is seen and until its label says so itself."""
        if uid in self._promotions:
            return
        record = self.pods.get(uid)
        is_done = record is not None and record.pod.tier is Tier.GUARANTEED and not record.is_reserved
        self._promotions[uid] = Alive(record.pod.version) if record is not None and is_done else UNSEEN
        if record is not None:
            self.recharge((uid,))

    def confirm_promotion(self, pod: Resident) -> None:
        """Record that the label of a promoted pod was seen."""
        if pod.tier is Tier.GUARANTEED and isinstance(self._promotions.get(pod.uid), Unseen):
            self._promotions[pod.uid] = Alive(pod.version)

    def end_promotion(self, uid: Uid) -> None:
        """Record that a promoted pod ended."""
        if uid in self._promotions:
            self._promotions[uid] = ENDED

    def cancel_promotion(self, uid: Uid) -> None:
        """Charge a pod by its label again."""
        if self._promotions.pop(uid, None) is not None and uid in self.pods:
            self.recharge((uid,))

    # -- room and charges

    def _keeps_room(self, record: PodRecord) -> bool:
        """Whether a known pod takes the same room on the same node as before, as with most of a pod's events."""
        before, pod = self.pods.get(record.pod.uid), record.pod
        if before is None or before.node != record.node or before.pod.demand != pod.demand:
            return False
        is_resolved = not (pod.claims or pod.demand.strange or pod.shares_by or self._may_be_sliced(pod))
        return is_resolved and pod.demand.per_device is None and not before.pod.claims

    def _replace(self, record: PodRecord, charge: Charge | None) -> None:
        """Replace the record of a pod, and its charge; its room stays taken."""
        uid, namespace = record.pod.uid, record.pod.namespace
        before = self.pods.pop(uid)
        self.pods.add(record)
        if not record.is_reserved:
            self._tenancies.note_pods(namespace, are_there=True)
        if before is not None and (usage := self.usage.get(before.team)) is not None:
            usage.release(uid)
        self._charge(record, charge)

    def _take_off(self, uid: Uid) -> None:
        """Remove a pod from its node and usage; its claims stay."""
        record = self.pods.pop(uid)
        if record is None:
            return
        self.on_pod(uid)
        namespace = record.pod.namespace
        if self._tenancies.is_unseen_with_pods(namespace):
            self._tenancies.note_pods(namespace, are_there=self.pods.has_seen_pods(namespace))
        self._take(record, sign=-1)
        self.fleet.set_borrowed(uid, record.pod.demand, is_borrowed=False)
        if (usage := self.usage.get(record.team)) is not None:
            usage.release(uid)
            self.on_change()

    def _resolved(self, pod: Resident, node: NodeName | None) -> Resident:
        """Return a pod with its demand; of several alternatives of its claims with the first that its node has."""
        own = pod.demand.own  # set if its demand was resolved before
        if not (pod.claims or pod.demand.strange or pod.shares_by or own or self._slices(pod)):
            return pod
        resolved = self.resolve(pod)
        bit = self.fleet.bit(node) if node is not None and resolved.alternatives > 1 else 0
        for number in range(resolved.alternatives if bit else 0):
            demand = self.resolve(pod, instead=Instead(alternative=number)).demand
            if self.fleet.with_capacity(demand, bit):
                return pod._replace(demand=demand)
        return pod._replace(demand=resolved.demand)

    def _slices(self, pod: Pod | Resident) -> tuple[ResourceName, ...]:
        """Return the slices behind a pod's `nvidia.com/gpu`: those of its node, or of all nodes it may be on."""
        name = pod.node_name if isinstance(pod, Pod) else pod.node
        node = None if name is None else self.fleet.get(name)
        if node is None:
            # replicas of a policy that does not count by them, or of nodes that are not known, may be whole GPUs
            numbers = map(replicas_of, pod.slices)
            return pod.slices if all(self.fleet.are_replicas(number) for number in numbers if number) else ()
        kind = self._kinds.get(pod.uid)
        if kind is None:
            return () if node.slice is None else (node.slice,)
        seen = kind.slices | {node.slice} if node.model or node.slice else kind.slices
        return tuple(sorted(each for each in seen if each is not None)) if None not in seen else ()

    def _may_be_sliced(self, pod: Resident) -> bool:
        return bool(pod.slices or self.fleet.slices.slots or pod.uid in self._kinds)

    def _change_demand(self, record: PodRecord, pod: Resident) -> None:
        """Change the demand of a pod, and its room on its node."""
        if record.node is not None and pod.demand.requests != record.pod.demand.requests:
            devices = self.fleet.devices_of(record.node, pod.uid)
            self._take(record, sign=-1)
            record.pod = pod
            self._take(record, devices=devices)
        record.pod = pod

    def _take(self, record: PodRecord, *, sign: int = 1, devices: tuple[int, ...] = ()) -> None:
        """Take a pod's room on its node, or (sign -1) give it back."""
        pod, node = record.pod, record.node
        if node is not None:
            self.fleet.take(node, pod.demand, sign=sign, holder=pod.uid, devices=devices)
            if pod.handling in _STANDING:
                self.fleet.stand(node, pod.demand, sign=sign)

    def _charge(self, record: PodRecord, charge: Charge | None = None, *, is_placed: bool = True) -> None:
        self.on_pod(record.pod.uid)
        stage, gpus = record.stage, record.pod.demand.gpus
        if charge is not None and record.pod.claims:  # another pod that was charged for them may be gone by now
            gpus = max(gpus, charge.gpus)
            charge = charge._replace(gpus=gpus)
        if not (gpus and (stage is _BOUND or TERMS[stage].is_charged)):  # a look-up by the stage's hash costs 0.2 us
            return
        if charge is None:
            charge = self._charge_of(record)
        record.team = charge.team
        is_borrowed = charge.tier is Tier.PREEMPTIBLE and record.pod.tier_label in TIERS
        self.fleet.set_borrowed(
            record.pod.uid, record.pod.demand, is_borrowed=is_borrowed, on=record.node if is_placed else None
        )
        self.usage.setdefault(charge.team, TeamUsage()).charge(record.pod.uid, record.entry(charge))
        self.on_change()

    def _charge_of(self, record: PodRecord) -> Charge:
        pod = record.pod
        tenancy = self._tenancies.of(pod.namespace)
        return Charge(
            team=tenancy.team_name,
            tier=self._tier_of(pod),
            gpus=pod.demand.gpus,
            model=self._model_of(record, tenancy.team),
            user=pod.user,
        )

    def _tier_of(self, pod: Resident) -> Tier:
        if isinstance(self._promotions.get(pod.uid), Unseen):
            return Tier.GUARANTEED
        return TIERS.get(pod.tier_label or "", Tier.PREEMPTIBLE)

    def _model_of(self, record: PodRecord, team: Team | None) -> GpuModel | None:
        if team is None or not team.has_model_shares:
            return None
        if record.node is not None and (node := self.fleet.get(record.node)) is not None:
            kind = self._kinds.get(record.pod.uid)
            return node.model if node.model or kind is None else kind.model
        return ANY_MODEL if record.pod.model is None else record.pod.model


def _no_listener() -> None:
    return None


def _no_pod_listener(_uid: Uid) -> None:
    return None


# The stages of the pods that exist: what each is charged and which room it takes, as time passes and nodes change.


OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an admin says that a node is shut down: Kubernetes then deletes its pods by force."""

UNUSUAL: Final = frozenset({Stage.STALLED, Stage.OVERDUE, Stage.LOST, Stage.LINGERING})
"""The stages at which the charge of a pod may surprise people."""


def is_lost(node: Node | None) -> bool:
    """Whether nothing can be learned of the pods on a node: it is gone (None), not ready, or out of service."""
    return node is None or not node.is_ready or any(taint.key == OUT_OF_SERVICE for taint in node.taints)


class PodStages:
    """The stage of each pod, and those whose stage changes with time alone: promises end, and deadlines pass.

    `rules` are the policy's: they bound how long reclaim may take. `unusual` are the pods at a stage of UNUSUAL,
    `idle` those on nodes that are marked as not using their GPUs.
    `read_at` is the time of a world that is read once: deadlines are compared with it, promises have no time there.
    """

    def __init__(self, charged: ChargedPods, rules: ReclaimRules) -> None:
        self.rules = rules
        self.unusual: dict[Uid, Stage] = {}
        self.idle: set[Uid] = set()
        self.read_at = 0
        self._charged = charged
        self._now = 0
        self._promises = Promises()
        self._deadlines: list[tuple[int, Uid]] = []
        self._deleted: dict[Uid, int] = {}

    def of(self, uid: Uid) -> Stage | None:
        """Return the stage of a pod's life; None where it is unknown, or waits in the queue."""
        record = self._charged.pods.get(uid)
        return None if record is None else record.stage

    def place(self, pod: Resident, chosen: NodeName | None) -> PodPlace:
        """Return the stage and the room of a pod now; `chosen` is the node that is promised to it while it has none."""
        if pod.node is not None and not pod.is_terminating:  # most events: spare them what the others need
            if self.unusual:
                self.unusual.pop(pod.uid, None)
            if pod.idle_since:
                self.idle.add(pod.uid)
            elif self.idle:
                self.idle.discard(pod.uid)
            self._promises.end(pod.uid)
            return PodPlace(_BOUND, pod.node)
        self.idle.discard(pod.uid)
        node = None if pod.node is None else self._charged.fleet.get(pod.node)
        stage = stage_of(pod, now=self._now or self.read_at, is_node_lost=is_lost(node))
        if stage in UNUSUAL:
            self.unusual[pod.uid] = stage
        elif self.unusual:
            self.unusual.pop(pod.uid, None)
        if pod.node is None and TERMS[stage].room is RoomUse.RESERVED:
            if pod.nominated is not None:
                return PodPlace(stage, pod.nominated)
            return PodPlace(stage, self._promises.node_of(pod, chosen, stage, now=self._now, rules=self.rules))
        self._promises.end(pod.uid)
        if pod.node is not None and pod.deadline and self._deleted.get(pod.uid) != pod.deadline:
            self._deleted[pod.uid] = pod.deadline
            heappush(self._deadlines, (pod.deadline, pod.uid))
        return PodPlace(stage, pod.node)

    def note_left(self, uid: Uid) -> Stage:
        """Note that a charge is what a pod deleted by force left; return its stage."""
        self.unusual[uid] = Stage.LINGERING
        return Stage.LINGERING

    def refresh(self, uids: Iterable[Uid]) -> None:
        """Charge pods and take their room by their stages now."""
        pods = self._charged.pods
        for record in [pods[uid] for uid in uids if uid in pods]:
            if not record.is_reserved:
                self._charged.place(record, self.place(record.pod, record.node))

    def forget(self, uid: Uid) -> None:
        """Forget a pod that is gone."""
        self._promises.end(uid)
        self._deleted.pop(uid, None)
        self.unusual.pop(uid, None)
        self.idle.discard(uid)

    # -- time

    def tick(self, now: int) -> None:
        """Set the time, in seconds of Unix time; the first time concerns every pod that depends on it."""
        is_first, self._now = not self._now, now
        self._charged.ended.tick(now)
        self.refresh([*self._promises.all(), *self._deleted] if is_first else self._due(now))

    def next_due(self) -> int | None:
        """Return when a stage or a room may change next with time alone, in seconds of Unix time; None: never."""
        times = [at for at in (self._promises.next_end(), *(at + 1 for at, _ in self._deadlines[:1])) if at is not None]
        return min(times, default=None)

    def _due(self, now: int) -> list[Uid]:
        """Return the pods whose stage or room may have changed by now, each once."""
        found = self._promises.due(now)
        while self._deadlines and self._deadlines[0][0] < now:
            deadline, uid = heappop(self._deadlines)
            if self._deleted.get(uid) == deadline:
                found.append(uid)
        return found
