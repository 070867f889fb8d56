"""TeamRow, ModelRow, UserRow, DepartmentRow.

The workloads that are to keep some replicas, as rows: how many they have, and how many of these may go. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core.admission.pools import membership
from webhook.core.explain.node_rows import DeviceGroup, DeviceRow, HeldPart, NodeRow, node_row
from webhook.core.explain.pod_rows import (
    BypassedPod,
    IdlePods,
    UnusualPods,
    bypassed_pods,
    idle_pods,
    unusual_pods,
)
from webhook.core.model.amounts import (
    PODS,
    DepartmentName,
    GpuModel,
    Limit,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Units,
    Unlimited,
    WorkloadName,
    exact_units,
    format_limit,
    natural_sort_key,
    plural,
)
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Department, Share, Team
from webhook.core.quota.shares import DepartmentUsage
from webhook.core.quota.usage import TeamUsage, department_ledger, department_of
from webhook.core.reclaim.reclaim_pods import is_protected_by
from webhook.core.reclaim.snapshot import rising
from webhook.core.world.minimums import Replicas
from webhook.core.world.waiting_pods import InLine
from webhook.core.world.world import World


class MinimumRow(NamedTuple):
    """A workload with a minimum, as `namespace/Kind/name`, and its replicas."""

    workload: WorkloadName
    team: TeamName
    replicas: Replicas


def _everything(_namespace: Namespace) -> bool:
    return True


def minimum_rows(world: World, *, sees: Callable[[Namespace], bool] = _everything) -> list[MinimumRow]:
    """Return the workloads with a minimum in the namespaces that are seen: those below it first, then by name."""
    rows = (row for row in _rows(world) if sees(Namespace(row.workload.partition("/")[0])))
    return sorted(rows, key=lambda row: (not row.replicas.is_below, natural_sort_key(row.workload)))


def workloads_below(world: World) -> Counter[TeamName]:
    """Return how many workloads of each team have fewer pods ready than their minimum."""
    return Counter(row.team for row in _rows(world) if row.replicas.is_below)


def minimums_text(world: World) -> str:
    """Return how many workloads have a minimum, are below it, and have one that counts for nothing; "" for none.

    It names teams alone: who reads it may not know the names of workloads.
    """
    teams, below, useless = Counter[TeamName](), Counter[TeamName](), Counter[TeamName]()
    for _, team, replicas in _rows(world):
        teams[team] += 1
        if replicas.is_below:
            below[team] += 1
        if not replicas.has_surplus:
            useless[team] += 1
    parts = [f"{teams.total()} with a minimum"]
    if below:
        parts.append(f"{below.total()} below it ({_counted_teams(below)})")
    if useless:
        parts.append(f"{useless.total()} with no more pods than that, which has no effect ({_counted_teams(useless)})")
    return "workloads: " + "; ".join(parts) if teams else ""


def _rows(world: World) -> Iterator[MinimumRow]:
    """Yield the workloads whose replicas are of use one by one: gangs say how many start, and may end one by one."""
    for workload in world.minimums.workloads():
        if (replicas := world.minimums.of(workload)) is not None and not replicas.is_gang:
            yield MinimumRow(workload, world.tenancy(Namespace(workload.partition("/")[0])).team_name, replicas)


def _counted_teams(counts: Counter[TeamName]) -> str:
    return ", ".join(f"{team} {count}" for team, count in sorted(counts.items()))


# Teams and departments with their shares and what they hold: one row for every surface that shows them. Pure.
#
# `used` is everything that is charged. Of that, `reserved` is of pods that are not in the cluster yet, `preemptible`
# may be evicted, and `beyond_share` is what exceeds the guaranteed share: a team within its share may have preemptible
# pods by choice.


NOTHING_IN_LINE: Final = InLine(0, 0)
_AMOUNTS: Final = ("guaranteed", "limit", "used", "reserved", "preemptible", "beyond_share", "waiting")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """The share and usage of one GPU model, of a team or a department."""

    model: GpuModel
    guaranteed: int
    limit: Limit
    used: Units
    preemptible: Units


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What a team or a department has, in GPU units.

    `waiting` is of pods without a node, `lingering` the part of `reserved` that pods deleted by force left. `queued`
    are the queued pods, which are not charged; those in `starting` are, and keep their gate until their room is there.
    """

    guaranteed: int
    limit: Limit
    used: Units
    reserved: Units
    preemptible: Units
    waiting: Units
    lingering: Units
    models: tuple[ModelRow, ...] = ()
    queued: InLine = NOTHING_IN_LINE
    starting: InLine = NOTHING_IN_LINE

    @property
    def beyond_share(self) -> Units:
        """What is held beyond the guaranteed share."""
        return max(0, self.used - self.guaranteed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRow(UsageRow):
    """A team; `idle` is what its pods hold and do not use."""

    name: TeamName
    department: DepartmentName | None = None
    holders: tuple[tuple[str, Units], ...] = ()
    idle: Units = 0

    @property
    def ledger(self) -> TeamName:
        """The name of its ledger."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentRow(UsageRow):
    """A department, with what the teams below it have together."""

    name: DepartmentName
    parent: DepartmentName | None
    weight: int | Fraction

    @property
    def ledger(self) -> TeamName:
        """The name of its ledger."""
        return department_ledger(self.name)


def amounts(row: UsageRow | ModelRow) -> dict[str, Any]:
    """Return the amounts of a row by name, as exact texts."""
    return {name: format_limit(getattr(row, name)) for name in _AMOUNTS if hasattr(row, name)}


def team_rows(world: World, *, holders: int = 0) -> Iterator[TeamRow]:
    """Yield every team: those of policy, and others that were charged or have queued pods."""
    known = dict.fromkeys(team.name for team in world.policy.teams)
    others = sorted({*world.usage_by_team(), *world.waiting.teams()} - known.keys())
    for name in (*known, *others):
        yield team_row(name, world, holders=holders)


def team_row(name: TeamName, world: World, *, holders: int = 0) -> TeamRow:
    """Return a team with its largest holders; one that policy does not know is guaranteed nothing."""
    team, usage = world.policy.team(name) or Team(name), world.usage(name)
    return TeamRow(
        name=name,
        department=team.departments[0].name if team.departments else None,
        holders=tuple(usage.largest_holders(holders)) if holders else (),
        guaranteed=team.gpus.guaranteed,
        limit=team.gpus.limit,
        used=usage.total,
        reserved=usage.reserved,
        preemptible=usage.preemptible,
        waiting=usage.waiting,
        lingering=usage.lingering,
        models=_models(team.models, usage),
        queued=world.waiting.uncharged(name),
        starting=world.waiting.charged(name),
    )


def department_rows(world: World) -> Iterator[DepartmentRow]:
    """Yield every department of policy."""
    for usage in world.departments():
        yield _department(usage, world)


def ledger_row(name: TeamName, world: World) -> TeamRow | DepartmentRow:
    """Return a team, or a department by the name of its ledger."""
    if (department := department_of(name)) is None:
        return team_row(name, world)
    level = next((each for each in world.departments() if each.department.name == department), None)
    return _department(level or DepartmentUsage(Department(department)), world)


def _department(usage: DepartmentUsage, world: World) -> DepartmentRow:
    own = usage.department
    teams = list(_teams_in_line(own.name, world))
    return DepartmentRow(
        name=own.name,
        parent=own.parent,
        weight=own.weight,
        guaranteed=own.gpus.guaranteed,
        limit=own.gpus.limit,
        used=usage.total,
        reserved=usage.reserved,
        preemptible=usage.preemptible,
        waiting=usage.waiting,
        lingering=usage.lingering,
        models=_models(own.models, usage),
        queued=_sum(map(world.waiting.uncharged, teams)),
        starting=_sum(map(world.waiting.charged, teams)),
    )


def _models(shares: Mapping[GpuModel, Share], usage: TeamUsage | DepartmentUsage) -> tuple[ModelRow, ...]:
    return tuple(
        ModelRow(model, share.guaranteed, share.limit, used, used - usage.guaranteed_model(model))
        for model, share in shares.items()
        for used in (usage.model(model),)
    )


def _sum(parts: Iterable[InLine]) -> InLine:
    found = list(parts)
    return InLine(sum(each.pods for each in found), exact_units(sum(each.gpus for each in found)))


def _teams_in_line(department: DepartmentName, world: World) -> Iterator[TeamName]:
    """Yield the teams below a department that have queued pods."""
    for name in world.waiting.teams():
        team = world.policy.team(name)
        if team is not None and any(each.name == department for each in team.departments):
            yield name


# The status of a world: teams, the GPUs of every node, and what would fit now. Pure.


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Free pieces of one resource and model.

    `largest` is the largest pod that a node could take now, `at_once` the number of such pods; `guaranteed_pod` and
    `guaranteed_at_once` are the same for a guaranteed pod if all borrowing pods were reclaimed, as far as shares are
    not used: `claimants` are the teams that could claim one. `closed` pieces are free on nodes that take no pods,
    `held` ones on nodes where they are kept for waiting pods. Only GPUs count, cpu and memory do not.
    """

    resource: ResourceName
    model: GpuModel
    pieces: int
    free: int
    largest: int
    at_once: int
    guaranteed_pod: int
    guaranteed_at_once: int
    closed: int
    held: int
    whole_nodes: int
    claimants: tuple[TeamName, ...] = ()

    @property
    def now_text(self) -> str:
        """How many of the largest pods fit now."""
        return _pods_text(self.at_once, self.largest)

    @property
    def reclaim_text(self) -> str:
        """How many of the largest guaranteed pods one team could claim."""
        return _pods_text(self.guaranteed_at_once, self.guaranteed_pod)


def _pods_text(number: int, size: int) -> str:
    return f"{plural(number, 'pod')} of {size}" if size else "none"


@dataclass(frozen=True, slots=True)
class Board:
    """The whole status; `unusual` has pods whose charge may surprise, `idle` those that do not use their GPUs.

    `minimums` are the workloads that are to keep some replicas, `bypassed` the pods without a decision.
    """

    teams: tuple[TeamRow, ...]
    nodes: tuple[NodeRow, ...]
    free: tuple[FreeRow, ...]
    departments: tuple[DepartmentRow, ...] = ()
    unusual: tuple[UnusualPods, ...] = ()
    idle: tuple[IdlePods, ...] = ()
    minimums: tuple[MinimumRow, ...] = ()
    bypassed: tuple[BypassedPod, ...] = ()

    def of_namespaces(self, namespaces: Collection[str], world: World) -> "Board":
        """Return the same with the teams of these namespaces alone; the nodes stay."""
        names = {world.tenancy(Namespace(each)).team_name for each in namespaces}
        teams = [team for team in world.policy.teams if team.name in names]
        above = {department.name for team in teams for department in team.departments}
        return replace(
            self,
            teams=tuple(row for row in self.teams if row.name in names),
            departments=tuple(row for row in self.departments if row.name in above),
            unusual=tuple(unusual_pods(world, sees=lambda namespace: namespace in namespaces)),
            bypassed=tuple(each for each in self.bypassed if each.pod.namespace in namespaces),
            idle=tuple(row for row in self.idle if row.team in names),
            minimums=tuple(row for row in self.minimums if row.workload.partition("/")[0] in namespaces),
        )

    def tree(self) -> Iterator[tuple[int, DepartmentRow | TeamRow]]:
        """Yield departments and teams with their depth, what is below a department after it; its departments first."""
        yield from self._below(None, 0)

    def _below(self, parent: DepartmentName | None, depth: int) -> Iterator[tuple[int, DepartmentRow | TeamRow]]:
        for row in self.departments:
            if row.parent == parent:
                yield depth, row
                yield from self._below(row.name, depth + 1)
        yield from ((depth, team) for team in self.teams if team.department == parent)


def shares_of(world: World, *, holders: int = 3) -> Board:
    """Return teams and departments alone; each team with its largest holders."""
    idle = tuple(idle_pods(world))
    of_team = {each.team: each.gpus for each in idle}
    teams = [
        replace(row, idle=of_team.get(row.name, 0))
        for row in team_rows(world, holders=holders)
        if row.used or row.queued.pods or world.policy.team(row.name) is not None
    ]
    return Board(tuple(teams), (), (), departments=tuple(department_rows(world)), idle=idle)


def board_of(world: World, *, holders: int = 3) -> Board:
    """Return the status of a world; each team with its largest holders."""
    by_node: dict[NodeName, list[Resident]] = defaultdict(list)
    for pod in world.pods():
        if pod.node is not None and pod.demand.devices:
            by_node[pod.node].append(pod)
    rows = [node_row(node, by_node.get(node.name, ()), world) for node in world.fleet.nodes()]
    nodes = sorted((row for row in rows if row.groups), key=lambda row: natural_sort_key(row.name))
    return replace(
        shares_of(world, holders=holders),
        nodes=tuple(nodes),
        free=tuple(_free(nodes, world)),
        unusual=tuple(unusual_pods(world)),
        minimums=tuple(minimum_rows(world)),
        bypassed=tuple(bypassed_pods(world)),
    )


def _free(nodes: list[NodeRow], world: World) -> Iterator[FreeRow]:
    found: dict[tuple[GpuModel, ResourceName], list[tuple[NodeRow, DeviceGroup]]] = defaultdict(list)
    for row in nodes:
        for group in row.groups:
            found[row.model, group.resource].append((row, group))
    staying, reach = _staying(world), _reach_of_teams(world)
    for (model, resource), groups in sorted(found.items()):
        usable = [(row, group) for row, group in groups if row.is_open]
        sizes = [_largest(group) for row, group in usable if world.fleet.free(row.name, PODS) > 0]
        reclaimed = [
            (world.fleet.bit(row.name), _largest(_without_borrowers(row.name, group, staying))) for row, group in usable
        ]
        claim = _claim_of(reclaimed, reach, model, world.policy.resources.get(resource, 0), world)
        largest = max(sizes, default=0)
        yield FreeRow(
            resource=resource,
            model=model,
            pieces=sum(group.pieces for _, group in groups),
            free=sum(group.free for _, group in usable),
            largest=largest,
            at_once=sizes.count(largest) if largest else 0,
            guaranteed_pod=claim.pieces,
            guaranteed_at_once=claim.at_once,
            closed=sum(group.free for row, group in groups if row.state),
            held=sum(group.free for row, group in groups if row.is_held and not row.state),
            whole_nodes=sum(1 for _, group in usable if not (group.used or group.promised)),
            claimants=claim.teams,
        )


class _Claim(NamedTuple):
    """The largest pod that any team could have guaranteed on one node by reclaim, how many, and which teams could."""

    pieces: int = 0
    at_once: int = 0
    teams: tuple[TeamName, ...] = ()


def _claim_of(
    reclaimed: Sequence[tuple[int, int]], reach: Mapping[int, list[Team]], model: GpuModel, weight: Units, world: World
) -> _Claim:
    """Return what shares that are not used claim of nodes, each with its bit and the largest pod after reclaim."""
    best = _Claim()
    for bits, teams in reach.items():
        sizes = [pieces for bit, pieces in reclaimed if bit & bits]
        room = max(sizes, default=0)
        for team in teams if room and weight else ():
            left = _unused_share(team, model, world)
            pieces = min(room, left // weight, room if isinstance(team.per_pod, Unlimited) else team.per_pod // weight)
            if pieces <= 0 or pieces < best.pieces:
                continue
            before = best if pieces == best.pieces else _Claim(pieces)
            number = min(sum(size // pieces for size in sizes), left // (pieces * weight))
            best = _Claim(pieces, max(before.at_once, number), (*before.teams, team.name))
    return best


def _unused_share(team: Team, model: GpuModel, world: World) -> Units:
    """Return what a team has left of its guaranteed share on a model, and of its departments' limits after reclaim."""
    usage, share = world.usage(team.name), team.models.get(model)
    left = [team.gpus.guaranteed - usage.guaranteed]
    if share is not None:
        left.append(share.guaranteed - usage.guaranteed_model(model))
    limits = ((each.department.gpus.limit, each.guaranteed) for each in usage.levels)
    left += [limit - taken for limit, taken in limits if not isinstance(limit, Unlimited)]
    return max(0, min(left))


def _reach_of_teams(world: World) -> Mapping[int, list[Team]]:
    """Return the teams that have a share, by the nodes of the pools that are open to them."""
    found: dict[int, list[Team]] = defaultdict(list)
    pools = [(pool, world.fleet.matching(membership(pool))) for pool in world.policy.pools]
    for team in world.policy.teams:
        bits = 0 if pools else -1
        for pool, members in pools:
            bits |= members if pool.teams is None or team.name in pool.teams else 0
        if team.gpus.guaranteed:
            found[bits].append(team)
    return found


def _largest(group: DeviceGroup) -> int:
    """Return the largest pod that the group could take now."""
    if group.is_packed:
        return min(group.free, max((device.pieces - device.used for device in group.devices), default=0))
    return group.free


_Staying = Counter[tuple[NodeName, str, ResourceName]]


def _staying(world: World) -> _Staying:
    """Return the pieces of pods that reclaim does not evict, by node, pod and resource: protected, or to be promoted.

    These are inside the share of their team, such as a replica that a minimum keeps instead of another one. Pods whose
    names are hidden share a name, so their pieces are counted.
    """
    rules, rises = world.policy.reclaim, rising(world)
    pods = world.pods() if rules.protected_namespaces or rules.protected_selectors else ()
    kept = {pod.uid: pod for pod in pods if is_protected_by(rules, pod.namespace, pod.labels)}
    kept |= {uid: pod for uid in rises if (pod := world.pod(uid)) is not None}
    found: _Staying = Counter()
    for pod in kept.values():
        if (node := pod.node) is not None and pod.tier is not Tier.GUARANTEED:
            found.update({(node, f"{pod.namespace}/{pod.name}", name): pieces for name, pieces in pod.demand.held})
    return found


def _without_borrowers(node: NodeName, group: DeviceGroup, staying: _Staying) -> DeviceGroup:
    """Return a group of a node without what reclaim could take of it."""
    left: dict[str, int] = {}

    def stays(allocation: HeldPart) -> HeldPart:
        if allocation.tier is Tier.GUARANTEED:
            return allocation
        known = left.setdefault(allocation.pod, staying[node, allocation.pod, group.resource])
        left[allocation.pod] = max(0, known - allocation.pieces)
        return replace(allocation, pieces=min(known, allocation.pieces))

    kept = (tuple(map(stays, device.allocations)) for device in group.devices)
    devices = tuple(DeviceRow(device.pieces, held) for device, held in zip(group.devices, kept, strict=True))
    return replace(group, devices=devices)
