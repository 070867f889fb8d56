"""Queued pods, members of gangs.

The members of gangs that exist and do not wait in the queue, kept by events.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from webhook.core.model.amounts import GangId, NodeName, TeamName, Uid, Units, User, add_to, drop_member
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.reasons import Reason
from webhook.core.quota.charges import InFlightCharge


class GangMembers:
    """Pods by gang: those with GPUs, by which a gang has started, and those without, which only count as come.

    Pods that are being deleted are left out: a workload that is created again under its name is another gang.
    """

    def __init__(self) -> None:
        self._gang_of: dict[Uid, GangId] = {}
        self._started: dict[GangId, set[Uid]] = {}
        self._others: dict[GangId, set[Uid]] = {}

    def has_started(self, gang: GangId) -> bool:
        """Whether a pod of the gang that needs GPUs exists and does not wait in the queue."""
        return gang in self._started

    def first(self, gang: GangId) -> Uid | None:
        """Return a pod by which the gang has started; None where it has not."""
        return min(self._started.get(gang, ()), default=None)

    def others(self, gang: GangId) -> int:
        """Return how many pods of the gang exist that need no GPUs."""
        return len(self._others.get(gang, ()))

    def set(self, pod: Resident) -> None:
        """Add or update a pod."""
        if pod.gang is None and pod.uid not in self._gang_of:
            return
        self.discard(pod.uid)
        if pod.gang is not None and not pod.is_terminating:
            table = self._started if pod.demand.gpus or pod.claims else self._others
            table.setdefault(pod.gang, set()).add(pod.uid)
            self._gang_of[pod.uid] = pod.gang

    def discard(self, uid: Uid) -> None:
        """Remove a pod; one that is in no gang changes nothing."""
        gang = self._gang_of.pop(uid, None)
        if gang is None:
            return
        for table in (self._started, self._others):
            members = table.get(gang)
            if members is not None:
                members.discard(uid)
                if not members:
                    del table[gang]


# Room that is kept for pods of gangs that have started, and that are made only once the first of them run.
#
# A reservation is a charge in the ledger without a pod, so it counts in every replica. It ends when the pod comes that
# it is for, and by its time in any case.


RESERVED: Final = "reserved:"
"""Begins the UID of a reservation, which no pod has."""


class GangReservations:
    """The reservations that the ledger lists, by gang; kept by the world."""

    def __init__(self) -> None:
        self._by_gang: dict[GangId, dict[Uid, InFlightCharge]] = {}
        self._gang_of: dict[Uid, GangId] = {}

    def __contains__(self, gang: GangId) -> bool:
        return gang in self._by_gang

    def gangs(self) -> Iterable[GangId]:
        """Return the gangs that have reservations."""
        return [*self._by_gang]

    def of(self, gang: GangId) -> Sequence[InFlightCharge]:
        """Return the reservations of a gang."""
        return [*self._by_gang.get(gang, {}).values()]

    def fitting(self, gang: GangId, gpus: Units) -> InFlightCharge | None:
        """Return a reservation of a gang for a pod of so many GPU units; None where none is so large.

        It is the smallest that is large enough.
        """
        fitting = [reservation for reservation in self.of(gang) if reservation.charge.gpus >= gpus]
        return min(fitting, key=lambda reservation: (reservation.charge.gpus, reservation.pod.uid), default=None)

    def set(self, flight: InFlightCharge) -> None:
        """Add a charge, if it is a reservation."""
        gang = flight.pod.gang
        if flight.until and gang is not None:
            self._by_gang.setdefault(gang, {})[flight.pod.uid] = flight
            self._gang_of[flight.pod.uid] = gang

    def discard(self, uid: Uid) -> None:
        """Remove a charge; one that is no reservation changes nothing."""
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            reservations = self._by_gang[gang]
            del reservations[uid]
            if not reservations:
                del self._by_gang[gang]


# The pods that wait in the queue: created with Fairgate's scheduling gate, and charged nothing until they are released.


EXPECTED_SECONDS: Final = 40
"""For how long a pod that was queued counts without being seen: kube-apiserver ends a request after 34 s."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits in the queue, as the watch shows it.

    `pod` is what its user asked for: without a decision, with the tier label that the user wrote. `team` is the team
    whose line it is in. `created` is in seconds of Unix time, `version` the resourceVersion at which it was read.
    `text` is its annotation fairgate.dev/waiting, and `reason` the same as facts, None where they cannot be read.
    `problem` says why it can no longer be read, "" if it can: its
    owner changed it while it waited. Then `pod` has only its name, and the pod keeps its place without a turn.
    `keeps_room`: reclaim takes back borrowed GPUs under its limits for it, which no borrowing pod may have meanwhile.
    `gang_whole` is the number of pods with which its gang is whole and kept out by borrowers alone, 0 if it is not.
    `holds` are the values of the taint of held nodes that the evictor made it tolerate.
    """

    pod: Pod
    team: TeamName
    user: User | None = None
    priority: int = 0
    created: int = 0
    version: str = ""
    text: str = ""
    reason: Reason | None = None
    is_terminating: bool = False
    problem: str = ""
    keeps_room: bool = False
    gang_whole: int = 0
    holds: tuple[str, ...] = ()

    @property
    def uid(self) -> Uid:
        """Its UID."""
        return self.pod.uid

    @property
    def is_held(self) -> bool:
        """Whether another controller's gate holds it, so that it is not judged yet."""
        return bool(self.pod.foreign_gates)

    @property
    def has_turn(self) -> bool:
        """Whether it is to start when its turn comes."""
        return not (self.is_held or self.is_terminating or self.problem)


