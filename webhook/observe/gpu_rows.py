"""The cluster's GPUs as rows of metrics: who has them, where they are, and of what use the free ones are."""

from collections.abc import Iterable
from typing import Final

from webhook.core.explain.team_summary import summaries
from webhook.core.model.amount import ONE_GPU, Units, Unlimited
from webhook.core.model.tier import Tier
from webhook.core.placement.gpu_inventory import gpu_inventory
from webhook.core.world.world import World
from webhook.observe.table import Row

CHARGED: Final = {
    "fairgate_gpus_charged": "GPUs on the ledger by tier. Pods that never passed the gate are under `guaranteed`; team "
    "`unassigned` are namespaces that no team claims."
}
TEAMS: Final = {
    "fairgate_team_gpus_guaranteed": "GPUs that the team always gets back, by policy.",
    "fairgate_team_gpus_limit": "GPUs that the team may hold at most, by policy; +Inf where it is unlimited.",
    "fairgate_team_gpus_used": "GPUs that the team's pods hold, as far as they were seen in the cluster.",
    "fairgate_team_gpus_reserved": "GPUs of pods that were admitted and not seen yet.",
    "fairgate_team_gpus_borrowed": "GPUs that the team holds beyond its guaranteed share.",
    "fairgate_team_gpus_waiting": "GPUs of the team's pods that are on no node yet.",
}
STOCKS: Final = {
    "fairgate_gpus_capacity": "GPUs of all nodes. `model`: by the nodes' labels; `resource`: by its name in policy.",
    "fairgate_gpus_closed": "GPUs on nodes that are cordoned or not ready.",
    "fairgate_gpus_free": "Free GPUs on open nodes. A pod that was admitted holds its GPUs on the node chosen for it.",
    "fairgate_gpus_fragmented": "Free GPUs that are of no use to the pods to come, each size of pod weighed by how "
    "often it comes. Divided by the free ones it is the fragment rate.",
    "fairgate_gpus_largest_fit": "Free GPUs on the open node that has most of them: no larger pod fits now.",
    "fairgate_nodes_whole": "Open nodes all of whose GPUs are free.",
}


def charged(world: World) -> Iterable[Row]:
    """List what each team has on its ledger by tier."""
    for each in summaries(world):
        yield Row((each.team, Tier.GUARANTEED), (_gpus(each.used + each.reserved - each.preemptible),))
        yield Row((each.team, Tier.PREEMPTIBLE), (_gpus(each.preemptible),))


def teams(world: World) -> Iterable[Row]:
    """List how each team stands."""
    for each in summaries(world):
        limit = float("inf") if isinstance(each.limit, Unlimited) else each.limit
        amounts = (each.guaranteed, limit, each.used, each.reserved, each.borrowed, each.waiting)
        yield Row((each.team,), [_gpus(amount) for amount in amounts])


def stock(world: World) -> Iterable[Row]:
    """List the nodes' GPUs."""
    for each in gpu_inventory(world.fleet, world.policy):
        amounts = (each.capacity, each.closed, each.free, each.fragmented, each.largest)
        yield Row((each.model, each.resource), [*map(_gpus, amounts), each.whole_nodes])


def _gpus(units: Units | float) -> float:
    return float(units / ONE_GPU)
