"""The domains that a gang may be placed in, and what each holds now: for people who ask why it waits."""

from typing import Final, NamedTuple

from webhook.core.admission.assessment import Assessment
from webhook.core.admission.domain_rules import kinds_of, request_of
from webhook.core.model.domain_request import levels_to_try
from webhook.core.placement.domain_search import DomainRoom, FreeRoom, domain_rooms
from webhook.core.world.world import World

MAX_SHOWN: Final = 10
"""Domains of a level that are shown: there are as many as nodes."""


class DomainStep(NamedTuple):
    """One level of domains: the best of them, how many there are, and how many have room for all pods."""

    key: str
    rooms: tuple[DomainRoom, ...]
    number: int
    enough: int


class DomainSteps(NamedTuple):
    """The levels of a gang, the smallest first, for so many `pods` of it: those that wait, and the one in question.

    `required` is the key of the domain that it requires, "" if it needs none.
    """

    pods: int
    required: str
    levels: tuple[DomainStep, ...]


def domain_steps(assessed: Assessment, world: World) -> DomainSteps | None:
    """Return the domains of a pod's gang; None if it has none."""
    pod = assessed.pod
    if pod.gang is None or assessed.early_decision is not None or world.gangs.has_started(pod.gang.id):
        return None
    request = request_of(pod.gang, world)
    levels = levels_to_try(request, world.policy.topology.levels)
    if not levels:
        return None
    members = {each.uid: each.pod for each in world.waiting.of_gang(pod.gang.id)}
    members[pod.uid] = pod
    kinds = kinds_of(members.values(), assessed.team.name, world)
    found = []
    for level in levels:
        rooms = domain_rooms(world.fleet, level, kinds, FreeRoom(world.fleet))
        shown = (*rooms.enough, *rooms.small)[:MAX_SHOWN]
        found.append(DomainStep(level.key, shown, rooms.number, rooms.enough_number))
    required = request.key if request is not None and request.is_required else ""
    return DomainSteps(len(members), required, tuple(found))
