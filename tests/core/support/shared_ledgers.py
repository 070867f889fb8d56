"""A model of etcd and of replicas with several ledgers, some shared by the teams of a department.

As in `replicas.py`, the replicas are real (World, LedgerHomes, LedgerSession); only what carries their messages
is modelled, one step at a time. Each replica has a policy of its own: an edit reaches one after the other.
"""

from collections import Counter
from dataclasses import dataclass, field

from tests.core.support.departments import department
from tests.core.support.make import gpus, pod, policy, resident, team, world
from tests.core.support.replicas import Event
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import EMPTY_LEDGER_RECORD, ENDED, Alive, Evidence, InFlightCharge, LedgerRecord
from webhook.core.quota.limits import Account, Request, violations
from webhook.core.world.ledger_homes import LedgerHomes

TEAMS = (TeamName("team-a"), TeamName("team-b"))
TEAM_LIMIT = 2
DEPARTMENT_LIMIT = 3


def policy_of(*homes: str | None):
    """The policy that puts each team into a department, or into none."""
    levels = {name: department(name, limit_=DEPARTMENT_LIMIT) for name in homes if name}
    teams = (
        team(name, guaranteed=0, limit_=TEAM_LIMIT, departments=(levels[home],) if home else ())
        for name, home in zip(TEAMS, homes, strict=True)
    )
    return policy(*teams, departments=tuple(levels.values()), hash="/".join(map(str, homes)))


TOGETHER, APART = policy_of("left", "left"), policy_of(None, None)
POLICIES = (TOGETHER, APART, policy_of("left", None), policy_of("left", "right"), policy_of("right", "right"))


@dataclass
class Etcd:
    """The truth: pods and ledger objects under one growing version. A UID is `TEAM/NUMBER`."""

    version: int = 1
    pods: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    objects: dict[TeamName, tuple[int, LedgerRecord]] = field(default_factory=dict)
    history: list[tuple[int, TeamName, LedgerRecord]] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)

    def create(self, uid: str) -> None:
        self.version += 1
        self.pods[uid] = self.version
        self.events.append(Event(self.version, uid, is_there=True))

    def delete(self, uid: str) -> None:
        self.version += 1
        del self.pods[uid]
        self.events.append(Event(self.version, uid, is_there=False))

    def swap(self, ledger: TeamName, base: int, record: LedgerRecord) -> bool:
        if base != self.objects.get(ledger, (0, None))[0]:
            return False
        self.version += 1
        self.objects[ledger] = self.version, record
        self.history.append((self.version, ledger, record))
        return True

    @property
    def held(self) -> Counter[str]:
        """The GPUs of each team: of pods, and of those that may still be created."""
        return Counter(uid.partition("/")[0] for uid in self.pods.keys() | self.promised)


@dataclass(frozen=True)
class Write:
    """A write in flight."""

    ledger: TeamName
    base: int
    record: LedgerRecord
    uids: tuple[str, ...] = ()


