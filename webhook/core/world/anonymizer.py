"""Makes the anonymous world of a world, in steps between which other work is done.

Nothing that a tenant chooses gets in: no names, labels or annotations of pods, only numbers, and of the resources that
they request those that nodes or policy have. Each team lists at most `MOST_WAITING` pods in line and `MOST_UNBOUND`
without a node: what is published is for all, so none may fill it. The ledgers' sums have the charges of the others.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from webhook.core.model.demand import Demand
from webhook.core.model.names import CPU, MEMORY, PODS, NodeName, ResourceName, TeamName, User
from webhook.core.model.pod import Resident
from webhook.core.model.tier import TIERS
from webhook.core.world.anonymous_world import (
    STANDING,
    AnonymousDemand,
    AnonymousPod,
    AnonymousSum,
    AnonymousWaiting,
    AnonymousWorld,
    digest_of,
    is_counted_alone,
    uses_gpus,
)
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

MOST_WAITING: Final = 1_000
"""Pods in line of each team that are listed, the oldest first."""

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
        self._demands: dict[AnonymousDemand, int] = {}
        self._shown: list[AnonymousPod] = []
        self._waiting: list[AnonymousWaiting] = []
        self._sums: dict[tuple[int, bool], Counter[ResourceName]] = defaultdict(Counter)
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
        sums = (
            AnonymousSum(node, standing, tuple(sorted(each.items()))) for (node, standing), each in self._sums.items()
        )
        return AnonymousWorld(
            self._nodes,
            tuple(self._world.priority_classes.values()),
            tuple(self._teams),
            tuple(self._demands),
            tuple(self._shown),
            tuple(sums),
            tuple(self._waiting),
            tuple(sorted(self._world.autoscalers)),
        )

    def _note(self, pod: Resident) -> None:
        if not is_counted_alone(pod):
            if (node := self._number(pod.node)) >= 0:
                self._sums[node, pod.handling in STANDING].update(dict(self._offered(pod.demand.requests)))
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
            )
        )

    def _note_waiting(self, waiting: WaitingPod) -> None:
        pod = waiting.pod
        demand = self._world.with_claims(pod).demand if pod.needs_resolution else pod.demand
        self._waiting.append(
            AnonymousWaiting(
                digest_of(waiting.uid),
                self._teams.setdefault(waiting.team, len(self._teams)),
                self._demand(demand, ""),
                waiting.created,
                waiting.priority,
                str(pod.requested_tier or ""),
                self._user(waiting.user),
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
