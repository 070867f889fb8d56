"""The steps of two replicas of one ledger object, as rules of a state machine: each is a message or a failure."""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.core.support.replicas import Etcd, Replica, Write
from webhook.core.world.ledger_session import LedgerSession

WHO = st.integers(0, 1)


class ReplicaSteps(RuleBasedStateMachine):
    """Two replicas; subclasses add requests, pods and invariants. A held up write may arrive at any later time."""

    etcd_type: Callable[[], Etcd] = Etcd
    replica_type: type[Replica] = Replica

    def __init__(self) -> None:
        super().__init__()
        self.etcd = self.etcd_type()
        self.replicas = [self.replica_type(self.etcd, LedgerSession) for _ in range(2)]
        self.held_up: list[Write] = []
        self.next_uid = 0

    # -- writes

    @rule(who=WHO, is_answered=st.booleans())
    def the_leader_cleans_up(self, who: int, is_answered: bool) -> None:
        replica = self.replicas[who]
        if replica.write is None:
            replica.fold()
            if is_answered:
                replica.finish()

    @rule(who=WHO, is_heard=st.booleans())
    def the_write_is_answered(self, who: int, is_heard: bool) -> None:
        self.replicas[who].finish(is_heard=is_heard)

    @rule(who=WHO, lands=st.booleans())
    def the_answer_is_lost(self, who: int, lands: bool) -> None:
        if self.replicas[who].write is not None:
            write = self.replicas[who].hear_nothing()
            if lands:
                self.etcd.swap(write.base, write.record)
            else:
                self.held_up.append(write)

    @precondition(lambda self: self.held_up)
    @rule()
    def a_held_up_write_arrives(self) -> None:
        write = self.held_up.pop(0)
        self.etcd.swap(write.base, write.record)

    # -- pods

    @precondition(lambda self: self.etcd.promised)
    @rule(succeeds=st.booleans())
    def a_creation_ends(self, succeeds: bool) -> None:
        uid = min(self.etcd.promised)
        self.etcd.promised.remove(uid)
        if succeeds:
            self.etcd.create(uid)
        else:
            self.etcd.give_up(uid)

    # -- watches

    @rule(who=WHO)
    def a_pod_event_arrives(self, who: int) -> None:
        self.replicas[who].next_event()

    @rule(who=WHO)
    def it_catches_up_with_the_pods(self, who: int) -> None:
        self.replicas[who].all_events()

    @rule(who=WHO)
    def it_reads_the_ledger_object(self, who: int) -> None:
        if self.replicas[who].write is None:
            self.replicas[who].read()

    @rule(who=WHO)
    def it_lists_again(self, who: int) -> None:
        self.replicas[who].relist()

    @rule(who=WHO)
    def it_is_killed_and_starts_again(self, who: int) -> None:
        if (write := self.replicas[who].write) is not None:
            self.held_up.append(write)
        self.replicas[who] = self.replica_type(self.etcd, LedgerSession)

    # -- the end

    def drain(self) -> None:
        """Deliver all messages until no charge should be left in flight."""
        while self.held_up:
            self.a_held_up_write_arrives()
        while self.etcd.promised:
            self.a_creation_ends(succeeds=True)
        for _ in range(4):
            for replica in self.replicas:
                _settle(replica)
        assert not self.etcd.record.flights


def _settle(replica: Replica) -> None:
    replica.finish(is_heard=False)
    replica.ledger_session.drop_drafts()
    replica.waiting = []
    replica.read()
    replica.all_events()
    for flight in replica.ledger_session.unseen():
        replica.ledger_session.note(flight.pod.uid, replica.ask(flight.pod.uid))
    replica.fold()
    replica.finish()
    replica.ledger_session.drop_released(replica.reached)
