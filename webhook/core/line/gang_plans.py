"""Plans of gangs: how many pods they have, and room for late ones.

How many pods gangs have: what their pods declare, and what the object that makes them was read to say.

An object says more than its pods: which of them are made only once others run, and what those will ask for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId, TeamName, Uid
from webhook.core.model.constraints import Gang, Tier
from webhook.core.model.pod import Pod
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.waiting_pods import RESERVED, WaitingPod
from webhook.core.world.world import World

READ_SECONDS: Final = 10
"""How often the object of a gang that waits for members is read again: it may be changed."""

READS: Final = 32
READS_OF_TEAM: Final = 8
"""Objects that are read in a second, of all teams and of one: no team keeps those of others from being read."""

UNREAD_SECONDS: Final = 30
"""For how long a gang waits for its object to be read."""


class GangPlan(NamedTuple):
    """What the object that makes a gang's pods says of it, or why it says nothing (`problem`).

    `size`: so many pods that need GPUs start together, 0 where it is not known. `late` are the pods that are made only
    once those run, in the order in which they come. `source` names the object. `counts_all`: the size counts pods that
    need no GPUs, too. `is_temporary`: it may be read in a moment.
    """

    size: int = 0
    late: tuple[Pod, ...] = ()
    source: str = ""
    problem: str = ""
    counts_all: bool = False
    is_temporary: bool = False


class GangSize(NamedTuple):
    """How many pods start together (0 where it is not known), which come later, and which pods it counts."""

    number: int
    late: tuple[Pod, ...] = ()
    counts_all: bool = True


class GangPlans:
    """The plans of queued gangs. Times are in seconds of Unix time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plans: dict[GangId, GangPlan] = {}
        self._read_at: dict[GangId, int] = {}
        self._new: dict[GangId, None] = {}  # to be read, and never read yet
        self._second = 0
        self._reads: Counter[TeamName | None] = Counter()

    def forget(self, gang: GangId) -> None:
        """Forget a gang that has no queued pods."""
        self._plans.pop(gang, None)
        self._read_at.pop(gang, None)
        self._new.pop(gang, None)

    def want(self, gang: GangId) -> None:
        """Have the object of a gang read soon, if it has one and that was not read."""
        if gang not in self._read_at and self._described(gang) is not None:
            self._new[gang] = None

    def learn(self, gang: GangId, plan: GangPlan) -> bool:
        """Set what the object of a gang says; return whether that is news."""
        before = self._plans.get(gang)
        if plan.problem and before is not None and not before.problem:
            return False  # what it said before still holds
        self._plans[gang] = plan
        return before != plan

    def plan(self, gang: GangId) -> GangPlan | None:
        """Return what the object of a gang says; None where it was not read."""
        return self._plans.get(gang)

    def is_to_be_read(self, gang: GangId, *, waited: int) -> bool:
        """Whether a gang waits for its object to be read."""
        plan = self._plans.get(gang)
        is_unread = plan is None or plan.is_temporary
        return is_unread and waited <= UNREAD_SECONDS and self._described(gang) is not None

    def size(self, gang: GangId) -> GangSize:
        """Return the size of a gang by its object, else what its pods declare: where they disagree, the largest."""
        plan = self._plans.get(gang)
        if plan is not None and plan.size:
            return GangSize(plan.size, plan.late, plan.counts_all)
        return GangSize(self.declared(gang))

    def declared(self, gang: GangId) -> int:
        """Return the largest size that the pods of a gang declare; 0 where none declares any."""
        members = self._world.waiting.of_gang(gang)
        return max((pod.pod.gang.size for pod in members if pod.pod.gang is not None), default=0)

    def unread(self, gangs: Iterable[GangId], *, now: int) -> list[WaitingPod]:
        """Return one pod of each gang whose object is to be read now: new ones, and once a second all of these."""
        due = [*self._new]
        if now != self._second:
            self._second = now
            self._reads.clear()
            due = [gang for gang in gangs if now - self._read_at.get(gang, 0) >= self._pause(gang)]
        found: list[WaitingPod] = []
        for gang in sorted(due, key=lambda each: self._read_at.get(each, 0)):
            pod = self._described(gang)
            if pod is None or not self._may_read(pod):
                continue
            self._reads.update((pod.team, None))
            self._read_at[gang] = now
            self._new.pop(gang, None)
            found.append(pod)
        return found

    def has_unread(self, *, now: int) -> bool:
        """Whether the object of a gang was never read, and may be read now."""
        if now != self._second or not self._new:
            return bool(self._new)
        return self._reads[None] < READS and any(
            pod is not None and self._may_read(pod) for pod in map(self._described, self._new)
        )

    def _pause(self, gang: GangId) -> int:
        plan = self._plans.get(gang)
        return 1 if plan is not None and plan.is_temporary else READ_SECONDS

    def _may_read(self, pod: WaitingPod) -> bool:
        return self._reads[pod.team] < READS_OF_TEAM and self._reads[None] < READS

    def _described(self, gang: GangId) -> WaitingPod | None:
        """Return a pod of a gang that has an object; None where it has none."""
        pod = next(iter(self._world.waiting.of_gang(gang)), None)
        found: Gang | None = None if pod is None else pod.pod.gang
        return pod if found is not None and found.is_described else None


# Pods of a gang that are made only once others run: judged with those, and then room is kept for them.
#
# The room is a charge in the ledger without a pod (webhook/core/world/waiting_pods.py). The leader gives it to the
# pods that come, and ends it by its time, with its gang, and where a pod inside its guaranteed share needs the room.


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
