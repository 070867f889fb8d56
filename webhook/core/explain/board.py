"""The status of a world: teams, the GPUs of every node, and what would fit now. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from webhook.core.explain.idle_pods import IdlePods, idle_pods
from webhook.core.explain.minimum_rows import MinimumRow, minimum_rows
from webhook.core.explain.node_rows import DeviceGroup, HeldPart, NodeRow, node_row
from webhook.core.explain.team_rows import DepartmentRow, TeamRow, department_rows, team_rows
from webhook.core.explain.unusual_pods import UnusualPods, unusual_pods
from webhook.core.model.names import PODS, DepartmentName, GpuModel, NodeName, ResourceName
from webhook.core.model.pod import Resident
from webhook.core.model.text import natural_sort_key
from webhook.core.model.tier import Tier
from webhook.core.reclaim.reclaim_pod import is_protected_by
from webhook.core.world.world import World


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Free pieces of one resource and model.

    `largest` is the largest pod that a node could take now, `at_once` the number of such pods; `guaranteed_pod` and
    `guaranteed_at_once` are the same for a guaranteed pod if all borrowing pods were reclaimed. `closed` pieces are
    free on nodes that take no pods, `held` ones on nodes where they are kept for waiting pods. Only GPUs count, cpu and
    memory do not.
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


@dataclass(frozen=True, slots=True)
class Board:
    """The whole status; `unusual` has pods whose charge may surprise, `idle` those that do not use their GPUs.

    `minimums` are the workloads that are to keep some replicas.
    """

    teams: tuple[TeamRow, ...]
    nodes: tuple[NodeRow, ...]
    free: tuple[FreeRow, ...]
    departments: tuple[DepartmentRow, ...] = ()
    unusual: tuple[UnusualPods, ...] = ()
    idle: tuple[IdlePods, ...] = ()
    minimums: tuple[MinimumRow, ...] = ()

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
    )


def _free(nodes: list[NodeRow], world: World) -> Iterator[FreeRow]:
    found: dict[tuple[GpuModel, ResourceName], list[tuple[NodeRow, DeviceGroup]]] = defaultdict(list)
    for row in nodes:
        for group in row.groups:
            found[row.model, group.resource].append((row, group))
    protected = _protected(world)
    for (model, resource), groups in sorted(found.items()):
        usable = [(row, group) for row, group in groups if row.is_open]
        sizes = [_largest(group) for row, group in usable if world.fleet.free(row.name, PODS) > 0]
        reclaimed = [_largest(_without_borrowers(group, protected)) for _, group in usable]
        largest, guaranteed_pod = max(sizes, default=0), max(reclaimed, default=0)
        yield FreeRow(
            resource=resource,
            model=model,
            pieces=sum(group.pieces for _, group in groups),
            free=sum(group.free for _, group in usable),
            largest=largest,
            at_once=sizes.count(largest) if largest else 0,
            guaranteed_pod=guaranteed_pod,
            guaranteed_at_once=reclaimed.count(guaranteed_pod) if guaranteed_pod else 0,
            closed=sum(group.free for row, group in groups if row.state),
            held=sum(group.free for row, group in groups if row.is_held and not row.state),
            whole_nodes=sum(1 for _, group in usable if not (group.used or group.promised)),
        )


def _largest(group: DeviceGroup) -> int:
    """Return the largest pod that the group could take now."""
    if group.is_packed:
        return min(group.free, max((device.pieces - device.used for device in group.devices), default=0))
    return group.free


def _protected(world: World) -> frozenset[str]:
    """Return the pods that reclaim never evicts, by namespace and name."""
    rules = world.policy.reclaim
    pods = world.pods() if rules.protected_namespaces or rules.protected_selectors else ()
    return frozenset(f"{pod.namespace}/{pod.name}" for pod in pods if is_protected_by(rules, pod.namespace, pod.labels))


def _without_borrowers(group: DeviceGroup, protected: frozenset[str]) -> DeviceGroup:
    """Return the group without the pods that reclaim could evict."""

    def stays(allocation: HeldPart) -> bool:
        return allocation.tier is Tier.GUARANTEED or allocation.pod in protected

    devices = tuple(replace(device, allocations=tuple(filter(stays, device.allocations))) for device in group.devices)
    return replace(group, devices=devices, shut=0)
