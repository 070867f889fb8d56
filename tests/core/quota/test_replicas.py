"""Replicas lag, pause, fail or die: no team exceeds its limit, and at rest the ledger equals the pods exactly."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.core.support.make import gpus
from tests.core.support.replicas import LIMIT, A, Etcd, Replica, Write
from tests.examples import examples
from webhook.core.model.names import Uid
from webhook.core.quota.in_flight import ENDED, LedgerRecord
from webhook.core.world.ledger_session import LedgerSession

WHO = st.integers(0, 1)


class ReplicasMachine(RuleBasedStateMachine):
    """Two replicas, one team with a limit of two pods; every step is one message or one failure."""

    ledger_session = LedgerSession

    def __init__(self):
        super().__init__()
        self.etcd = Etcd()
        self.replicas = [Replica(self.etcd, self.ledger_session) for _ in range(2)]
        self.lost: list[Write] = []
        self.looked: list[tuple[Replica, str, object]] = []
        self.next_uid = 0

    # -- requests

    @rule(who=WHO, count=st.integers(1, 3), is_repeated=st.booleans(), is_answered=st.booleans())
    def requests_come(self, who, count, is_repeated, is_answered):
        replica = self.replicas[who]
        if replica.write is None:
            uids = [f"u{self.next_uid + number}" for number in range(count)]
            if is_repeated:
                uids = [f"u{self.next_uid // 4}/{self.next_uid + number}" for number in range(count)]
            self.next_uid += count
            replica.judge(uids)
            if is_answered:
                replica.finish()

    @rule(who=WHO, is_answered=st.booleans())
    def the_leader_tidies_up(self, who, is_answered):
        replica = self.replicas[who]
        if replica.write is None:
            replica.fold()
            if is_answered:
                replica.finish()

    @rule(who=WHO, is_heard=st.booleans())
    def the_write_is_answered(self, who, is_heard):
        self.replicas[who].finish(is_heard=is_heard)

    @rule(who=WHO)
    def the_answer_is_lost(self, who):
        if self.replicas[who].write is not None:
            write = self.replicas[who].hear_nothing()
            self.etcd.swap(write.base, write.page)

    @rule(who=WHO)
    def the_write_is_held_up(self, who):
        if self.replicas[who].write is not None:
            self.lost.append(self.replicas[who].hear_nothing())

    @precondition(lambda self: self.lost)
    @rule()
    def a_write_that_was_held_up_arrives(self):
        write = self.lost.pop(0)
        self.etcd.swap(write.base, write.page)

    # -- pods

    @precondition(lambda self: self.etcd.promised)
    @rule(comes=st.booleans())
    def a_creation_ends(self, comes):
        uid = min(self.etcd.promised)
        self.etcd.promised.remove(uid)
        if comes:
            self.etcd.create(uid)

    @precondition(lambda self: self.etcd.pods)
    @rule(newest=st.booleans())
    def a_pod_ends(self, newest):
        self.etcd.delete((max if newest else min)(self.etcd.pods))

    # -- watches

    @rule(who=WHO)
    def a_pod_event_arrives(self, who):
        self.replicas[who].next_event()

    @rule(who=WHO)
    def it_catches_up_with_the_pods(self, who):
        self.replicas[who].all_events()

    @rule(who=WHO)
    def it_reads_the_page(self, who):
        if self.replicas[who].write is None:
            self.replicas[who].read()

    @rule(who=WHO)
    def a_page_event_arrives(self, who):
        self.replicas[who].next_record()

    @rule(who=WHO)
    def it_lists_anew(self, who):
        self.replicas[who].relist()

    @rule(who=WHO)
    def it_is_killed_and_starts_again(self, who):
        if (write := self.replicas[who].write) is not None:
            self.lost.append(write)
        self.replicas[who] = Replica(self.etcd, self.ledger_session)

    # -- the cleanup: reads at one time, writes at another, leader or no longer

    @rule(who=WHO)
    def it_looks_for_pods_that_nobody_saw(self, who):
        replica = self.replicas[who]
        for flight in replica.ledger_session.unseen():
            if flight.pod.uid not in self.etcd.promised and not self._may_be_promised(flight.pod.uid):
                self.looked.append((replica, flight.pod.uid, replica.ask(flight.pod.uid)))

    @precondition(lambda self: self.looked)
    @rule()
    def it_takes_note_of_what_it_found(self):
        replica, uid, evidence = self.looked.pop(0)
        replica.ledger_session.note(Uid(uid), evidence)

    def _may_be_promised(self, uid):
        """Whether a request may still be answered: the cleanup waits longer than any request lives."""
        return any(uid in replica.write.uids for replica in self.replicas if replica.write is not None)

    # -- what must hold

    @invariant()
    def no_team_is_over_its_limit(self):
        assert self.etcd.held <= LIMIT

    def teardown(self):
        """Drain all messages: no charge may be left in flight, and every usage equals the pods."""
        while self.lost:
            self.a_write_that_was_held_up_arrives()
        for uid in sorted(self.etcd.promised):
            self.etcd.create(uid)
        self.etcd.promised.clear()
        for _ in range(3):
            for replica in self.replicas:
                self._rest(replica)
        assert not self.etcd.page.flights
        for replica in self.replicas:
            assert replica.world.usage(A).total == gpus(len(self.etcd.pods))

    def _rest(self, replica):
        replica.finish(is_heard=False)
        replica.read()
        replica.all_events()
        for flight in replica.ledger_session.unseen():
            replica.ledger_session.note(flight.pod.uid, replica.ask(flight.pod.uid))
        replica.fold()
        replica.finish()
        replica.ledger_session.drop_released(replica.reached)


TestReplicas = ReplicasMachine.TestCase
TestReplicas.settings = examples(40, stateful_step_count=40)


class NeverWaits(LedgerSession):
    """Broken: charges with a watch older than the last folded charge."""

    def is_safe(self, reached):
        del reached
        return not self.is_stale


class DropsWhatItDoesNotSee(LedgerSession):
    """Broken: treats a pod that its watch does not show as one that does not exist."""

    def _evidence(self, uid):
        return ENDED if uid in self.page.flights else super()._evidence(uid)


class FoldsToNothing(LedgerSession):
    """Broken: folds without recording the version."""

    def next_record(self):
        page = super().next_record()
        return LedgerRecord(page.flights, 0, page.turn)


class ForgetsTheOthers(LedgerSession):
    """Broken: counts its own charges only."""

    def see(self, page, *, version, identity):
        super().see(page, version=version, identity=identity)
        for uid in page.flights:
            self._world.drop_reservation(uid)


def one_folds_and_the_other_lags(one, other):
    one.judge(["u0"])
    one.finish()
    one.etcd.promised.remove("u0")
    one.etcd.create("u0")
    one.next_event()
    one.fold()
    one.finish()
    other.read()
    other.judge(["u1", "u2"])
    other.finish()


def one_promises_and_the_other_tidies_up(one, other):
    one.judge(["u0", "u1"])
    one.finish()
    other.read()
    other.fold()
    other.finish()
    other.judge(["u2"])
    other.finish()


@pytest.mark.parametrize("script", [one_folds_and_the_other_lags, one_promises_and_the_other_tidies_up])
def test_the_rules_hold_the_limit(script):
    etcd = Etcd()
    script(Replica(etcd), Replica(etcd))
    assert etcd.held <= LIMIT


@pytest.mark.parametrize(
    ("broken", "script"),
    [
        (NeverWaits, one_folds_and_the_other_lags),
        (FoldsToNothing, one_folds_and_the_other_lags),
        (DropsWhatItDoesNotSee, one_promises_and_the_other_tidies_up),
        (ForgetsTheOthers, one_promises_and_the_other_tidies_up),
    ],
)
def test_without_one_of_the_rules_the_limit_is_passed(broken, script):
    etcd = Etcd()
    script(Replica(etcd, broken), Replica(etcd, broken))
    assert etcd.held > LIMIT