class InLine(NamedTuple):
    """Some waiting pods of a team: their number, and the GPU units that their containers ask for."""

    pods: int
    gpus: Units


class WaitingPods:
    """Waiting pods by UID and by team, and those that were let in and are not seen yet.

    `on_change` and `on_pod` are called with the UID of each pod that changed, `on_kept` with a team whose pods ask for
    other amounts, or keep other room by `keeps_room`; a charged pod keeps none (`is_charged`), since its charge has it.
    `wanted` are the nodes for which some wait that could not start for lack of room when they were last judged, None
    for all nodes: back-fill there must stay evictable. `expected` are pods of gangs that are made only once others of
    them run, and are judged with those.
    """

    def __init__(self) -> None:
        self.on_change: Callable[[Uid], None] = _ignore
        self.on_pod: Callable[[Uid], None] = _ignore
        self.on_kept: Callable[[TeamName], None] = _ignore_team
        self.is_charged: Callable[[Uid], bool] = _is_not
        self.wanted: frozenset[NodeName] | None = frozenset()
        self.expected: dict[Uid, WaitingPod] = {}
        self._by_team: dict[TeamName, dict[Uid, WaitingPod]] = {}
        self._pods: dict[Uid, WaitingPod] = {}
        self._gpus: dict[TeamName, Units] = {}
        self._by_gang: dict[GangId, dict[Uid, WaitingPod]] = {}
        self._expected: OrderedDict[Uid, tuple[TeamName, int]] = OrderedDict()  # the first to expire first
        self._expected_of: dict[TeamName, int] = {}
        self._keeping: dict[TeamName, dict[Uid, Units]] = {}
        self._charged: dict[TeamName, dict[Uid, Units]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def wants(self, node: NodeName | None) -> bool:
        """Whether some wait for room on a node; for None, on any."""
        if self.wanted is None:
            return True
        return bool(self.wanted) if node is None else node in self.wanted

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def get(self, uid: Uid) -> WaitingPod | None:
        """Return a waiting pod; None where it does not wait."""
        return self._pods.get(uid)

    def member(self, uid: Uid) -> WaitingPod | None:
        """Return a waiting pod, or one that is expected of a gang; None where there is no such pod."""
        return self._pods.get(uid) or self.expected.get(uid)

    def all(self) -> Iterable[WaitingPod]:
        """Return all waiting pods, those that are held by others' gates included."""
        return self._pods.values()

    def teams(self) -> Iterable[TeamName]:
        """Return the teams with waiting pods."""
        return self._by_team.keys()

    def of(self, team: TeamName) -> Iterable[WaitingPod]:
        """Return a team's waiting pods."""
        return self._by_team.get(team, _NO_PODS).values()

    def of_gang(self, gang: GangId) -> Collection[WaitingPod]:
        """Return the waiting members of a gang."""
        return self._by_gang.get(gang, _NO_PODS).values()

    def count(self, team: TeamName) -> int:
        """Return the length of a team's line, with the pods that were let in and are not seen yet."""
        return len(self._by_team.get(team, _NO_PODS)) + self._expected_of.get(team, 0)

    def next_place(self, team: TeamName) -> int:
        """Return the place of the next pod of a team; those that are charged already are ahead of no other."""
        return self.count(team) - len(self._charged.get(team, _NO_UNITS)) + 1

    def is_in(self, uid: Uid) -> bool:
        """Whether a pod counts in its team's line already, seen or not."""
        return uid in self._pods or uid in self._expected

    def size(self, team: TeamName) -> int:
        """Return the number of a team's waiting pods that were seen."""
        return len(self._by_team.get(team, _NO_PODS))

    def gpus(self, team: TeamName) -> Units:
        """Return the GPU units that the containers of a team's waiting pods ask for."""
        return self._gpus.get(team, 0)

    def charged(self, team: TeamName) -> InLine:
        """Return those of a team's waiting pods that are charged: they keep their gate while their room is made."""
        charged = self._charged.get(team, _NO_UNITS)
        return InLine(len(charged), sum(charged.values()))

    def uncharged(self, team: TeamName) -> InLine:
        """Return those of a team's waiting pods that wait for their turn."""
        charged = self.charged(team)
        return InLine(self.size(team) - charged.pods, self.gpus(team) - charged.gpus)

    def kept(self, team: TeamName) -> Units:
        """Return the GPU units for which a team's waiting pods keep room."""
        return sum(self._keeping.get(team, _NO_UNITS).values())

    def keeping(self) -> Iterable[WaitingPod]:
        """Return the waiting pods that keep room."""
        return [pod for uids in self._keeping.values() for uid in uids if (pod := self._pods.get(uid)) is not None]

    def has_line(self, team: TeamName) -> bool:
        """Whether a pod of the team waits for its turn."""
        return team in self._expected_of or any(pod.has_turn for pod in self.of(team))

    def set(self, pod: WaitingPod, *, now: int = 0) -> None:
        """Add or update a waiting pod.

        One that another controller held joins the queue when the last foreign gate goes, behind those that were created
        by `now`: its owner could hold back any number of old pods.
        """
        self._drop_expected(pod.uid)
        before = self._pods.get(pod.uid)
        if before is not None and not pod.is_held and (before.is_held or before.created > pod.created):
            pod = replace(pod, created=max(pod.created, now + 1 if before.is_held else before.created))
        if before is not None and (before.team != pod.team or before.pod.gang != pod.pod.gang):
            self._remove(before)
            before = None
        self._pods[pod.uid] = pod
        self._by_team.setdefault(pod.team, {})[pod.uid] = pod
        change = pod.pod.demand.gpus - (0 if before is None else before.pod.demand.gpus)
        self._gpus[pod.team] = self._gpus.get(pod.team, 0) + change
        if change:
            self.on_kept(pod.team)
        if pod.pod.gang is not None:
            self._by_gang.setdefault(pod.pod.gang.id, {})[pod.uid] = pod
        self.keep_room(pod.uid)
        self.on_change(pod.uid)
        self.on_pod(pod.uid)

    def keep_room(self, uid: Uid) -> None:
        """Keep the room that a pod is to have now: it changed, or was charged, or its charge ended."""
        if (pod := self._pods.get(uid)) is not None:
            is_charged = self.is_charged(uid)
            keeps = pod.keeps_room and pod.has_turn and not is_charged
            self._keep(pod.team, uid, pod.pod.demand.gpus if keeps else 0)
            _set_units(self._charged, pod.team, uid, pod.pod.demand.gpus if is_charged else 0)

    def discard(self, uid: Uid) -> None:
        """Remove a pod that no longer waits; one that does not wait changes nothing."""
        self._drop_expected(uid)
        if (pod := self._pods.get(uid)) is not None:
            self._remove(pod)
            self.on_change(uid)
            self.on_pod(uid)

    def expect(self, uid: Uid, team: TeamName, *, now: int) -> None:
        """Count a pod that was let into the queue until the watch shows it."""
        if uid not in self._pods:
            self._drop_expected(uid)
            self._expected[uid] = (team, now + EXPECTED_SECONDS)
            add_to(self._expected_of, team, 1)

    def tick(self, now: int) -> None:
        """Forget the pods that were let in and can no longer come."""
        while self._expected and (first := next(iter(self._expected.items())))[1][1] <= now:
            self._drop_expected(first[0])

    def _drop_expected(self, uid: Uid) -> None:
        if (kept := self._expected.pop(uid, None)) is not None:
            add_to(self._expected_of, kept[0], -1)

    def _remove(self, pod: WaitingPod) -> None:
        del self._pods[pod.uid]
        self._keep(pod.team, pod.uid, 0)
        _set_units(self._charged, pod.team, pod.uid, 0)
        self._gpus[pod.team] -= pod.pod.demand.gpus
        drop_member(self._by_team, pod.team, pod.uid)
        if pod.team not in self._by_team:
            del self._gpus[pod.team]
        self.on_kept(pod.team)
        if pod.pod.gang is not None:
            drop_member(self._by_gang, pod.pod.gang.id, pod.uid)

    def _keep(self, team: TeamName, uid: Uid, gpus: Units) -> None:
        if _set_units(self._keeping, team, uid, gpus):
            self.on_kept(team)


def _set_units(index: dict[TeamName, dict[Uid, Units]], team: TeamName, uid: Uid, gpus: Units) -> bool:
    """Set the units of a pod, 0 for none; return whether they changed."""
    found = index.get(team, _NO_UNITS)
    if found.get(uid, 0) == gpus:
        return False
    if gpus:
        index.setdefault(team, {})[uid] = gpus
    else:
        drop_member(index, team, uid)
    return True


_NO_UNITS: Final[dict[Uid, Units]] = {}
_NO_PODS: Final[dict[Uid, WaitingPod]] = {}


def _ignore(_uid: Uid) -> None:
    """Do nothing."""


def _is_not(_uid: Uid) -> bool:
    """Return that no pod is charged."""
    return False


def _ignore_team(_team: TeamName) -> None:
    """Do nothing."""
