"""The cluster's GPUs as rows of metrics: by team, by model, and how usable the free ones are."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from webhook.core.explain.minimum_rows import workloads_below
from webhook.core.explain.team_rows import UsageRow, department_rows, team_rows
from webhook.core.explain.unusual_pods import unusual_pods
from webhook.core.model.amount import ONE_GPU, Units, Unlimited
from webhook.core.model.names import GpuModel
from webhook.core.model.node import NO_MODEL
from webhook.core.model.tier import Tier
from webhook.core.placement.gpu_inventory import gpu_inventory
from webhook.core.world.pod_stages import UNUSUAL as STAGES
from webhook.core.world.world import World
from webhook.observe.table import Row

CHARGED: Final = {
    "fairgate_gpus_charged": "GPUs on the ledger by tier. Pods that bypassed the webhook are under `guaranteed`; team "
    "`unassigned` are namespaces without a team."
}
TEAMS: Final = {
    "fairgate_team_gpus_guaranteed": "GPUs that the team always gets back, by policy.",
    "fairgate_team_gpus_limit": "GPUs that the team may hold at most, by policy; +Inf if it is unlimited.",
    "fairgate_team_gpus_used": "GPUs charged to the team, those that are reserved included.",
    "fairgate_team_gpus_reserved": "Those of the used GPUs whose pods are not in the cluster yet, or keep their gate.",
    "fairgate_team_gpus_lingering": "Those of the reserved GPUs that pods deleted by force may still use.",
    "fairgate_team_gpus_preemptible": "Those of the used GPUs whose pods may be evicted.",
    "fairgate_team_gpus_beyond_share": "Those of the used GPUs that exceed the team's guaranteed share.",
    "fairgate_team_gpus_waiting": "GPUs of the team's pods that are not on a node yet.",
}
DEPARTMENTS: Final = {
    "fairgate_department_gpus_guaranteed": "GPUs that the department always gets back, by policy.",
    "fairgate_department_gpus_limit": "GPUs that its teams may hold together at most; +Inf if it is unlimited.",
    "fairgate_department_gpus_used": "GPUs charged to its teams, those that are reserved included.",
    "fairgate_department_gpus_reserved": "Those of the used GPUs whose pods are not in the cluster yet, or keep their "
    "gate.",
    "fairgate_department_gpus_lingering": "Those of the reserved GPUs that pods deleted by force may still use.",
    "fairgate_department_gpus_preemptible": "Those of the used GPUs whose pods may be evicted.",
    "fairgate_department_gpus_beyond_share": "Those of the used GPUs that exceed the department's guaranteed share.",
    "fairgate_department_gpus_waiting": "GPUs of its teams' pods that are not on a node yet.",
}
NODES: Final = {
    "fairgate_gpus_capacity": "GPUs of all nodes. `model`: from the nodes' labels; `resource`: its name in the policy.",
    "fairgate_gpus_closed": "GPUs on nodes that are cordoned, not ready or in maintenance, as far as they offer them.",
    "fairgate_gpus_free": "Free GPUs on schedulable nodes that are not held for waiting pods. An admitted pod holds "
    "its GPUs on the node chosen for it.",
    "fairgate_gpus_fragmented": "Free GPUs that future pods cannot use, each pod size weighted by how often it is "
    "requested. Divided by the free GPUs it is the fragmentation rate.",
    "fairgate_gpus_largest_fit": "Free GPUs on the schedulable node that has most of them: no larger pod fits now.",
    "fairgate_nodes_whole": "Schedulable nodes whose GPUs are all free.",
}

MAINTENANCE: Final = {
    "fairgate_gpus_in_maintenance": "GPUs of nodes whose driver an operator upgrades now, or whose GPUs it "
    "repartitions, as they were before or are now. Only models with any."
}

REJECTING: Final = {
    "fairgate_node_rejecting_teams": "Teams whose last pods this node rejected: it gets none of their pods now, or one "
    "at a time. Only nodes that reject pods."
}

UNUSUAL: Final = {
    "fairgate_unusual_pods_gpus": "GPUs of pods whose charge may surprise, by `stage`: stalled (charged, and something "
    "else than room keeps them off every node), overdue (deleted, and their nodes have not ended them in time), lost "
    "(the same on lost nodes, so they count for no limit)."
}

BELOW: Final = {
    "fairgate_workloads_below_minimum": "Workloads of the team with fewer pods ready than their minimum of replicas."
}


def charged_rows(world: World) -> Iterable[Row]:
    """Yield each team's charged GPUs by tier."""
    for each in team_rows(world):
        yield Row((each.name, Tier.GUARANTEED), (_gpus(each.used - each.preemptible),))
        yield Row((each.name, Tier.PREEMPTIBLE), (_gpus(each.preemptible),))


def amounts_of_teams(world: World) -> Iterable[Row]:
    """Yield each team's share and usage."""
    for each in team_rows(world):
        yield Row((each.name,), _amounts(each))


def amounts_of_departments(world: World) -> Iterable[Row]:
    """Yield each department's share and usage."""
    for each in department_rows(world):
        yield Row((each.name,), _amounts(each))


def _amounts(of: UsageRow) -> list[float]:
    limit = float("inf") if isinstance(of.limit, Unlimited) else of.limit
    used = (of.used, of.reserved, of.lingering, of.preemptible, of.beyond_share, of.waiting)
    return [_gpus(each) for each in (of.guaranteed, limit, *used)]


def node_rows(world: World) -> Iterable[Row]:
    """Yield the nodes' GPUs by model and resource."""
    for each in gpu_inventory(world.fleet, world.policy):
        amounts = (each.capacity, each.closed, each.free, each.fragmented, each.largest)
        yield Row((each.model, each.resource), [*map(_gpus, amounts), each.whole_nodes])


def maintenance_rows(world: World) -> Iterable[Row]:
    """Yield the GPUs of nodes in maintenance by model, as the nodes were before or are now, the larger."""
    found: dict[GpuModel, Units] = defaultdict(int)
    for name in world.absent_nodes.maintained:
        now, before = world.fleet.get(name), world.absent_nodes.get(name)
        states = [each for each in (now if before else now and now.recovered, before) if each is not None]
        units = [each.gpus(world.policy.resources) for each in states]
        found[next((each.model for each in states if each.model), NO_MODEL)] += max(units, default=0)
    yield from (Row((model,), (_gpus(units),)) for model, units in found.items())


def rejecting_rows(world: World) -> Iterable[Row]:
    """Yield the nodes that reject pods."""
    for node, number in Counter(
        node for node, _ in {(each.node, each.team) for each in world.rejecting_nodes.closed()}
    ).items():
        yield Row((node,), (number,))


def unusual_rows(world: World) -> Iterable[Row]:
    """Yield the GPUs of pods at unusual stages, 0 where there are none."""
    found = {each.stage: each.gpus for each in unusual_pods(world)}
    for stage in sorted(STAGES):
        yield Row((stage,), (_gpus(found.get(stage, 0)),))


def below_rows(world: World) -> Iterable[Row]:
    """Yield how many workloads of each team are below their minimum of replicas."""
    found = workloads_below(world)
    for team in dict.fromkeys([*(team.name for team in world.policy.teams), *sorted(found)]):
        yield Row((team,), (found[team],))


def _gpus(units: Units | float) -> float:
    return float(units / ONE_GPU)
