"""What a forecast begins with: the present world, read once, from which each sample makes a world of its own."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple

from webhook.core.admission.assessment import assess
from webhook.core.explain.likely_start import Run
from webhook.core.explain.line_places import places
from webhook.core.model.amount import exact_units
from webhook.core.model.names import UNASSIGNED, Uid
from webhook.core.model.pod import Pod, Requester, Resident
from webhook.core.model.run_time import NO_RUN_TIME, RunTime
from webhook.core.waiting.waiting_entries import queued_pod
from webhook.core.world.hidden_usage import is_sum_of_team
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.simulation.forecast.run_times import Likeness

MAX_LINE: Final = 1_000
"""Pods of the line that are played; those behind follow at the pace of these."""

_MAX_KINDS: Final = 256
"""Kinds of pods whose nodes are looked for; those of further ones are taken to be all."""

_EVERYWHERE: Final = -1

_NO_REQUESTER: Final = Requester("")


class Running(NamedTuple):
    """A pod that holds GPUs, and since when it runs."""

    resident: Resident
    since: int
    likeness: Likeness
    run_time: RunTime


class Waiting(NamedTuple):
    """A pod in line."""

    pod: WaitingPod
    likeness: Likeness


class Present:
    """The pods, the line and the nodes of a world at a moment.

    `places` are those of all pods in line, `line` has the first of them, without gangs that are `incomplete`. Demands
    are resolved: devices are counted, and no claim is looked up again. Pods that were admitted and are on no node yet
    run from now on, on the first node that was chosen for them.
    """

    def __init__(self, world: World, runs: Iterable[Run], *, now: int) -> None:
        self.world = world
        self.now = now
        known = {run.uid: run for run in runs if not run.ended}
        self.running = [
            _running(resident, known.get(resident.uid), world, now)
            for resident in world.pods()
            if resident.uid not in world.waiting and not is_sum_of_team(resident)
        ]
        found = places(world)
        self.places = {uid: place.overall for uid, place in found.items()}
        first = sorted(found, key=lambda uid: self.places[uid])[:MAX_LINE]
        pods = (world.waiting.get(uid) for uid in first)
        self.line = [_waiting(pod, world) for pod in pods if pod is not None and _is_whole(pod, world)]
        self.incomplete = {pod.uid for pod in world.waiting.all() if not _is_whole(pod, world)}

    def age(self, running: Running) -> int:
        """Return for how many seconds a pod has run."""
        return self.now - running.since

    def world_of_its_own(self) -> World:
        """Return a new world with the same nodes, pods and line; room that nodes keep for a moment is open in it."""
        world, before = World(self.world.policy), self.world
        world.autoscalers = before.autoscalers
        world.tick(self.now)
        for namespace in before.namespaces():
            world.set_namespace(namespace)
        for priority_class in before.priority_classes.values():
            world.set_priority_class(priority_class)
        for node in before.fleet.nodes():
            world.set_node(node.unheld)
        world.sort_nodes()
        world.minimums.copy_scalers(before.minimums)
        for each in self.running:
            world.set_pod(each.resident)
        for waiting in self.line:
            world.set_waiting(waiting.pod)
        return world

    @cached_property
    def shared_world(self) -> World:
        """A world for one sample after the other: each sets it back."""
        return self.world_of_its_own()

    @cached_property
    def slots(self) -> dict[Uid, int]:
        """The slots of the nodes that each pod of the line may use, as worlds of their own number them."""
        world, known = self.shared_world, dict[object, int]()
        found = {}
        for waiting, _ in self.line:
            queued = queued_pod(waiting, world)
            key = queued.team, queued.kind
            if key not in known and len(known) < _MAX_KINDS:
                known[key] = _slots(waiting, world)
            found[waiting.uid] = known.get(key, _EVERYWHERE)
        return found

    @cached_property
    def kinds(self) -> int:
        """How many kinds of pods wait: one of each is judged."""
        return len({(each.likeness, each.pod.pod.demand, each.pod.pod.constraints) for each in self.line})

    @property
    def size(self) -> int:
        """What a world of its own consists of."""
        return len(self.world.fleet) + len(self.running) + len(self.line)


def _waiting(waiting: WaitingPod, world: World) -> Waiting:
    """Return a pod in line, with its demand resolved."""
    pod = waiting.pod
    if pod.needs_resolution:
        pod = pod._replace(demand=world.with_claims(pod).demand, claims=(), shares_by="", slices=())
    likeness = Likeness(waiting.team, exact_units(pod.demand.gpus), waiting.user)
    return Waiting(replace(waiting, pod=pod), likeness)


def _slots(waiting: WaitingPod, world: World) -> int:
    assessed = assess(waiting.pod, _NO_REQUESTER, world).of_user(waiting.user)
    slots = 0
    for pool in assessed.pools.allowed:
        slots |= world.fleet.matching(world.pools.joined(assessed.pod.constraints, pool))
    return world.fleet.with_capacity(assessed.pod.demand, slots)


def _is_whole(waiting: WaitingPod, world: World) -> bool:
    """Whether a pod is alone, or all members of its gang have come."""
    gang = waiting.pod.gang
    return gang is None or world.gangs.has_started(gang.id) or len(world.waiting.of_gang(gang.id)) >= gang.size


def _running(resident: Resident, run: Run | None, world: World, now: int) -> Running:
    charge = world.charge_of(resident.uid)
    team = UNASSIGNED if charge is None else charge.team
    user = resident.user if charge is None else charge.user
    since = min(now, run.started if run is not None else resident.created or now)
    found = resident._replace(node=world.node_of(resident.uid), claims=(), shares_by="", slices=())
    said = NO_RUN_TIME if run is None else run.run_time
    return Running(found, since, Likeness(team, exact_units(resident.demand.gpus), user), said)


def as_created(resident: Resident) -> Pod:
    """Return what the controller of a pod would create again, as far as the world knows it."""
    return Pod(resident.namespace, resident.demand, name=resident.name, owner=resident.owner, replica=resident.replica)
