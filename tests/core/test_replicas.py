"""Whatever lags, pauses, fails or dies: no team is ever over its limit, and at rest the ledger is the pods, exactly."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.core.make import gpus
from tests.core.replicas import LIMIT, A, Etcd, Replica, Write
from webhook.core.clerk import Clerk
from webhook.core.names import Uid
from webhook.core.page import ENDED, Page

WHO = st.integers(0, 1)


class ReplicasMachine(RuleBasedStateMachine):
    """Two replicas, one team with a limit of two pods; every step is one message or one failure."""

    clerk = Clerk

    def __init__(self):
        super().__init__()
        self.etcd = Etcd()
        self.replicas = [Replica(self.etcd, self.clerk) for _ in range(2)]
        self.lost: list[Write] = []
        self.looked: list[tuple[Replica, str, object]] = []
        self.next_uid = 0

    # -- requests

    @rule(who=WHO, count=st.integers(1, 3), is_answered=st.booleans())
    def requests_come(self, who, count, is_answered):
        replica = self.replicas[who]
        if replica.write is None:
            uids = [f"u{self.next_uid + number}" for number in range(count)]
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
        self.replicas[who].next_page()

    @rule(who=WHO)
    def it_lists_anew(self, who):
        self.replicas[who].relist()

    @rule(who=WHO)
    def it_is_killed_and_starts_again(self, who):
        if (write := self.replicas[who].write) is not None:
            self.lost.append(write)
        self.replicas[who] = Replica(self.etcd, self.clerk)

    # -- the reaper: looks at one time, writes at another, leader or not any more

    @rule(who=WHO)
    def it_looks_for_pods_that_nobody_saw(self, who):
        replica = self.replicas[who]
        for flight in replica.clerk.unseen():
            if flight.pod.uid not in self.etcd.promised and not self._may_be_promised(flight.pod.uid):
                self.looked.append((replica, flight.pod.uid, replica.ask(flight.pod.uid)))

    @precondition(lambda self: self.looked)
    @rule()
    def it_takes_note_of_what_it_found(self):
        replica, uid, evidence = self.looked.pop(0)
        replica.clerk.note(Uid(uid), evidence)

    def _may_be_promised(self, uid):
        """Tell whether somebody may still hear a yes: the reaper waits longer than any request lives."""
        return any(uid in replica.write.uids for replica in self.replicas if replica.write is not None)

    # -- what must hold

    @invariant()
    def no_team_is_over_its_limit(self):
        assert self.etcd.held <= LIMIT

    def teardown(self):
        """Let everything come to rest: nothing may be left on the page, and every book is the pods."""
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
            assert replica.world.book(A).total == gpus(len(self.etcd.pods))

    def _rest(self, replica):
        replica.finish(is_heard=False)
        replica.read()
        replica.all_events()
        for flight in replica.clerk.unseen():
            replica.clerk.note(flight.pod.uid, replica.ask(flight.pod.uid))
        replica.fold()
        replica.finish()
        replica.clerk.settle(replica.reached)


TestReplicas = ReplicasMachine.TestCase
TestReplicas.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)


class NeverWaits(Clerk):
    """Broken: charges from a view that is older than what was folded away."""

    def is_safe(self, reached):
        del reached
        return not self.is_stale


class LetsGoAtOnce(Clerk):
    """Broken: drops what left the page before the view of the pods has come as far."""

    def settle(self, reached):
        super().settle(10**9 + reached)


class DropsWhatItDoesNotSee(Clerk):
    """Broken: takes a pod that its view does not show for one that is not there."""

    def _evidence(self, uid):
        return ENDED if uid in self.page.flights else super()._evidence(uid)


class FoldsToNothing(Clerk):
    """Broken: folds without saying how far."""

    def next_page(self):
        page = super().next_page()
        return Page(page.flights, 0, page.turn)


class TrustsSilence(Clerk):
    """Broken: takes a write without an answer for one that never happened."""

    def give_up(self, *, is_in_doubt=False):
        super().give_up()
        self.is_stale = False


BROKEN = [NeverWaits, LetsGoAtOnce, DropsWhatItDoesNotSee, FoldsToNothing, TrustsSilence]
