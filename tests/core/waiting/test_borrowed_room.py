"""Room that reclaim could make for a pod."""

import pytest

from tests.core.support.force_deleted import delete_by_force
from tests.core.support.make import ALICE, gpus, node, pod, policy, resident, team, world
from webhook.core.admission.assessment import assess
from webhook.core.line.judged_pod import BorrowedRoom, may_ever_start, nodes_for
from webhook.core.model.constraints import HELD, Effect, Taint
from webhook.core.model.policy import ReclaimRules


def has_room(place, count):
    return BorrowedRoom(place).node_for(assess(pod(count), ALICE, place)) is not None


def borrowed(count, name, **more):
    return resident(count, node=name, namespace="team-b", tier="preemptible", **more)


def test_free_and_borrowed_gpus_of_one_node_count_together():
    place = world(
        nodes=[node("n0"), node("n1")],
        residents=[borrowed(4, "n0"), resident(4, node="n0"), borrowed(1, "n1"), resident(9, node="n1")],
    )
    assert has_room(place, 6)
    assert not has_room(place, 7), "n1 has one of ten to give back"


def test_the_node_is_the_one_where_the_least_is_missing():
    place = world(
        nodes=[node("n0"), node("n1"), node("n2")],
        residents=[borrowed(9, "n0"), borrowed(6, "n1", uid="x"), borrowed(6, "n2", uid="y")],
    )
    assert BorrowedRoom(place).node_for(assess(pod(8), ALICE, place)) == "n1"


def test_protected_and_guaranteed_pods_give_nothing_back():
    rules = ReclaimRules(protected_namespaces=("team-b",))
    place = world(policy(team(), team("team-b"), reclaim=rules), nodes=[node()], residents=[borrowed(10, "n0")])
    assert not has_room(place, 1)
    assert not has_room(world(nodes=[node()], residents=[resident(10, node="n0")]), 1)


def test_nodes_that_could_hold_a_pod_come_with_free_and_all_units():
    place = world(nodes=[node("n0"), node("small", gpus=2)], residents=[resident(4, node="n0")])
    found = list(nodes_for(assess(pod(3), ALICE, place), place))
    assert found == [("n0", gpus(6), gpus(10))]


@pytest.mark.parametrize("key", [HELD, "node.kubernetes.io/unschedulable"])
def test_a_pod_may_start_on_a_node_that_only_a_taint_keeps_it_off_for_now(key):
    closed = node(taints=(Taint(key, Effect.NO_SCHEDULE, "h"),))
    assessed = assess(pod(4), ALICE, place := world(nodes=[closed]))
    assert may_ever_start(assessed, place)
    assert list(nodes_for(assessed, place)) == [], "and none is kept for it meanwhile"
    assert not may_ever_start(assess(pod(11), ALICE, place), place)


@pytest.mark.parametrize("is_first", [False, True], ids=["of all nodes", "of the node of before"])
def test_what_a_pod_deleted_by_force_left_is_awaited_and_hides_no_borrower(is_first):
    place = world(nodes=[node("n0")], residents=[resident(2, node="n0")])
    delete_by_force(place, borrowed(4, "n0"))
    room = BorrowedRoom(place, first="n0" if is_first else None)
    assert room.node_for(assess(pod(6), ALICE, place)) is None, "no eviction makes that sooner"
    place.set_pod(borrowed(4, "n0"))
    room = BorrowedRoom(place, first="n0" if is_first else None)
    assert room.node_for(assess(pod(6), ALICE, place)) == "n0", "it would wait for the borrower, too"
