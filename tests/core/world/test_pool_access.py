"""Which pools are open to a team, and the constraints of a pod in a pool."""

from tests.core.support.make import policy, pool, requirement
from webhook.core.model.constraints import NO_CONSTRAINTS, Constraints, Toleration
from webhook.core.model.policy import LabelSelector
from webhook.core.world.reservations import PoolAccess

SHARED = pool("shared")
PRIVATE = pool("private", teams=frozenset({"team-a"}))
CHOSEN = pool("chosen", match=LabelSelector((requirement("app", "In", "web"),)))
CUT = pool(
    "cut",
    node_selector=(("pool", "cut"),),
    affinity=(requirement("mem", "Gt", "1"),),
    tolerations=(Toleration("gpu", exists=True),),
)


def test_pools_are_open_by_team_and_those_that_choose_their_pods_are_not():
    access = PoolAccess(policy(pools=(SHARED, PRIVATE, CHOSEN)))
    for _ in range(2):
        assert access.open_to("team-a") == (SHARED, PRIVATE)
        assert access.open_to("team-b") == (SHARED,)


def test_a_pools_conditions_are_added_to_the_pods():
    own = Constraints(node_selector=(("zone", "a"),))
    want = own.joined(node_selector=CUT.node_selector, requirements=CUT.affinity, tolerations=CUT.tolerations)
    access = PoolAccess(policy(pools=(CUT,)))
    assert access.joined(own, CUT) == want
    assert access.joined(own, CUT) is access.joined(own, CUT)
    assert access.joined(own, SHARED) is own


def test_constraints_of_any_length_are_joined_and_not_kept():
    long = Constraints(node_selector=(("zone", "a" * 10_000),))
    access = PoolAccess(policy(pools=(CUT,)))
    assert access.joined(long, CUT) == access.joined(long, CUT)
    assert access.joined(long, CUT) is not access.joined(long, CUT)


def test_the_number_of_joins_that_are_kept_is_bounded():
    access = PoolAccess(policy(pools=(CUT,)))
    first = access.joined(NO_CONSTRAINTS, CUT)
    for number in range(1024):
        access.joined(Constraints(node_selector=(("zone", str(number)),)), CUT)
    assert access.joined(NO_CONSTRAINTS, CUT) == first
    assert access.joined(NO_CONSTRAINTS, CUT) is not first
