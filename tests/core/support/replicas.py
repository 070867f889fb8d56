"""A model of etcd and of the replicas around it: objects with compare-and-swap, watches that lag, creations that fail.

The replicas are real: World and LedgerSession. Only the transport of their messages is modeled, one step at a time, so
that a test may stop anywhere, do anything else first, and continue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.core.support.make import gpus, policy, resident, team, world
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import EMPTY_LEDGER_RECORD, ENDED, Alive, Evidence, InFlightCharge, LedgerRecord
from webhook.core.world.ledger_session import LedgerSession

A = TeamName("team-a")
LIMIT = 2


def name_of(uid: str) -> str:
    """Pods of the UIDs `x/0`, `x/1`, … have the name `x`."""
    return uid.partition("/")[0]


@dataclass(frozen=True)
class Event:
    """A change of a pod: it came or it went."""

    version: int
    uid: str
    is_there: bool


@dataclass
class Etcd:
    """The state: pods and one ledger object, with one increasing version."""

    version: int = 1
    pods: dict[str, int] = field(default_factory=dict)  # uid -> version at which it came
    events: list[Event] = field(default_factory=list)
    record: LedgerRecord = EMPTY_LEDGER_RECORD
    record_version: int = 0
    records: list[tuple[int, LedgerRecord]] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)  # allowed by us, and neither created nor given up yet

    def create(self, uid: str) -> None:
        """Create a pod, unless there is one of its name."""
        if name_of(uid) in map(name_of, self.pods):
            return
        self.version += 1
        self.pods[uid] = self.version
        self.events.append(Event(self.version, uid, is_there=True))

    def give_up(self, uid: str) -> None:
        """Fail the creation of an allowed pod."""

    def delete(self, uid: str) -> None:
        self.version += 1
        del self.pods[uid]
        self.events.append(Event(self.version, uid, is_there=False))

    def swap(self, base: int, record: LedgerRecord) -> bool:
        """Write the object if it is still the one that was read."""
        if base != self.record_version:
            return False
        self.version += 1
        self.record, self.record_version = record, self.version
        self.records.append((self.version, record))
        return True

    @property
    def held(self) -> int:
        """GPUs of existing pods, and of those that may still be created: one at a time of each name."""
        return len(set(map(name_of, self.pods.keys() | self.promised)))


@dataclass(frozen=True)
class Write:
    """A write in flight."""

    base: int
    record: LedgerRecord
    uids: tuple[str, ...]


class Replica:
    """One process: its world, its ledger session, and how far its two watches have come."""

    def __init__(self, etcd: Etcd, ledger_session: Callable[..., LedgerSession] = LedgerSession) -> None:
        self.etcd = etcd
        self.world = world(policy(team(guaranteed=LIMIT, limit_=LIMIT)), nodes=[])
        self.ledger_session = ledger_session(self.world)
        self.reached = 0
        self.write: Write | None = None
        self.waiting: list[str] = []
        self.relist()
        self.read()

    # -- its watches

    def relist(self) -> None:
        etcd = self.etcd
        gone = {pod.uid for pod in self.world.pods() if pod.uid not in etcd.pods}
        for uid, version in etcd.pods.items():
            self.world.set_pod(resident(1, uid=uid, name=name_of(uid), version=version))
        for uid in gone:
            if isinstance(self.world.evidence(uid), Alive):
                self.world.remove_pod(uid)
        self.reached = etcd.version

    def next_event(self) -> None:
        event = next((event for event in self.etcd.events if event.version > self.reached), None)
        if event is None:
            return
        if event.is_there:
            self.world.set_pod(resident(1, uid=event.uid, name=name_of(event.uid), version=event.version))
        else:
            self.world.remove_pod(Uid(event.uid))
        self.reached = event.version

    def next_record(self) -> None:
        found = next(((v, record) for v, record in self.etcd.records if v > self.ledger_session.version), None)
        if found is not None:
            self.ledger_session.see(found[1], version=found[0], identity="object")

    def all_events(self) -> None:
        while self.reached < max((event.version for event in self.etcd.events), default=0):
            self.next_event()

    def read(self) -> None:
        if self.etcd.record_version:
            self.ledger_session.see(self.etcd.record, version=self.etcd.record_version, identity="object")
        else:
            self.ledger_session.lose()

    # -- its writes

    def come(self, uid: str) -> None:
        """Judge a request as it comes, at any time; it waits for the next write, or until it can be judged."""
        session = self.ledger_session
        if not (session.is_safe(self.reached) and session.is_settled) or self._charge(uid):
            self.waiting.append(uid)

    def _charge(self, uid: str) -> bool:
        has_room = self.world.usage(A).total + gpus(1) <= gpus(LIMIT)
        if has_room:
            pod = resident(1, uid=uid, name=name_of(uid))
            self.ledger_session.charge(InFlightCharge(pod, Charge(A, Tier.GUARANTEED, gpus(1)), None))
        return has_room

    def judge(self, uids: list[str]) -> bool:
        """Judge some requests, with those that wait and have no draft, and send one write; False if it must not."""
        if self.ledger_session.is_stale:
            self.read()
        if not self.ledger_session.is_safe(self.reached):
            self.ledger_session.drop_drafts()
            return False
        self.ledger_session.drop_released(self.reached)
        drafts = self.ledger_session.drafts
        admitted = [uid for uid in (*self.waiting, *uids) if uid in drafts or self._charge(uid)]
        self.waiting = []
        if admitted or self.ledger_session.must_write or self.ledger_session.can_compact:
            self.write = Write(self.ledger_session.version, self.ledger_session.next_record(), tuple(admitted))
        return True

    def fold(self) -> None:
        """Send a write without charges; it needs no up-to-date watch."""
        if self.ledger_session.is_stale:
            self.read()
        self.ledger_session.drop_drafts()
        if self.ledger_session.must_write or self.ledger_session.can_compact:
            self.write = Write(self.ledger_session.version, self.ledger_session.next_record(), ())

    def finish(self, *, is_heard: bool = True) -> None:
        """Deliver the write to etcd and its answer; waiting requests succeed, and their pods may be created."""
        write, self.write = self.write, None
        if write is None:
            return
        if not self.etcd.swap(write.base, write.record):
            self.ledger_session.discard_draft()
            return
        self.ledger_session.see(write.record, version=self.etcd.record_version, identity="object")
        for uid in write.uids:
            if is_heard:
                self.etcd.promised.add(uid)
            else:
                self.ledger_session.withdraw(Uid(uid))

    def hear_nothing(self) -> Write:
        """Stop waiting for a write that may still succeed; its requests must retry."""
        write, self.write = self.write, None
        assert write is not None
        self.ledger_session.discard_draft(is_in_doubt=True)
        for uid in write.uids:
            self.ledger_session.withdraw(Uid(uid))
        return write

    def ask(self, uid: str) -> Evidence:
        """Read etcd directly; only for pods that can no longer be created or exist."""
        return Alive(self.etcd.pods[uid]) if uid in self.etcd.pods else ENDED
