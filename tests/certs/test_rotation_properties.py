"""Whatever replicas do in whatever order, with clocks that are wrong: callers take what is served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.manager import BundleChanged
from tests.certs.make import SETTLE_SECONDS, Cluster, Replica, bundle_of, is_taken
from tests.examples import examples

SKEW = st.integers(-600, 600)
REPLICAS = 3
WHICH = st.integers(0, REPLICAS - 1)
LOOK_SECONDS = 30
AGE_SECONDS = 5_400
YOUNG_ROUNDS = 7  # the CA is due for its first exchange a little later


class Race:
    """Replicas that were started together on a cluster that knows no certificates yet."""

    def __init__(self, skews):
        self.cluster = Cluster()
        self.cluster.register()
        self.skews = skews
        self.replicas = [Replica(self.cluster, skew_seconds=skew) for skew in skews]
        self.replicas[0].look()
        self.cluster.seconds += SETTLE_SECONDS
        for _ in range(YOUNG_ROUNDS):
            self.all_look(AGE_SECONDS)

    def step(self, which, amount):
        for _ in range(amount):
            self.replicas[which].step()
            self.check()

    def sleep(self, _which, amount):
        self.cluster.seconds += amount * 60

    def go_on(self, _which, amount):
        for _ in range(amount):
            self.all_look(LOOK_SECONDS)

    def age(self, _which, amount):
        for _ in range(amount // 5):
            self.all_look(AGE_SECONDS)

    def restart(self, which, _amount):
        if self.cluster.files is not None:
            self.replicas[which].stop()
            self.replicas[which] = Replica(self.cluster, skew_seconds=self.skews[which])
            self.replicas[which].look()

    def delete_secret(self, _which, _amount):
        # Somebody who knows what callers trust must be left: all new replicas could only begin anew.
        if all(each.keeper.bundle for each in self.replicas):
            self.cluster.files = None
            self.cluster.version += 1

    def lose_api(self, which, _amount):
        self.cluster.is_away = True
        self.replicas[which].look()
        self.cluster.is_away = False

    def all_look(self, seconds):
        self.cluster.seconds += seconds
        for each in self.replicas:
            each.look()
            self.check()

    def check(self):
        for replica in self.replicas:
            leaf = replica.leaf
            if leaf is None or leaf.not_valid_after_utc <= self.cluster.now:
                continue  # it serves nobody yet, or slept for so long that its certificate is of no use to anybody
            for name in self.cluster.bundles:
                for cas in self.cluster.known_to_callers(name, lag_seconds=SETTLE_SECONDS - LOOK_SECONDS):
                    assert is_taken(leaf, cas, self.cluster.now)


OPERATIONS = st.tuples(
    st.sampled_from(["step", "sleep", "go_on", "age", "age", "restart", "restart", "delete_secret", "lose_api"]),
    WHICH,
    st.integers(1, 40),
)


@given(st.lists(SKEW, min_size=REPLICAS, max_size=REPLICAS), st.lists(OPERATIONS, max_size=30))
@examples(25)
def test_no_caller_meets_a_certificate_that_it_cannot_verify(skews, operations):
    race = Race(skews)
    for what, which, amount in operations:
        getattr(race, what)(which, amount)
        race.check()
    for replica in race.replicas:
        replica.stop()


@pytest.mark.parametrize("skews", [(0, 0, 0), (-600, 0, 600)], ids=["clocks agree", "clocks differ by minutes"])
def test_replicas_that_look_on_time_renew_and_rotate_for_ever(skews):
    race = Race(skews)
    authorities = {}
    while race.cluster.seconds < 60 * 3600:  # three lives of a CA
        race.all_look(600)
        for each in race.replicas:
            assert each.leaf.not_valid_after_utc > race.cluster.now
        bundle = bundle_of(race.cluster)
        assert len(bundle.cas) <= 2
        authorities[bundle.signing.certificate.serial_number] = bundle
    changes = [told.change for each in race.replicas for told in each.told if isinstance(told, BundleChanged)]
    assert changes.count("created") == 1
    assert changes.count("taken_over") == len(authorities) - 1 >= 3, "each CA took over once, whoever saw to it"
    assert len(changes) < 40, "nobody takes turns with another"
    for name in race.cluster.bundles:
        (trusted,) = race.cluster.known_to_callers(name, lag_seconds=0)
        assert set(trusted) == set(bundle.cas), "what is over has left the callers"
