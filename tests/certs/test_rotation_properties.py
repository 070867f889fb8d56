"""For any order of steps of replicas with wrong clocks: callers accept the served certificate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.manager import BundleChanged
from tests.certs.make import SETTLE_SECONDS, Cluster, Replica, bundle_of, is_accepted
from tests.examples import examples

SKEW = st.integers(-600, 600)
REPLICAS = 3
WHICH = st.integers(0, REPLICAS - 1)
LOOK_SECONDS = 30
AGE_SECONDS = 5_400
YOUNG_ROUNDS = 7  # the CA is due for its first replacement a little later


class Race:
    """Replicas that were started together on a cluster without certificates."""

    def __init__(self, skews):
        self.cluster = Cluster()
        self.cluster.register()
        self.skews = skews
        self.replicas = [Replica(self.cluster, skew_seconds=skew) for skew in skews]
        self.replicas[0].look()
        self.cluster.seconds += SETTLE_SECONDS
        for _ in range(YOUNG_ROUNDS):
            self.all_reconcile(AGE_SECONDS)

    def step(self, which, amount):
        for _ in range(amount):
            self.replicas[which].step()
            self.check()

    def sleep(self, _which, amount):
        self.cluster.seconds += amount * 60

    def go_on(self, _which, amount):
        for _ in range(amount):
            self.all_reconcile(LOOK_SECONDS)

    def age(self, _which, amount):
        for _ in range(amount // 5):
            self.all_reconcile(AGE_SECONDS)

    def restart(self, which, _amount):
        if self.cluster.files is not None:
            self.replicas[which].stop()
            self.replicas[which] = Replica(self.cluster, skew_seconds=self.skews[which])
            self.replicas[which].look()

    def delete_secret(self, _which, _amount):
        # One replica with the certificates in use must remain: new replicas can only start from nothing.
        if all(each.manager.bundle for each in self.replicas):
            self.cluster.files = None
            self.cluster.version += 1

    def lose_api(self, which, _amount):
        self.cluster.is_away = True
        self.replicas[which].look()
        self.cluster.is_away = False

    def all_reconcile(self, seconds):
        self.cluster.seconds += seconds
        for each in self.replicas:
            each.look()
            self.check()

    def check(self):
        for replica in self.replicas:
            leaf = replica.leaf
            if leaf is None or leaf.not_valid_after_utc <= self.cluster.now:
                continue  # it does not serve yet, or slept until its certificate expired
            for name in self.cluster.bundles:
                for cas in self.cluster.known_to_callers(name, lag_seconds=SETTLE_SECONDS - LOOK_SECONDS):
                    assert is_accepted(leaf, cas, self.cluster.now)


OPERATIONS = st.tuples(
    st.sampled_from(["step", "sleep", "go_on", "age", "age", "restart", "restart", "delete_secret", "lose_api"]),
    WHICH,
    st.integers(1, 40),
)


@given(st.lists(SKEW, min_size=REPLICAS, max_size=REPLICAS), st.lists(OPERATIONS, max_size=30))
@examples(25)
def test_every_caller_can_verify_the_served_certificate(skews, operations):
    race = Race(skews)
    for what, which, amount in operations:
        getattr(race, what)(which, amount)
        race.check()
    for replica in race.replicas:
        replica.stop()


@pytest.mark.parametrize("skews", [(0, 0, 0), (-600, 0, 600)], ids=["clocks agree", "clocks differ by minutes"])
def test_replicas_renew_and_rotate_indefinitely(skews):
    race = Race(skews)
    authorities = {}
    while race.cluster.seconds < 60 * 3600:  # three lifetimes of a CA
        race.all_reconcile(600)
        for each in race.replicas:
            assert each.leaf.not_valid_after_utc > race.cluster.now
        bundle = bundle_of(race.cluster)
        assert len(bundle.cas) <= 2
        authorities[bundle.signing.certificate.serial_number] = bundle
    changes = [
        outcome.change for each in race.replicas for outcome in each.reported if isinstance(outcome, BundleChanged)
    ]
    assert changes.count("created") == 1
    assert changes.count("taken_over") == len(authorities) - 1 >= 3, "each CA took over once, by any replica"
    assert len(changes) < 40, "replicas do not alternate"
    for name in race.cluster.bundles:
        (trusted,) = race.cluster.known_to_callers(name, lag_seconds=0)
        assert set(trusted) == set(bundle.cas), "what is over has left the callers"
