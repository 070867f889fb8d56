"""Replicas lag, pause, fail or die: no team exceeds its limit, and at rest the ledger equals the pods exactly."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.core.support.make import gpus
from tests.core.support.replica_steps import WHO, ReplicaSteps
from tests.core.support.replicas import LIMIT, A, Etcd, Replica
from tests.examples import examples
from webhook.core.model.amounts import Uid
from webhook.core.quota.charges import ENDED, LedgerRecord
from webhook.core.world.ledger_session import LedgerSession


class ReplicasMachine(ReplicaSteps):
    """Two replicas, one team with a limit of two pods."""

    def __init__(self):
        super().__init__()
        self.read_pods: list[tuple[Replica, str, object]] = []

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

    @rule(who=WHO, is_repeated=st.booleans())
    def a_request_comes_at_any_time(self, who, is_repeated):
        self.replicas[who].come(f"u{self.next_uid // 4}/{self.next_uid}" if is_repeated else f"u{self.next_uid}")
        self.next_uid += 1

    @precondition(lambda self: self.etcd.pods)
    @rule(newest=st.booleans())
    def a_pod_ends(self, newest):
        self.etcd.delete((max if newest else min)(self.etcd.pods))

    @rule(who=WHO)
    def a_ledger_event_arrives(self, who):
        self.replicas[who].next_record()

    # -- the cleanup: reads at one time, writes at another, leader or no longer

    @rule(who=WHO)
    def it_reads_unseen_pods(self, who):
        replica = self.replicas[who]
        for flight in replica.ledger_session.unseen():
            if flight.pod.uid not in self.etcd.promised and not self._may_be_promised(flight.pod.uid):
                self.read_pods.append((replica, flight.pod.uid, replica.ask(flight.pod.uid)))

    @precondition(lambda self: self.read_pods)
    @rule()
    def it_applies_what_it_read(self):
        replica, uid, evidence = self.read_pods.pop(0)
        replica.ledger_session.note(Uid(uid), evidence)

    def _may_be_promised(self, uid):
        """Whether a request may still be answered: the cleanup waits longer than any request lives."""
        return any(uid in replica.write.uids for replica in self.replicas if replica.write is not None)

    @invariant()
    def no_team_is_over_its_limit(self):
        assert self.etcd.held <= LIMIT

    def teardown(self):
        """Drain all messages: no charge may be left in flight, and every usage equals the pods."""
        self.drain()
        for replica in self.replicas:
            assert replica.world.usage(A).total == gpus(len(self.etcd.pods))


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
        return ENDED if uid in self.record.flights else super()._evidence(uid)


class FoldsToNothing(LedgerSession):
    """Broken: folds without recording the version."""

    def next_record(self):
        record = super().next_record()
        return LedgerRecord(record.flights, 0, record.turn)


class ForgetsTheOthers(LedgerSession):
    """Broken: counts its own charges only."""

    def see(self, record, *, version, identity):
        super().see(record, version=version, identity=identity)
        for uid in record.flights:
            self._world.drop_reservation(uid)


class IsAlwaysSettled(LedgerSession):
    """Broken: judges pods as they come while a charge does not count, since another is for a pod of its name."""

    is_settled = True


class KeepsOutdatedDrafts(LedgerSession):
    """Broken: writes what was judged on an earlier version than the one that it replaces."""

    def _drop_outdated_drafts(self, record):
        pass


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


def one_judges_as_pods_come_and_the_other_writes_first(one, other):
    one.come("u0")
    other.judge(["u1", "u2"])
    other.finish()
    one.read()
    one.judge([])
    one.finish()


def a_pod_of_the_name_ends_while_another_of_it_may_come(one, other):
    for uid in ("u/0", "u/1"):
        one.judge([uid])
        one.finish()
    etcd = one.etcd
    etcd.promised.remove("u/0")
    etcd.create("u/0")
    etcd.delete("u/0")
    one.all_events()
    one.come("a")
    one.come("b")
    one.judge([])
    one.finish()
    other.read()


@pytest.mark.parametrize(
    "script",
    [
        a_pod_of_the_name_ends_while_another_of_it_may_come,
        one_folds_and_the_other_lags,
        one_promises_and_the_other_tidies_up,
        one_judges_as_pods_come_and_the_other_writes_first,
    ],
)
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
        (IsAlwaysSettled, a_pod_of_the_name_ends_while_another_of_it_may_come),
        (KeepsOutdatedDrafts, one_judges_as_pods_come_and_the_other_writes_first),
    ],
)
def test_without_one_of_the_rules_the_limit_is_passed(broken, script):
    etcd = Etcd()
    script(Replica(etcd, broken), Replica(etcd, broken))
    assert etcd.held > LIMIT