class Replica:
    """One process: its world and policy, its ledgers, and how far its two watches have come."""

    homes_type: type[LedgerHomes] = LedgerHomes

    def __init__(self, etcd: Etcd, policy_=TOGETHER, homes_type: type[LedgerHomes] = LedgerHomes) -> None:
        self.etcd = etcd
        self.world = world(policy_, nodes=[])
        self.reached = 0
        self.homes = homes_type(self.world, lambda: self.reached)
        self.writes: dict[TeamName, Write] = {}
        self.seen = etcd.version
        self.relist()
        for ledger in etcd.objects:
            self.read(ledger)

    # -- its watches

    def relist(self) -> None:
        gone = {each.uid for each in self.world.pods() if each.uid not in self.etcd.pods}
        for uid, version in self.etcd.pods.items():
            self.world.set_pod(made(uid, version))
        for uid in gone:
            if isinstance(self.world.evidence(uid), Alive):
                self.world.remove_pod(uid)
        self.reached = self.etcd.version

    def next_event(self) -> None:
        event = next((event for event in self.etcd.events if event.version > self.reached), None)
        if event is None:
            return
        if event.is_there:
            self.world.set_pod(made(event.uid, event.version))
        else:
            self.world.remove_pod(Uid(event.uid))
        self.reached = event.version

    def all_events(self) -> None:
        while any(event.version > self.reached for event in self.etcd.events):
            self.next_event()

    def next_object(self) -> None:
        found = next((each for each in self.etcd.history if each[0] > self.seen), None)
        if found is not None:
            self.seen = found[0]
            self.homes.session(found[1]).see(found[2], version=found[0], identity=found[1])

    def all_objects(self) -> None:
        while any(version > self.seen for version, _, _ in self.etcd.history):
            self.next_object()

    def read(self, ledger: TeamName) -> None:
        version, record = self.etcd.objects.get(ledger, (0, EMPTY_LEDGER_RECORD))
        if version:
            self.homes.session(ledger).see(record, version=version, identity=ledger)
        else:
            self.homes.session(ledger).lose()

    # -- its writes

    def ask(self, name: TeamName, uids: list[str]) -> None:
        """Judge requests of a team in its ledger, or send what must be written before."""
        ledger = self.homes.ledger_of(name)
        if not self._may_write(ledger):
            return
        session = self.homes.session(ledger)
        is_ready = session.is_safe(self.reached) and self.homes.is_ready(ledger)
        if not is_ready or not self.homes.takes(ledger, name):
            for each in self.homes.prepare_team(name) | self.homes.prepare(ledger):
                self.send(each)
            return
        session.drop_released(self.reached)
        admitted = []
        for uid in uids:
            account = Account(self.world.policy.team(name), self.world.usage(name), None, pod(1))
            if not violations(Request(gpus(1)), account):
                flight = InFlightCharge(made(uid), Charge(name, Tier.PREEMPTIBLE, gpus(1)), None)
                session.charge(flight)
                admitted.append(uid)
        self.send(ledger, tuple(admitted))

    def tidy(self, now: float) -> None:
        """What the leader does."""
        for ledger in self.homes.tidy(now):
            self.send(ledger)

    def fold(self, ledger: TeamName) -> None:
        self.send(ledger)

    def _may_write(self, ledger: TeamName) -> bool:
        if ledger in self.writes:
            return False
        if self.homes.session(ledger).is_stale:
            self.read(ledger)
        return True

    def send(self, ledger: TeamName, uids: tuple[str, ...] = ()) -> None:
        session = self.homes.session(ledger)
        if self._may_write(ledger) and (uids or session.must_write or session.can_compact):
            self.writes[ledger] = Write(ledger, session.version, session.next_record(), uids)

    def finish(self, ledger: TeamName, *, is_heard: bool = True) -> None:
        write = self.writes.pop(ledger, None)
        if write is None:
            return
        session = self.homes.session(ledger)
        if not self.etcd.swap(ledger, write.base, write.record):
            session.discard_draft()
            return
        session.see(write.record, version=self.etcd.objects[ledger][0], identity=ledger)
        for uid in write.uids:
            if is_heard:
                self.etcd.promised.add(uid)
            else:
                session.withdraw(Uid(uid))

    def finish_all(self) -> None:
        for ledger in [*self.writes]:
            self.finish(ledger)

    def hear_nothing(self, ledger: TeamName) -> Write:
        """Stop waiting for a write that may still succeed."""
        write = self.writes.pop(ledger)
        session = self.homes.session(ledger)
        session.discard_draft(is_in_doubt=True)
        for uid in write.uids:
            session.withdraw(Uid(uid))
        return write

    def evidence(self, uid: str) -> Evidence:
        return Alive(self.etcd.pods[uid]) if uid in self.etcd.pods else ENDED

    @property
    def sessions(self):
        return [self.homes.session(ledger) for ledger in {*self.etcd.objects, *TEAMS}]


def made(uid: str, version: int = 0):
    return resident(1, uid=uid, namespace=uid.partition("/")[0], tier="preemptible", version=version)
