"""Promotions with replicas that lag, pause and die: the guaranteed share holds at every step."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.core.support.make import gpus, policy, resident, team
from tests.core.support.replica_steps import WHO, ReplicaSteps
from tests.core.support.replicas import A, Etcd, Replica, Write
from tests.examples import examples
from webhook.core.model.amounts import Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import ENDED, Alive, Ended, InFlightCharge
from webhook.core.tiers.tier_changes import promotion, tier_changes
from webhook.core.world.ledger_session import LedgerSession

SHARE = 2


class LabeledEtcd(Etcd):
    """Pods with a tier label: its changes are events as well."""

    def __init__(self):
        super().__init__()
        self.tiers: dict[str, str] = {}
        self.log: list[tuple[int, str, str | None]] = []  # version, uid, tier or None for its end
        self.promised_tiers: dict[str, str] = {}

    def create(self, uid):
        super().create(uid)
        self.tiers[uid] = self.promised_tiers.pop(uid)
        self.log.append((self.version, uid, self.tiers[uid]))

    def give_up(self, uid):
        del self.promised_tiers[uid]

    def delete(self, uid):
        super().delete(uid)
        del self.tiers[uid]
        self.log.append((self.version, uid, None))

    def label(self, uid):
        self.version += 1
        self.tiers[uid] = "guaranteed"
        self.log.append((self.version, uid, "guaranteed"))

    @property
    def guaranteed(self):
        return [*self.tiers.values(), *self.promised_tiers.values()].count("guaranteed")


class Promoter(Replica):
    """A replica whose watch has tiers, and that may promote as a leader does."""

    def relist(self):
        self.world.set_policy(policy(team(guaranteed=SHARE, limit_=6)))
        gone = [pod.uid for pod in self.world.pods() if pod.uid not in self.etcd.tiers]
        for uid, tier in self.etcd.tiers.items():
            version = max(v for v, changed, _ in self.etcd.log if changed == uid)
            self.world.set_pod(resident(1, uid=uid, tier=tier, version=version))
        for uid in gone:
            if isinstance(self.world.evidence(uid), Alive):
                self.world.remove_pod(uid)
        self.reached = self.etcd.version

    def next_event(self):
        event = next((event for event in self.etcd.log if event[0] > self.reached), None)
        if event is not None:
            version, uid, tier = event
            if tier is None:
                self.world.remove_pod(Uid(uid))
            else:
                self.world.set_pod(resident(1, uid=uid, tier=tier, version=version))
            self.reached = version

    def all_events(self):
        while any(version > self.reached for version, _, _ in self.etcd.log):
            self.next_event()

    def decide(self, make):
        """Judge the charges of `make` on the present state, and send one write."""
        if self.ledger_session.is_stale:
            self.read()
        if self.write is not None or not self.ledger_session.is_safe(self.reached):
            return
        self.ledger_session.drop_released(self.reached)
        charged = []
        for flight in make():
            self.ledger_session.charge(flight)
            if not self.ledger_session.holds(flight):
                charged.append(flight)
        if charged or self.ledger_session.must_write:
            uids = tuple(flight.pod.uid for flight in charged if not flight.is_promotion)
            self.tiers = {flight.pod.uid: str(flight.charge.tier) for flight in charged}
            self.write = Write(self.ledger_session.version, self.ledger_session.next_record(), uids)

    def admissions(self, uids):
        for uid in uids:
            has_room = self.world.usage(A).guaranteed + gpus(1) <= gpus(SHARE)
            tier = Tier.GUARANTEED if has_room else Tier.PREEMPTIBLE
            if self.world.usage(A).total + gpus(1) <= gpus(6):
                yield InFlightCharge(resident(1, uid=uid, tier=str(tier)), Charge(A, tier, gpus(1)), None)

    def promotions(self):
        for change in tier_changes(self.world.policy.teams[0], self.world):
            if change.charge.tier is Tier.GUARANTEED:
                judged = promotion(change, self.world)
                if judged.flight is not None:
                    yield judged.flight

    def finish(self, *, is_heard=True):
        uids = self.write.uids if self.write is not None else ()
        before = self.etcd.promised.copy()
        super().finish(is_heard=is_heard)
        for uid in uids:
            if uid in self.etcd.promised - before:
                self.etcd.promised_tiers[uid] = self.tiers[uid]


class PromotionsMachine(ReplicaSteps):
    """Two replicas, a share of two; both may act as leader."""

    etcd_type, replica_type = LabeledEtcd, Promoter

    @rule(who=WHO, count=st.integers(1, 4), is_answered=st.booleans())
    def requests_come(self, who, count, is_answered):
        replica = self.replicas[who]
        uids = [f"u{self.next_uid + number}" for number in range(count)]
        self.next_uid += count
        replica.decide(lambda: replica.admissions(uids))
        if is_answered:
            replica.finish()

    @rule(who=WHO, is_answered=st.booleans())
    def it_promotes(self, who, is_answered):
        replica = self.replicas[who]
        replica.decide(replica.promotions)
        if is_answered:
            replica.finish()

    @rule(who=WHO)
    def it_writes_a_label_that_is_charged(self, who):
        for flight in [*self.replicas[who].ledger_session.promotions()][:1]:
            if flight.pod.uid in self.etcd.tiers:
                self.etcd.label(flight.pod.uid)

    @rule(who=WHO)
    def a_label_is_refused(self, who):
        for flight in [*self.replicas[who].ledger_session.promotions()][:1]:
            self.replicas[who].ledger_session.withdraw(flight.pod.uid)

    @precondition(lambda self: self.etcd.tiers)
    @rule(data=st.data())
    def a_pod_ends(self, data):
        self.etcd.delete(data.draw(st.sampled_from(sorted(self.etcd.tiers))))

    @invariant()
    def the_share_holds(self):
        assert self.etcd.guaranteed <= SHARE

    def teardown(self):
        """Drain all messages: no charge is left in flight, and every usage equals the labels."""
        self.drain()
        for replica in self.replicas:
            assert replica.world.usage(A).guaranteed == gpus(self.etcd.guaranteed)
            assert replica.world.usage(A).total == gpus(len(self.etcd.tiers))


TestPromotions = PromotionsMachine.TestCase
TestPromotions.settings = examples(40, stateful_step_count=40)


class FoldsBeforeTheLabelIsSeen(LedgerSession):
    """Broken: treats a promoted pod that exists as one whose label was written."""

    def _evidence(self, uid):
        found = super()._evidence(uid)
        return found if isinstance(found, Ended) else self._world.evidence(uid)


class ForgetsAtOnce(LedgerSession):
    """Broken: drops promotions from the ledger because the pod exists."""

    def _evidence(self, uid):
        return ENDED if self.record.flights[uid].is_promotion else super()._evidence(uid)


@pytest.mark.parametrize(
    ("ledger_session", "want"), [(LedgerSession, 2), (FoldsBeforeTheLabelIsSeen, 3), (ForgetsAtOnce, 3)]
)
def test_the_room_of_a_promotion_is_kept_until_its_label_is_seen(ledger_session, want):
    etcd = LabeledEtcd()
    etcd.promised_tiers |= {"old": "guaranteed", "p": "preemptible"}
    etcd.create("old")
    etcd.create("p")
    one, two = (Promoter(etcd, ledger_session) for _ in range(2))
    one.decide(one.promotions)
    one.finish()
    one.fold()
    one.finish()
    two.read()
    two.decide(lambda: two.admissions(["new"]))
    two.finish()
    etcd.label("p")
    assert etcd.guaranteed == want
