"""A tenant repeats what it may do, without end, beside the events of the field in any order: four invariants hold.

(1) Nothing but running pods keeps a pod inside its share waiting for longer than a bound. (2) Every promise ends with
time alone, without a further request. (3) What is repeated, and how often, changes that bound by nothing. (4) What
explanations say of the first in line is what the leader does next (`Field.release`). And writes on running pods change
neither who is evicted nor when.

An act of a tenant is a rule here, and one of `Repetition.repeat` if it is done again and again.
"""

from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.core.life.field import GRACE, LIMIT, LONGEST_GRACE, NOTICE, Field
from tests.core.life.test_any_order import COMES_BACK, TEAMS, UNSHRUNK, WISHES, AnyOrder
from tests.examples import examples
from webhook.core.model.constraints import Tier
from webhook.core.world.pod_index import RECLAIM_SECONDS, UNREPORTED_SECONDS
from webhook.core.world.reservations import TENTATIVE_SECONDS
from webhook.core.world.world import MARGIN_SECONDS

LINGERS = GRACE + MARGIN_SECONDS
"""For how long a pod that was deleted by force stays charged: the documented bound."""

PROMISED = max(UNREPORTED_SECONDS + NOTICE + LONGEST_GRACE + RECLAIM_SECONDS, TENTATIVE_SECONDS, LINGERS)
"""After so long without any request nothing is kept for a pod without a node."""

ACTS = ("advise", "create_again", "flip", "retry", "patch", "flip_minimum")
MOST_PODS = 14
LATER = 0
"""By how many seconds writes on running pods change when they are evicted: by none here, where no API server answers
409. There an eviction becomes a deletion after 20 conflicts in ten seconds (`webhook/cluster/writes/evictions.py`)."""

LIMITS = (LIMIT, 100)
"""Limits that borrowers may fill, and those that leave the nodes alone to be filled."""


class Repetition(AnyOrder):
    """The events of `AnyOrder`, and a tenant who repeats acts of which each alone is bounded."""

    @initialize(
        teams=st.lists(TEAMS, max_size=5),
        wishes=st.lists(WISHES, min_size=5, max_size=5),
        limit=st.sampled_from(LIMITS),
    )
    def begin(self, teams, wishes, limit):
        self.field = Field(limit)
        super().begin(teams, wishes)

    @rule(team=TEAMS, gpus=st.sampled_from([1, 2, 4]), times=st.integers(1, 5))
    def advise(self, team, gpus, times):
        """Pods pass the mutating step, and are never created."""
        for _ in range(times):
            self.field.advise(team, gpus)

    @precondition(lambda self: any(pod.node for pod in self.field.pods.values()))
    @rule(number=st.integers(0, 20))
    def force_delete(self, number):
        self.field.force_delete(self.pick(number, [pod for pod in self.field.pods.values() if pod.node]))

    @precondition(lambda self: any(pod.node is None and not pod.is_gated for pod in self.field.pods.values()))
    @rule(number=st.integers(0, 20))
    def flip(self, number):
        unbound = [pod for pod in self.field.pods.values() if pod.node is None and not pod.is_gated]
        self.field.flip(self.pick(number, unbound))

    @precondition(lambda self: self.field.pods)
    @rule(number=st.integers(0, 20), write=st.sampled_from(["patch", "flip_minimum"]))
    def write(self, number, write):
        getattr(self.field, write)(self.pick(number, list(self.field.pods.values())))

    @precondition(lambda self: self.field.pods)
    @rule(number=st.integers(0, 20))
    def create_again(self, number):
        self.field.create_again(self.pick(number, list(self.field.pods.values())))

    @precondition(lambda self: len(self.field.repeats) < 3)
    @rule(team=TEAMS, gpus=st.sampled_from([1, 2, 4]), what=st.sampled_from(ACTS))
    def repeat(self, team, gpus, what):
        """From now on, several times in each step of what goes on by itself."""
        self.field.repeats.append(repeated(self.field, team, gpus, what))

    def teardown(self):
        super().teardown()  # while the tenant goes on
        self.field.repeats.clear()
        self.field.storming = ()
        self.field.wait(PROMISED)
        self.field.check_nothing_is_promised()


def repeated(field, team, gpus, what):
    """What a tenant does each time: nothing of it asks for its team's own share, which others could not have."""
    pod, calls = None, count()

    def again():
        nonlocal pod
        if what == "advise":
            field.advise(team, gpus)
        elif what == "retry":  # refused each time: no limit is so high
            assert field.create(team, 1_000, wants=Tier.PREEMPTIBLE) is None
        elif what == "patch" or (what == "flip_minimum" and next(calls) % 7 == 0):  # not in step with the leader
            for each in [each for each in field.pods.values() if each.team == team]:
                getattr(field, what)(each)
        elif what == "flip_minimum":
            return
        elif pod is None or pod.uid not in field.pods or pod.deadline is not None:
            pod = field.create(team, gpus, wants=Tier.PREEMPTIBLE, never=True) if has_space(field) else None
        elif what == "create_again":
            pod = field.create_again(pod) if has_space(field) else None
        elif not pod.is_gated and pod.node is None:
            field.flip(pod)

    return again


def has_space(field):
    return len(field.pods) < MOST_PODS


TestRepetition = pytest.mark.slow(Repetition.TestCase)
TestRepetition.settings = examples(40, stateful_step_count=25, phases=UNSHRUNK)


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("limit", [LIMITS[0], pytest.param(LIMITS[1], marks=pytest.mark.slow)])
def test_an_act_that_is_repeated_without_end_keeps_no_share(what, count, limit):
    field = Field(limit)
    field.remove("n2")
    field.create("team-a", 4)
    ends = field.create("team-b", 4)
    field.live(10)
    asks = field.create("team-b", 4)
    assert asks.is_gated
    for _ in range(count):
        field.repeats.append(repeated(field, "team-a", 4, what))
    field.live(60)
    field.delete(ends)
    field.live(COMES_BACK)
    assert field.starved() == [], field.why_waiting()
    assert asks.node is not None


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("write", ["patch", "flip_minimum", "retry"])
def test_writes_change_neither_who_is_evicted_nor_when(write, limit):
    """The borrowers of one team are evicted `LATER` seconds earlier or later at most."""
    plain, stormy = evictions(limit), evictions(limit, write)
    assert plain
    assert stormy.keys() == plain.keys()
    assert all(abs(stormy[uid] - at) <= LATER for uid, at in plain.items())


def evictions(limit, *writes):
    """When each borrower is evicted for an owner who comes later, while its own owner writes."""
    field = Field(limit)
    field.remove("n2")
    for number in range(8):  # of two workloads, whose minimums are swapped
        pod = field.create("team-a", 1)
        for _ in range(1 + number % 2):
            field.flip_minimum(pod)
        field.live(10)
    field.repeats += [repeated(field, "team-a", 1, write) for write in writes]
    field.live(60)
    for _ in range(2):
        field.create("team-b", 1)
    field.live(COMES_BACK)
    return field.evicted


def test_all_that_is_kept_ends_with_time_alone():
    """The machine can see a promise that does not end: before its time each of these is there."""
    field = Field()
    field.advise("team-a", 1)
    waits = field.create("team-a", 1, never=True)
    field.live(10)
    gone = field.create("team-b", 2)
    field.schedule()
    field.force_delete(gone)
    with pytest.raises(AssertionError, match="GPUs free"):
        field.check_nothing_is_promised()
    field.wait(PROMISED)
    field.check_nothing_is_promised()
    assert waits.node is None
