"""The world without names.

A cluster without the names of its pods, namespaces and users: what decisions depend on for who may not list all.

A reader adds what they may not read themselves to a world: nodes, the pods of others with their room and charges, and
those of the queue. The pods of a team are in a namespace that stands for all of its own (`team.hidden_namespace`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from webhook.core.line.gangs import gang_in_line
from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    PODS,
    GangId,
    GpuModel,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
    User,
    exact_units,
)
from webhook.core.model.constraints import TIERS, Gang, Tier
from webhook.core.model.demand import Demand, PerDevice
from webhook.core.model.node import Autoscaler, Node
from webhook.core.model.pod import Handling, Pod, PriorityTriple, Resident
from webhook.core.quota.shares import HIDDEN, hidden_namespace
from webhook.core.tiers.tier_changes import may_rise
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

STANDING: Final = frozenset({Handling.DAEMON_SET, Handling.MIRROR})
"""Pods that come with a node."""

_DIGITS: Final = 10
_UID: Final = "hidden/"
_Amounts = tuple[tuple[ResourceName, int], ...]


class AnonymousDemand(NamedTuple):
    """A Demand; `gpus` is an exact number of GPU units, `shares_by` as in Resident."""

    gpus: str
    devices: _Amounts
    requests: _Amounts
    per_device: PerDevice | None = None
    counted: _Amounts | None = None
    shares_by: str = ""

    @property
    def demand(self) -> Demand:
        """The demand. Raises ValueError if its GPUs are no number."""
        gpus = exact_units(Fraction(self.gpus))
        return Demand(gpus, self.devices, self.requests, self.per_device, counted=self.counted)


class AnonymousPod(NamedTuple):
    """A Resident with GPUs, or a WaitingPod. Numbers are places in the lists of the AnonymousWorld, -1 for none.

    `digest` tells its reader whether it is a pod that they know, "" of a sum of pods. `user` is a number that means
    nothing elsewhere, `team` is -1 where the team has no name. `tier` of one that waits is the one that its user
    asked for, "" for none. `is_kept`: it borrows, and stays so whatever its team's share has room for.
    `gang` is a number, too, of one that waits for the others of its gang, `gang_size` how many these are to be.
    """

    digest: str
    team: int
    tier: str
    demand: int
    node: int = -1
    promised: int = -1
    created: int = 0
    user: int = -1
    handling: str = Handling.MANAGED
    is_terminating: bool = False
    deadline: int = 0
    is_backfill: bool = False
    devices: tuple[int, ...] = ()
    model: GpuModel | None = None
    priority: int = 0
    is_kept: bool = False
    gang: int = -1
    gang_size: int = 0


class AnonymousWorld(msgspec.Struct, frozen=True):
    """Nodes, pods and line of a cluster. `teams` and `demands` are what the numbers of pods point at.

    What the pods without GPUs of a node request is one pod for those that come with it, and one for all others.
    """

    nodes: tuple[Node, ...] = ()
    priority_classes: tuple[PriorityTriple, ...] = ()
    teams: tuple[TeamName, ...] = ()
    demands: tuple[AnonymousDemand, ...] = ()
    pods: tuple[AnonymousPod, ...] = ()
    waiting: tuple[AnonymousPod, ...] = ()
    autoscalers: tuple[str, ...] = ()

    @property
    def without_pods(self) -> "AnonymousWorld":
        """The same without pods."""
        return msgspec.structs.replace(self, pods=(), waiting=())

    def fill(self, world: World) -> None:
        """Add the pods that a world does not have, and the nodes to a world without any.

        Raises ValueError if a number of a pod is that of nothing.
        """
        world.autoscalers |= {each for each in Autoscaler if each in self.autoscalers}
        if not len(world.fleet):
            for node in self.nodes:
                world.set_node(node)
            for priority_class in self.priority_classes:
                world.set_priority_class(priority_class)
            world.sort_nodes()
        try:
            self._add_pods(world)
        except IndexError as cause:
            raise ValueError("an anonymous pod points at nothing") from cause

    def _add_pods(self, world: World) -> None:
        known = {digest_of(pod.uid) for pod in world.pods()} | {digest_of(pod.uid) for pod in world.waiting.all()}
        demands = [each.demand for each in self.demands]
        own = _requests_of_own(world)
        for pod in self.pods:
            demand, shares_by = demands[pod.demand], self.demands[pod.demand].shares_by
            if not pod.digest:
                mine = own[self._name(pod.node), pod.handling]
                left = ((name, amount - mine[name]) for name, amount in demand.requests)
                demand = replace(demand, requests=tuple([each for each in left if each[1] > 0]))
            if pod.digest not in known:
                world.set_pod(self._resident(pod, demand, shares_by))
        for waiting in self.waiting:
            if waiting.digest not in known:
                world.set_waiting(self._waiting(waiting, demands[waiting.demand]))

    def _resident(self, pod: AnonymousPod, demand: Demand, shares_by: str) -> Resident:
        team = None if pod.team < 0 else self.teams[pod.team]
        return Resident(
            uid=Uid(f"{_UID}{pod.digest or (pod.node, pod.handling)}"),
            namespace=Namespace(HIDDEN) if team is None else hidden_namespace(team),
            name=HIDDEN,
            demand=demand,
            node=self._name(pod.node),
            owner=None,
            team_label=team if pod.tier else None,
            tier_label=pod.tier or None,
            user=_user(pod.user),
            is_terminating=pod.is_terminating,
            promised=self._name(pod.promised),
            created=pod.created,
            devices=pod.devices,
            handling=Handling(pod.handling),
            shares_by=shares_by,
            model=pod.model,
            is_backfill=pod.is_backfill,
            deadline=pod.deadline,
            requested_tier=Tier.PREEMPTIBLE if pod.is_kept else None,
        )

    def _waiting(self, waiting: AnonymousPod, demand: Demand) -> WaitingPod:
        team = self.teams[waiting.team]
        pod = Pod(
            hidden_namespace(team),
            demand,
            name=HIDDEN,
            uid=Uid(f"{_UID}{waiting.digest}"),
            tier_label=waiting.tier or None,
            gang=_gang(waiting),
        )
        return WaitingPod(pod, team, _user(waiting.user), waiting.priority, waiting.created)

    def _name(self, number: int) -> NodeName | None:
        return None if number < 0 else self.nodes[number].name


def _requests_of_own(world: World) -> Mapping[tuple[NodeName | None, str], Counter[ResourceName]]:
    """Return what the pods without GPUs request that a world has, by node and as they are summed up."""
    own: dict[tuple[NodeName | None, str], Counter[ResourceName]] = defaultdict(Counter)
    for pod in world.pods():
        if not is_counted_alone(pod):
            own[pod.node, _summed_as(pod)].update(dict(pod.demand.requests))
    return own


def _summed_as(pod: Resident) -> str:
    return (Handling.DAEMON_SET if pod.handling in STANDING else Handling.NODE_NAME).value


def is_counted_alone(pod: Resident) -> bool:
    """Whether a pod is not only summed up: it uses GPUs, or is on no node."""
    return pod.node is None or uses_gpus(pod)


def uses_gpus(pod: Resident) -> bool:
    """Whether a pod uses GPUs."""
    return bool(pod.demand.gpus or pod.demand.devices or pod.claims)


def digest_of(uid: Uid) -> str:
    """Return what tells a pod from others to a reader who knows its UID, and says nothing to any other."""
    return sha256(uid.encode()).hexdigest()[:_DIGITS]


def _gang(waiting: AnonymousPod) -> Gang | None:
    if waiting.gang < 0:
        return None
    return Gang(GangId(f"{HIDDEN}{waiting.gang}"), HIDDEN, waiting.gang_size, is_requested=True)


def _user(number: int) -> User | None:
    return None if number < 0 else User(f"{HIDDEN}{number}")


# Makes the anonymous world of a world, in steps between which other work is done.
#
# Nothing that a tenant chooses gets in: no names, labels or annotations of pods, only numbers, and of the resources
# that they request those that nodes or policy have. Each team lists at most `MOST_WAITING` queued pods and
# `MOST_UNBOUND` without a node: what is published is for all, so none may fill it. The ledgers' sums have the charges
# of the others.


MOST_WAITING: Final = 1_000
"""Queued pods of each team that are listed, the oldest first."""

MOST_UNBOUND: Final = 1_000
"""Pods without a node of each team that are listed, those that were seen first."""

PART: Final = 32
"""Pods of one step: about 0.3 ms."""


class Anonymizer:
    """Makes one anonymous world, of the nodes and pods that are there when it is created."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes = tuple(world.fleet.nodes())
        self._pods = list(world.pods())
        in_line = (each for each in world.waiting.all() if not world.is_assumed(each.uid))  # the others are pods
        self._line = sorted(in_line, key=lambda each: each.created)
        self._numbers = {node.name: number for number, node in enumerate(self._nodes)}
        self._teams: dict[TeamName, int] = {}
        self._users: dict[User, int] = {}
        self._gangs: dict[GangId, int] = {}
        self._demands: dict[AnonymousDemand, int] = {}
        self._shown: list[AnonymousPod] = []
        self._waiting: list[AnonymousPod] = []
        self._sums: dict[tuple[int, str], Counter[ResourceName]] = defaultdict(Counter)
        self._unbound: Counter[TeamName] = Counter()
        self._resources: set[ResourceName] = {CPU, MEMORY, PODS, *world.policy.resources}

    def steps(self) -> Iterator[None]:
        """Read the world part by part; after the last one `result` has everything."""
        for number, node in enumerate(self._nodes):
            self._resources.update(node.allocatable, node.at_best)
            if not number % PART:
                yield
        for number, pod in enumerate(self._pods):
            self._note(pod)
            if not number % PART:
                yield
        listed: Counter[TeamName] = Counter()
        for number, waiting in enumerate(self._line):
            listed[waiting.team] += waiting.has_turn
            if waiting.has_turn and listed[waiting.team] <= MOST_WAITING:
                self._note_waiting(waiting)
            if not number % PART:
                yield

    def result(self) -> AnonymousWorld:
        """Return the anonymous world."""
        sums = [
            AnonymousPod(
                "", -1, "", self._demand(Demand(0, (), tuple(sorted(each.items()))), ""), node, handling=handling
            )
            for (node, handling), each in self._sums.items()
        ]
        return AnonymousWorld(
            self._nodes,
            tuple(self._world.priority_classes.values()),
            tuple(self._teams),
            tuple(self._demands),
            (*self._shown, *sums),
            tuple(self._waiting),
            tuple(sorted(self._world.autoscalers)),
        )

    def _note(self, pod: Resident) -> None:
        if not is_counted_alone(pod):
            if (node := self._number(pod.node)) >= 0:
                self._sums[node, _summed_as(pod)].update(dict(self._offered(pod.demand.requests)))
            return
        world, charge = self._world, self._world.charge_of(pod.uid)
        team = world.tenancy(pod.namespace).team_name if charge is None else charge.team
        self._unbound[team] += pod.node is None
        if pod.node is None and (self._unbound[team] > MOST_UNBOUND or not uses_gpus(pod)):
            return
        tier = pod.tier_label if charge is None or pod.tier_label not in TIERS else charge.tier  # it may be promoted
        is_shared = bool(pod.shares_by) and not pod.claims
        self._shown.append(
            AnonymousPod(
                digest_of(pod.uid),
                self._teams.setdefault(team, len(self._teams)),
                str(tier) if tier in TIERS else "",
                self._demand(pod.demand if pod.claims else pod.demand.own or pod.demand, pod.shares_by * is_shared),
                node=self._number(pod.node),
                promised=-1 if pod.node is not None else self._number(world.node_of(pod.uid)),
                created=pod.created,
                user=self._user(pod.user),
                handling=pod.handling.value,
                is_terminating=pod.is_terminating,
                deadline=pod.deadline,
                is_backfill=pod.is_backfill,
                devices=pod.devices,
                model=pod.model,
                is_kept=tier == Tier.PREEMPTIBLE and not may_rise(pod, world),
            )
        )

    def _note_waiting(self, waiting: WaitingPod) -> None:
        pod = waiting.pod
        demand = self._world.with_claims(pod).demand if pod.needs_resolution else pod.demand
        gang, number, size = gang_in_line(waiting, self._world), -1, 0
        if gang is not None and pod.gang is not None and not self._world.gangs.has_started(gang):
            number = self._gangs.setdefault(gang, len(self._gangs))
            size = max(0, pod.gang.size - self._world.gangs.others(gang))
        self._waiting.append(
            AnonymousPod(
                digest_of(waiting.uid),
                self._teams.setdefault(waiting.team, len(self._teams)),
                str(pod.requested_tier or ""),
                self._demand(demand, ""),
                created=waiting.created,
                user=self._user(waiting.user),
                priority=waiting.priority,
                gang=number,
                gang_size=size,
            )
        )

    def _number(self, node: NodeName | None) -> int:
        return -1 if node is None else self._numbers.get(node, -1)

    def _user(self, user: User | None) -> int:
        return -1 if user is None else self._users.setdefault(user, len(self._users))

    def _demand(self, demand: Demand, shares_by: str) -> int:
        made = AnonymousDemand(
            str(demand.gpus),
            demand.devices,
            self._offered(demand.requests),
            demand.per_device,
            demand.counted,
            shares_by,
        )
        return self._demands.setdefault(made, len(self._demands))

    def _offered(self, requests: tuple[tuple[ResourceName, int], ...]) -> tuple[tuple[ResourceName, int], ...]:
        """Return the requests that some node or policy knows: a tenant may make up any others."""
        return tuple([each for each in requests if each[0] in self._resources])
