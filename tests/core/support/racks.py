"""Worlds of racks: nodes of eight GPUs with labels rack and zone, and gangs that ask for one of them."""

from tests.core.support.make import GPU, node, policy, resident, team, world
from tests.core.support.waiting import member
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import DomainRequest
from webhook.core.model.policy import OnLimit, OnNoRoom, TopologyRules

QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}
ONE_RACK = DomainRequest("rack", is_required=True)
A_RACK = DomainRequest("rack")
ONE_ZONE = DomainRequest("zone", is_required=True)
TEAM_A = TeamName("team-a")


def racks(*, levels=(), held_as="guaranteed", guaranteed=1000, limit_=1000, **sizes):
    """A world of racks; of each, how many GPUs are free on each node. `held_as` is the tier of what holds the others.

    A rack whose name begins with a digit is in that zone, others are in zone 0.
    """
    teams = (team(guaranteed=guaranteed, limit_=limit_, **QUEUES), team("team-b", guaranteed=1000, limit_=None))
    nodes, residents = [], []
    for rack, free in sizes.items():
        zone = rack[1] if rack[1:2].isdigit() else "0"
        for each in free:
            name = f"n{len(nodes):02}"
            nodes.append(node(name, gpus=8, labels={"rack": rack, "zone": zone, "host": name}))
            if each < 8:
                residents.append(resident(8 - each, uid=f"on-{name}", namespace="team-b", tier=held_as, node=name))
    return world(policy(*teams, topology=TopologyRules(tuple(levels))), nodes=nodes, residents=residents)


def gang(count, size=8, *, name="g", domain=ONE_RACK, **more):
    """The waiting members of a gang that asks for a domain."""
    return [member(f"{name}-{number:02}", name, size, size=count, domain=domain, **more) for number in range(count)]


def racks_of(place, names):
    """The racks of nodes."""
    return {place.fleet.get(name).labels["rack"] for name in names}


def free_gpus(place, rack):
    """What is free in a rack."""
    return sum(place.fleet.free(each.name, GPU) for each in place.fleet.nodes() if each.labels["rack"] == rack)
