"""A node whose promised room a scheduler does not use is closed to pods of the same controller, until it changes."""

import pytest

from tests.core.support.make import ALICE, node, pod, policy, resident
from tests.core.support.outcomes import admitted
from webhook.core.admission.admission import admit
from webhook.core.admission.unplaced import without_room
from webhook.core.model.amounts import Namespace, NodeName
from webhook.core.model.constraints import Operator
from webhook.core.model.decision import Admit, Queue
from webhook.core.model.pod import NamespaceFacts, Obstacle, Owner, Unbound
from webhook.core.placement.unused_nodes import CLOSED_SECONDS, MOST, PATIENCE_SECONDS, TIDY_SECONDS
from webhook.core.world.world import World

NOW = 1_000_000
WEB, OTHER = Owner("ReplicaSet", "web"), Owner("ReplicaSet", "other")
N0 = NodeName("n0")


def waiting(uid="w", *, owner=WEB, on="n0", obstacle=Obstacle.ROOM, count=1, **more):
    """A pod with a decision for a node, which its scheduler does not place."""
    return resident(count, uid=uid, namespace="team-a", node=None, **more)._replace(
        owner=owner, promised=NodeName(on), unbound=Unbound(obstacle)
    )


def place_of(*pods, seconds=PATIENCE_SECONDS):
    """A live world after the scheduler had so long for the pods."""
    place = World(policy(), is_live=True)
    for number in range(2):
        place.set_node(node(f"n{number}", gpus=8, labels={"kubernetes.io/hostname": f"n{number}"}))
    for name in ("team-a", "team-b"):
        place.set_namespace(NamespaceFacts(Namespace(name)))
    place.tick(NOW)
    for each in pods:
        place.set_pod(each)
    place.tick(NOW + seconds)
    return place


def closed(place, *, owner=WEB, count=1):
    asked = pod(count, namespace="team-a")._replace(owner=owner)
    slots = place.rejecting_nodes.avoided("team-a", asked, place.fleet).closed
    return place.fleet.names_of(slots)


def test_the_next_pod_of_the_controller_is_sent_elsewhere():
    assert closed(place_of(waiting())) == ["n0"]


@pytest.mark.parametrize(
    ("seen", "seconds", "asked"),
    [
        pytest.param({}, PATIENCE_SECONDS, {"owner": OTHER}, id="a pod of another controller"),
        pytest.param({}, PATIENCE_SECONDS, {"owner": None}, id="a pod without a controller"),
        pytest.param({}, PATIENCE_SECONDS, {"count": 2}, id="a pod that asks for something else"),
        pytest.param({}, PATIENCE_SECONDS - 1, {}, id="a pod that its scheduler had little time for"),
        pytest.param({"obstacle": Obstacle.GATE}, PATIENCE_SECONDS, {}, id="a pod that a gate holds back"),
        pytest.param({"obstacle": Obstacle.NODES}, PATIENCE_SECONDS, {}, id="a pod for which no node is there"),
    ],
)
def test_it_stays_open(seen, seconds, asked):
    assert closed(place_of(waiting(**seen), seconds=seconds), **asked) == []


def test_pods_of_a_stateful_set_have_volumes_of_their_own():
    owner = Owner("StatefulSet", "db")
    assert closed(place_of(waiting(owner=owner)), owner=owner) == []


def test_a_pod_that_starts_there_opens_it():
    place = place_of(waiting())
    place.set_pod(resident(1, uid="w2", namespace="team-a", node="n0")._replace(owner=WEB))
    assert closed(place) == []


def test_what_changes_on_the_node_opens_it():
    place = place_of(waiting(), resident(1, uid="x", namespace="team-b", node="n0"))
    assert closed(place) == ["n0"]
    place.remove_pod("x")
    place.tick(NOW + PATIENCE_SECONDS + TIDY_SECONDS)
    assert closed(place) == []
    place.tick(NOW + 2 * PATIENCE_SECONDS + TIDY_SECONDS)
    assert closed(place) == ["n0"], "its scheduler has tried it again"


def test_it_stays_closed_for_a_while_after_the_pod_was_replaced():
    place = place_of(waiting())
    place.remove_pod("w")
    place.tick(NOW + PATIENCE_SECONDS + CLOSED_SECONDS - 1)
    assert closed(place) == ["n0"]
    place.tick(NOW + PATIENCE_SECONDS + CLOSED_SECONDS + TIDY_SECONDS)
    assert closed(place) == []


def test_no_number_of_controllers_fills_the_memory():
    pods = [waiting(f"w{number}", owner=Owner("Job", f"j{number}")) for number in range(2 * MOST)]
    place = place_of(*pods)
    assert sum(place.rejecting_nodes.unused.has(each) for each in pods) == MOST


def decided(place, *, owner=WEB, **more):
    return admit(pod(1, namespace="team-a")._replace(owner=owner, **more), ALICE, place)


def test_while_only_such_a_node_has_room_the_next_pod_waits_in_line_uncharged():
    place = place_of(waiting(), resident(8, uid="x", namespace="team-b", node="n1"))
    decision = decided(place)
    assert isinstance(decision, Queue)
    want = "kube-scheduler finds no room on node n0 for such pods, and Fairgate cannot see why"
    assert want in without_room(decision.reason).text
    assert isinstance(decided(place, owner=OTHER), Admit), "others start there"


def test_a_pod_whose_nodes_are_only_preferred_is_kept_off_it():
    decision = decided(place_of(waiting()), has_open_constraints=True)
    assert admitted(decision).node_choice.nodes[0] == "n1"
    (term,) = admitted(decision).node_choice.pool_terms
    assert [(each.key, each.operator, each.values) for each in term] == [
        ("kubernetes.io/hostname", Operator.NOT_IN, ("n0",))
    ]


def test_a_node_that_is_full_is_no_riddle():
    place = place_of(waiting(), resident(7, uid="x", namespace="team-b", node="n0"))
    assert closed(place) == []
