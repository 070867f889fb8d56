"""Claims that name several alternatives (`firstAvailable`): the one that a pod would get now.

kube-scheduler takes on each node the first alternative that is free there. A pod is charged for the most expensive one,
and placed, and made room for, by one that nodes have.
"""

from webhook.core.devices.claims import Instead
from webhook.core.model.constraints import Constraints
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Pod, Resident
from webhook.core.world.world import World


def by_room(pod: Pod | Resident, constraints: Constraints, world: World) -> Demand:
    """Return a pod's demand with the first alternative that a node has room for; else that one could hold, else as is.

    `constraints` are those of the nodes that it may use.
    """
    resolved = world.with_claims(pod)
    if resolved.alternatives == 1:
        return resolved.demand
    fleet = world.fleet
    usable = fleet.matching(constraints) & fleet.open_bits
    numbers = range(resolved.alternatives)
    demands = [world.with_claims(pod, instead=Instead(alternative=number)).demand for number in numbers]
    for has_room in (fleet.with_room, fleet.could_hold):
        for demand in demands:
            if has_room(demand, usable):
                return demand
    return resolved.demand
