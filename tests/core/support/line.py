"""A line on a world: teams whose pods wait, and who of them starts next."""

from tests.core.support.make import node, policy, team, world
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.starting.starts import AssumedStarts

LIMITED = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


def place_for(*teams, nodes=4, residents=(), **more):
    return world(
        policy(*(teams or (team(**LIMITED), team("team-b", **LIMITED))), **more),
        nodes=[node(f"n{number}") for number in range(nodes)],
        residents=list(residents),
    )


def due(place, count=100, *, now=0, starts=None):
    turns = (starts or AssumedStarts(place)).due(now=now, count=count)
    return [turn.waiting.pod.name for turn in turns]
