"""Builders of simulations: a small cluster, teams, tasks of so many GPUs."""

from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.task import DEFAULT_SETTINGS, Task
from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    UNLIMITED,
    GangId,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
)
from webhook.core.model.constraints import Gang
from webhook.core.model.demand import demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Pod
from webhook.core.model.policy import BUILT_IN_RESOURCES, Defaults, OnLimit, OnNoRoom, Policy, ReclaimRules, Share, Team
from webhook.core.world.world import World

GPU = ResourceName("nvidia.com/gpu")
QUEUES = Defaults(on_limit=OnLimit.QUEUE, on_no_room=OnNoRoom.QUEUE)
T0 = 1_700_000_000


def team(name, guaranteed, limit=None, **more):
    share = Share(guaranteed * ONE_GPU, UNLIMITED if limit is None else limit * ONE_GPU)
    return Team(TeamName(name), namespaces=(name,), gpus=share, **more)


def policy_of(*teams, defaults=QUEUES, reclaim=None, **more):
    return Policy(teams=teams, defaults=defaults, reclaim=reclaim or ReclaimRules(), hash="test", **more)


def world_of(policy, *, nodes=1, gpus=8):
    world = World(policy)
    for number in range(nodes):
        room = {CPU: 64_000, MEMORY: 1 << 40, PODS: 110, GPU: gpus}
        world.set_node(Node(NodeName(f"node-{number}"), room))
    world.sort_nodes()
    return world


def task(name, team, gpus, *, at=0, seconds=100, gang=None, size=0, tier=None, cpu=1000):
    requests = {CPU: cpu, MEMORY: 1 << 30, PODS: 1} | ({GPU: gpus} if gpus else {})
    member = None if gang is None else Gang(GangId(f"{team}/{gang}"), gang, size, is_requested=True)
    pod = Pod(Namespace(team), demand_of(requests, BUILT_IN_RESOURCES), name=name, gang=member, tier_label=tier)
    return Task(name, pod, TeamName(team), T0 + at, seconds)


def simulated(world, *tasks, settings=DEFAULT_SETTINGS):
    """The records of a run by the names of tasks, and the simulation."""
    simulation = Simulation(world, tasks, settings=settings)
    simulation.run()
    return {record.task.name: record for record in simulation.records}, simulation


def waits(records):
    return {name: record.wait_seconds for name, record in records.items()}
