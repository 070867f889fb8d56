"""Pods that were deleted by force stay charged, as long as their node may run them."""

from dataclasses import replace

import pytest

from tests.core.support.make import gpus, node, policy, resident, team, world
from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import NamespaceFacts
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import LONGEST_SECONDS, MARGIN_SECONDS, lingering

A = TeamName("team-a")


def left_of(place, uid):
    """The effect of the watch's events for a pod that is gone and was not seen to end."""
    left = lingering(Uid(uid), place, is_watched=True)
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


@pytest.mark.parametrize("tier", ["guaranteed", None, "preemptible"], ids=["guaranteed", "unlabeled", "promoted"])
def test_what_remains_borrows_and_is_not_a_promotion(tier):
    place = world(residents=[resident(1, uid="p", node="n0", tier=tier)])
    if tier == "preemptible":
        place.assume(InFlightCharge(place.pod(Uid("p")), Charge(A, Tier.GUARANTEED, gpus(1)), None))
    assert place.usage(A).guaranteed == gpus(1)
    left = left_of(place, "p")
    assert (left.charge.tier, left.is_promotion) == (Tier.PREEMPTIBLE, False)
    book = place.usage(A)
    assert (book.guaranteed, book.preemptible, book.lingering, book.lingering_pods) == (0, gpus(1), gpus(1), 1)
    place.drop_reservation(left.pod.uid)
    assert (book.lingering, book.lingering_pods) == (0, 0)


@pytest.mark.parametrize(("grace", "want"), [(600, 15), (3, 8)], ids=["long", "short"])
def test_a_pod_that_no_kubelet_acknowledged_is_charged_for_seconds_and_takes_no_room(grace, want):
    ghost = resident(8, uid="p", node="n0", grace_seconds=grace, is_acknowledged=False)
    place = world(residents=[ghost])
    left = left_of(place, "p")
    assert (left.lingers, left.node) == (want, None)
    book = place.usage(A)
    assert (book.total, book.reserved, book.waiting) == (gpus(8), gpus(8), 0)
    assert place.fleet.fits(NodeName("n0"), resident(8).demand)


def test_one_whose_deletion_was_not_watched_may_have_been_acknowledged():
    place = world(residents=[resident(8, uid="p", node="n0", grace_seconds=600, is_acknowledged=False)])
    left = lingering(Uid("p"), place, is_watched=False)
    assert (left.lingers, left.node) == (605, "n0")


@pytest.mark.parametrize(
    ("grace", "want"),
    [(0, MARGIN_SECONDS), (-1, MARGIN_SECONDS), (600, 605), (31_536_000, LONGEST_SECONDS + MARGIN_SECONDS)],
    ids=["none", "less than none", "some", "a year: never longer than a day"],
)
def test_the_charge_lasts_for_the_grace_period(grace, want):
    place = world(residents=[resident(1, uid="p", node="n0", grace_seconds=grace)])
    assert lingering(Uid("p"), place, is_watched=True).lingers == want


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
    assert lingering(Uid("p"), place, is_watched=True) is None


def test_policy_and_nodes_may_change_in_between():
    place = world(residents=[resident(2, uid="p", node="n0")])
    left = left_of(place, "p")
    place.set_policy(policy(team(guaranteed=1), hash="p2"))
    place.remove_node(NodeName("n0"))
    assert place.usage(A).total == gpus(2)
    place.drop_reservation(left.pod.uid)
    assert place.usage(A).total == 0


@pytest.mark.parametrize(
    ("seconds", "more", "want"),
    [
        pytest.param(5, {}, 15, id="it was there for a moment"),
        pytest.param(6, {}, 605, id="its kubelet had time to begin with it"),
        pytest.param(60, {"is_ready": False}, 15, id="its node is not ready"),
        pytest.param(60, None, 15, id="there is no such node"),
    ],
)
def test_a_report_that_is_late_is_no_proof_that_a_node_runs_nothing(seconds, more, want):
    nodes = [] if more is None else [replace(node("n0"), **more)]
    place = world(nodes=nodes)
    place.tick(1_000)
    place.set_pod(resident(8, uid="p", node="n0", grace_seconds=600, is_acknowledged=False, created=1_000))
    place.tick(1_000 + seconds)
    assert lingering(Uid("p"), place, is_watched=True).lingers == want
