"""A guaranteed share comes back, whatever pods and nodes do: events of the field in any order, against four invariants.

(1) What is charged is never less than what kubelets may hand out. (2) Each device is taken once. (3) Every promise
ends. (4) A pod inside its team's share that would fit if all borrowers were gone starts within notice, grace and a
documented bound, whatever state the borrowers are in.
"""

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.core.life.field import GRACE, HOLD_BACK, LONGEST_GRACE, NODES, NOTICE, Field
from tests.examples import examples
from webhook.core.model.constraints import Tier
from webhook.core.world.pod_index import BORROWING_SECONDS, UNREPORTED_SECONDS
from webhook.core.world.world import MARGIN_SECONDS, UNACKNOWLEDGED_SECONDS

TEAMS = st.sampled_from(["team-a", "team-b"])
WISHES = st.sampled_from([None, None, Tier.PREEMPTIBLE, Tier.GUARANTEED])
COMES_BACK = NOTICE + LONGEST_GRACE + GRACE + BORROWING_SECONDS + UNREPORTED_SECONDS + 2 * HOLD_BACK + 60
"""Two evictions in a row, one under a limit and one on a node, every promise over, and that long behind the first in
each team's line, where it waits for room that no borrower has."""

GONE = UNACKNOWLEDGED_SECONDS + MARGIN_SECONDS + 10
"""After so long nothing is left of pods deleted by force that no kubelet had, and the line was looked at."""

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""To shrink a failure takes longer than a test may: each try lives through the minutes above. 25 steps can be read."""


class AnyOrder(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.field = Field()

    @initialize(teams=st.lists(TEAMS, min_size=2, max_size=5), wishes=st.lists(WISHES, min_size=5, max_size=5))
    def begin(self, teams, wishes):
        """Pods run: rules alone would seldom end some whose node is lost."""
        for team, wants in zip(teams, wishes, strict=False):
            self.field.create(team, 2, wants=wants)
        self.field.live(10)

    def pick(self, number, those):
        return those[number % len(those)]

    @rule(team=TEAMS, gpus=st.sampled_from([1, 2, 4]), wants=WISHES, never=st.booleans())
    def create(self, team, gpus, wants, never):
        if len(self.field.pods) < 12:
            self.field.create(team, gpus, wants=wants, never=never)

    @rule(seconds=st.sampled_from([1, 5, 11, 35, 61, 400]))
    def wait(self, seconds):
        self.field.wait(seconds)

    @rule(what=st.sampled_from(["schedule", "end_due", "release", "change_tiers", "reclaim"]))
    def go_on(self, what):
        getattr(self.field, what)()

    @rule(teams=st.sampled_from([(), ("team-a",), ("team-a", "team-b")]))
    def storm(self, teams):
        self.field.storming = teams
        self.field.storm()

    @precondition(lambda self: self.field.pods)
    @rule(number=st.integers(0, 20), grace=st.sampled_from([0, GRACE, 10_000]))
    def delete(self, number, grace):
        self.field.delete(self.pick(number, list(self.field.pods.values())), grace)

    @precondition(lambda self: any(pod.node for pod in self.field.pods.values()))
    @rule(number=st.integers(0, 20))
    def reject(self, number):
        self.field.reject(self.pick(number, [pod for pod in self.field.pods.values() if pod.node]))

    @precondition(lambda self: any(pod.never for pod in self.field.pods.values()))
    @rule(number=st.integers(0, 20))
    def mend(self, number):
        self.field.mend(self.pick(number, [pod for pod in self.field.pods.values() if pod.never]))

    @rule(name=st.sampled_from(NODES), how=st.sampled_from(["lose", "remove", "bring_back"]))
    def node(self, name, how):
        getattr(self.field, how)(name)

    @invariant()
    def holds(self):
        self.field.check()

    def teardown(self):
        self.field.live(COMES_BACK)
        self.field.check()
        assert self.field.starved() == [], self.field.why_waiting()


TestAnyOrder = pytest.mark.slow(AnyOrder.TestCase)
TestAnyOrder.settings = examples(60, stateful_step_count=25, phases=UNSHRUNK)


@pytest.mark.parametrize("never", [False, True], ids=["bound", "never bound"])
def test_a_share_comes_back_from_borrowers(never):
    """The machine can see a share that does not come back: without the evictor it does not."""
    field = Field()
    for _ in range(5):
        field.create("team-a", 2, wants=Tier.PREEMPTIBLE, never=never)
    field.live(30)
    asks = field.create("team-b", 4)
    assert asks.is_gated
    assert field.starved() == [asks]
    field.live(COMES_BACK)
    assert (field.starved(), asks.tier) == ([], "guaranteed")
    assert asks.node is not None


@pytest.mark.parametrize("own", [0, 2], ids=["nothing of it is used", "half of it is used"])
def test_a_share_comes_back_from_pods_that_are_deleted_by_force_again_and_again(own):
    field = Field(storming=("team-a",))
    for _ in range(own):
        field.create("team-b", 1)
    field.live(30)
    assert len(field.lingers) == 10 - own, "they use up the limit"
    asks = field.create("team-b", 4 - own)
    assert asks.is_gated
    field.live(GONE)
    assert (field.starved(), asks.tier) == ([], "guaranteed")
    assert asks.node is not None


def test_a_share_comes_back_though_pods_that_nothing_can_place_are_ahead_on_the_nodes():
    """Found by the machine: what can never be placed was planned for first, and left no room for the pod in line."""
    order = AnyOrder()
    order.begin(["team-a", "team-a"], [None, Tier.PREEMPTIBLE, Tier.GUARANTEED, None, None])
    guaranteed, preemptible = Tier.GUARANTEED, Tier.PREEMPTIBLE
    order.create(team="team-b", gpus=1, never=True, wants=None)
    order.node(name="n0", how="remove")
    order.create(team="team-b", gpus=4, never=True, wants=guaranteed)
    order.wait(seconds=96)
    order.create(team="team-b", gpus=4, never=False, wants=guaranteed)
    order.wait(seconds=11)
    order.create(team="team-b", gpus=2, never=True, wants=preemptible)
    order.create(team="team-a", gpus=1, never=False, wants=None)
    order.wait(seconds=11)
    order.create(team="team-a", gpus=2, never=False, wants=None)
    order.create(team="team-a", gpus=2, never=True, wants=preemptible)
    order.reject(number=10)
    order.create(team="team-b", gpus=1, never=False, wants=None)
    order.wait(seconds=400)
    order.reject(number=17)
    order.create(team="team-a", gpus=2, never=True, wants=preemptible)
    order.wait(seconds=16)
    order.create(team="team-a", gpus=2, never=True, wants=None)
    order.node(name="n2", how="lose")
    order.field.live(COMES_BACK)
    assert order.field.starved() == [], order.field.why_waiting()
