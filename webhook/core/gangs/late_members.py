"""Pods of a gang that are made only once others run: judged with those, and then room is kept for them.

The room is a charge in the ledger without a pod (webhook/core/world/gang_reservations.py). The leader gives it to the
pods that come, and ends it by its time, with its gang, and where a pod inside its guaranteed share needs the room.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from webhook.core.model.names import GangId, Uid
from webhook.core.model.pod import Pod
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.world.gang_reservations import RESERVED
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World


class EndedReservations(NamedTuple):
    """Reservations of a gang that end, and whether that is because its pods did not come in time."""

    gang: GangId
    reservations: tuple[InFlightCharge, ...]
    is_late: bool


def expected_members(first: Sequence[WaitingPod], late: Sequence[Pod]) -> tuple[WaitingPod, ...]:
    """Return pods of a gang that do not exist yet as members of it, to be judged with those that do.

    They are of the team and the user of the oldest one, and in its namespace: who sent that one is charged for them.
    """
    oldest = first[0]
    created = max(member.created for member in first) + 1
    return tuple(
        replace(
            oldest,
            pod=pod._replace(
                namespace=oldest.pod.namespace,
                name=f"{oldest.pod.name}-follower-{number}",
                uid=Uid(f"{RESERVED}{oldest.uid}:{number}"),
                gang=oldest.pod.gang,
            ),
            created=created,
            text="",
            reason=None,
        )
        for number, pod in enumerate(late)
    )


def as_reservation(flight: InFlightCharge, world: World) -> InFlightCharge:
    """Return the charge of an expected pod as room that is kept for it."""
    seconds = world.policy.queue.gang_timeout_seconds
    return flight._replace(lingers=seconds, until=world.now + seconds)


def ended_reservations(
    world: World, *, is_needed: bool, is_in_view: Callable[[InFlightCharge], bool]
) -> list[EndedReservations]:
    """Return the reservations that are to end: by their time, since their gang is gone, or for a guaranteed pod.

    With `is_needed`, pods wait for room inside their guaranteed share: borrowed room that is kept for later pods is
    given back at once, since there is no pod to evict. `is_in_view`: the world shows the gang of a reservation, if
    it still is there. In an older one a gang may seem gone that has started since: then only time ends its room.
    """
    found: list[EndedReservations] = []
    for gang in world.gang_reservations.gangs():
        reservations = tuple(world.gang_reservations.of(gang))
        may_tell = all(map(is_in_view, reservations))
        is_alive = _is_alive(gang, world)
        if may_tell and not is_alive:
            found.append(EndedReservations(gang, reservations, is_late=False))
            continue
        late = tuple(reservation for reservation in reservations if reservation.until <= world.now)
        borrowed = tuple(
            reservation
            for reservation in reservations
            if is_needed and may_tell and reservation.charge.tier is Tier.PREEMPTIBLE
        )
        if late or borrowed:
            found.append(EndedReservations(gang, late or borrowed, is_late=bool(late)))
    return found


def _is_alive(gang: GangId, world: World) -> bool:
    """Whether a gang has started, or is about to: some of its pods are charged."""
    members = world.waiting.of_gang(gang)
    return world.gangs.has_started(gang) or any(world.is_assumed(member.uid) for member in members)
