"""Pods that were deleted by force stay charged, as long as their node may run them."""

import pytest

from tests.core.support.make import gpus, policy, resident, team, world
from webhook.core.model.decision import Charge
from webhook.core.model.names import Namespace, NodeName, TeamName, Uid
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge
from webhook.core.world.force_deleted import LONGEST_SECONDS, MARGIN_SECONDS, lingering

A = TeamName("team-a")


def left_of(place, uid):
    """The effect of the watch's events for a pod that is gone and was not seen to end."""
    left = lingering(Uid(uid), place)
    place.remove_pod(Uid(uid))
    if left is not None:
        place.assume(left)
    return left


def test_the_remaining_charge_keeps_the_room_until_it_is_dropped():
    place = world(policy(team(guaranteed=4)), residents=[resident(3, uid="p", node="n0", tier="preemptible")])
    left = left_of(place, "p")
    book = place.usage(A)
    assert (left.lingers, left.pod.uid) == (30 + MARGIN_SECONDS, "p/lingers")
    assert (book.total, book.reserved, book.preemptible) == (gpus(3), gpus(3), gpus(3))
    assert book.largest_holders() == [("team-a/Pod/p", gpus(3))]
    assert not place.fleet.fits(NodeName("n0"), resident(8).demand), "its room is not free either"
    place.drop_reservation(left.pod.uid)
    assert place.usage(A).total == 0
    assert place.fleet.fits(NodeName("n0"), resident(8).demand)


def test_a_promoted_pod_stays_charged_as_guaranteed_and_is_not_a_promotion():
    place = world(residents=[resident(1, uid="p", node="n0", tier="preemptible")])
    place.assume(InFlightCharge(place.pod(Uid("p")), Charge(A, Tier.GUARANTEED, gpus(1)), None))
    left = left_of(place, "p")
    assert (left.charge.tier, left.is_promotion) == (Tier.GUARANTEED, False)
    assert place.usage(A).guaranteed == gpus(1)


@pytest.mark.parametrize(
    ("grace", "want"),
    [(0, MARGIN_SECONDS), (-1, MARGIN_SECONDS), (600, 605), (31_536_000, LONGEST_SECONDS + MARGIN_SECONDS)],
    ids=["none", "less than none", "some", "a year: never longer than a day"],
)
def test_the_charge_lasts_for_the_grace_period(grace, want):
    place = world(residents=[resident(1, uid="p", node="n0", grace_seconds=grace)])
    assert lingering(Uid("p"), place).lingers == want


@pytest.mark.parametrize(
    "pod",
    [resident(1, uid="p"), resident(0, uid="p", node="n0"), resident(1, uid="p", node="n0", namespace="ops")],
    ids=["no node ever had it", "it holds no GPU", "its namespace is exempt"],
)
def test_no_charge_remains_of(pod):
    place = world()
    place.set_namespace(NamespaceFacts(Namespace("ops"), {"fairgate.dev/exempt": "true"}))
    place.set_pod(pod)
    assert left_of(place, "p") is None
    assert all(book.total == 0 for book in place.usage_by_team().values())


def test_no_charge_remains_of_a_pod_that_was_only_allowed():
    place = world()
    place.assume(InFlightCharge(resident(1, uid="p", node="n0"), Charge(A, Tier.GUARANTEED, gpus(1)), NodeName("n0")))
    assert lingering(Uid("p"), place) is None


def test_policy_and_nodes_may_change_in_between():
    place = world(residents=[resident(2, uid="p", node="n0")])
    left = left_of(place, "p")
    place.set_policy(policy(team(guaranteed=1), hash="p2"))
    place.remove_node(NodeName("n0"))
    assert place.usage(A).total == gpus(2)
    place.drop_reservation(left.pod.uid)
    assert place.usage(A).total == 0
