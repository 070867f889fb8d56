"""What is left of nodes beside the pods that come with them."""

from tests.core.support.make import CPU, demand, node, resident, world
from webhook.core.model.pod import Handling

WHOLE = demand(1, cpu=64_000)


def startable(place, wanted=WHOLE):
    return place.fleet.names_of(place.fleet.could_start(wanted, -1 & (1 << len(place.fleet)) - 1))


def daemon(on, **more):
    return resident(0, uid=f"daemon-{on}", tier=None, node=on, demand=demand(0, cpu=100), **more)


def test_a_daemon_leaves_less_than_a_whole_node_and_other_pods_do_not_count():
    place = world(nodes=[node("n0"), node("n1"), node("n2")])
    assert startable(place) == ["n0", "n1", "n2"]
    place.set_pod(daemon("n0", handling=Handling.DAEMON_SET))
    place.set_pod(daemon("n1", handling=Handling.MIRROR))
    place.set_pod(daemon("n2"))
    assert startable(place) == ["n2"]
    place.remove_pod("daemon-n0")
    assert startable(place) == ["n0", "n2"]


def test_a_node_that_comes_after_its_pods_or_is_sorted_has_less_too():
    place = world(nodes=[node("n1")])
    place.set_pod(daemon("n0", handling=Handling.DAEMON_SET))
    place.set_node(node("n0"))
    assert startable(place) == ["n1"]
    place.sort_nodes()
    assert startable(place) == ["n1"]
    place.remove_pod("daemon-n0")
    assert startable(place) == ["n0", "n1"]


def test_a_node_whose_devices_are_away_could_start_what_it_has_at_its_best():
    offered = node("n0", gpus=0)
    place = world(nodes=[node("n1", gpus=0), node("n0", gpus=0)])
    assert startable(place) == []
    at_best = dict.fromkeys(dict(WHOLE.devices), 10)
    place.set_node(type(offered)(offered.name, offered.allocatable, at_best=at_best))
    assert startable(place) == ["n0"]
    place.set_pod(daemon("n0", handling=Handling.DAEMON_SET))
    assert startable(place) == []
    assert startable(place, demand(1, cpu=63_900)) == ["n0"]
    assert CPU in dict(WHOLE.requests)
