"""What domains hold, in one pass over the nodes, and which is the best."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, gpus, node, world
from tests.examples import examples
from webhook.core.model.constraints import NO_CONSTRAINTS, DomainLevel, Operator, Requirement
from webhook.core.placement.domains import EmptyRoom, EqualPods, FreeRoom, cluster_room, domain_of, domain_rooms
from webhook.core.placement.fleet import Fleet

RACK = DomainLevel("rack")
NESTED = DomainLevel("rack", ("zone",))
SMALL = {"cpu": 1000, "memory": 1}


def fleet_of(**racks):
    """Nodes of eight GPUs by rack: how many are free on each."""
    fleet = Fleet()
    fleet.track(GPU)
    number = 0
    for rack, free in racks.items():
        for each in free:
            name = f"n{number}"
            fleet.set(node(name, gpus=8, labels={"rack": rack}))
            if each < 8:
                fleet.take(name, demand(8 - each, **SMALL))
            number += 1
    return fleet


def kind(fleet, number, size, **more):
    return EqualPods(demand(size, **{**SMALL, **more}), number, fleet.matching(NO_CONSTRAINTS))


def rooms(fleet, *kinds, level=RACK, supply=None):
    found = domain_rooms(fleet, level, kinds, supply or FreeRoom(fleet))
    assert (len(found.enough), len(found.enough) + len(found.small)) == (found.enough_number, found.number)
    return [*found.enough, *found.small]


def held(found):
    return [(room.name, room.holds, room.is_enough) for room in found]


def test_of_racks_that_hold_the_pods_the_one_with_the_least_rest_comes_first():
    fleet = fleet_of(a=[8, 8, 8], b=[8, 8], c=[4, 4, 4])
    found = rooms(fleet, kind(fleet, 2, 8))
    assert held(found) == [("rack=b", 2, True), ("rack=a", 3, True), ("rack=c", 0, False)]
    found = rooms(fleet, kind(fleet, 3, 4))
    assert held(found) == [("rack=c", 3, True), ("rack=b", 4, True), ("rack=a", 6, True)]


def test_of_racks_that_are_too_small_the_largest_comes_first_and_ties_go_by_name():
    fleet = fleet_of(b=[8], a=[8], c=[8, 8])
    assert held(rooms(fleet, kind(fleet, 3, 8))) == [("rack=c", 2, False), ("rack=a", 1, False), ("rack=b", 1, False)]


def test_gpus_in_pieces_too_small_for_a_pod_do_not_count():
    fleet = fleet_of(a=[4, 4, 4, 4], b=[8])
    assert held(rooms(fleet, kind(fleet, 1, 8))) == [("rack=b", 1, True), ("rack=a", 0, False)]


def test_pods_of_several_kinds_share_what_a_rack_has():
    fleet = fleet_of(a=[8], b=[8, 2])
    large, small = kind(fleet, 1, 8), kind(fleet, 2, 1)
    assert held(rooms(fleet, large, small)) == [("rack=b", 3, True), ("rack=a", 2, False)]


def test_racks_of_one_name_in_two_zones_are_two_racks():
    fleet = Fleet()
    fleet.track(GPU)
    for number, (zone, rack) in enumerate([("z1", "r1"), ("z2", "r1"), ("z2", "r2"), (None, "r3")]):
        labels = {"rack": rack} | ({} if zone is None else {"zone": zone})
        fleet.set(node(f"n{number}", gpus=8, labels=labels))
    found = rooms(fleet, kind(fleet, 2, 8), level=NESTED)
    assert sorted(room.name for room in found) == ["rack=r1,zone=z1", "rack=r1,zone=z2", "rack=r2", "rack=r3"]
    one = next(room for room in found if room.name == "rack=r1,zone=z2")
    assert one.requirements == (Requirement("rack", Operator.IN, ("r1",)), Requirement("zone", Operator.IN, ("z2",)))
    assert fleet.names_of(fleet.meeting(one.requirements)) == ["n1"]
    assert all(room.holds == 1 for room in found)


def test_what_is_empty_counts_nodes_that_are_full_and_closed():
    fleet = fleet_of(a=[0, 0], b=[8])
    fleet.set(node("n1", gpus=8, labels={"rack": "a"}, is_ready=False))
    asked = kind(fleet, 2, 8)
    assert not rooms(fleet, asked)[0].is_enough
    assert held(rooms(fleet, asked, supply=EmptyRoom(fleet)))[0] == ("rack=a", 2, True)


def test_what_is_empty_counts_devices_that_are_not_offered_now():
    fleet = fleet_of(b=[8])
    for name in ("a0", "a1"):
        fleet.set(node(name, gpus=0, at_best={GPU: 8}, labels={"rack": "a"}))
    asked = kind(fleet, 2, 8)
    assert held(rooms(fleet, asked)) == [("rack=b", 1, False), ("rack=a", 0, False)]
    assert held(rooms(fleet, asked, supply=EmptyRoom(fleet)))[0] == ("rack=a", 2, True)


def test_nodes_without_the_label_and_closed_nodes_are_in_no_domain():
    fleet = fleet_of(a=[8])
    fleet.set(node("bare", gpus=8))
    fleet.set(node("closed", gpus=8, labels={"rack": "a"}, is_ready=False))
    assert held(rooms(fleet, kind(fleet, 1, 8))) == [("rack=a", 1, True)]
    assert domain_of(fleet.get("bare"), RACK) is None
    assert domain_of(fleet.get("n0"), RACK)[0] == "rack=a"
    assert rooms(fleet, kind(fleet, 1, 8), level=DomainLevel("no-such-key")) == []


def test_missing_gpus_are_those_that_are_not_free():
    fleet = fleet_of(a=[2, 0])
    (found,) = rooms(fleet, kind(fleet, 2, 8), supply=EmptyRoom(fleet))
    assert (found.is_enough, found.missing) == (True, gpus(14))


@examples()
@given(
    racks=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), min_size=1, max_size=4),
    size=st.integers(1, 8),
    number=st.integers(1, 6),
)
def test_for_equal_pods_the_count_is_exact(racks, size, number):
    fleet = fleet_of(**{f"r{index}": free for index, free in enumerate(racks)})
    found = {room.name: room for room in rooms(fleet, kind(fleet, number, size))}
    for index, free in enumerate(racks):
        room = found[f"rack=r{index}"]
        assert room.holds == sum(each // size for each in free)
        assert room.is_enough == (room.holds >= number)


@examples()
@given(
    free=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    size=st.integers(1, 4),
    count=st.integers(1, 12),
)
def test_the_whole_cluster_holds_as_many_equal_pods_as_its_nodes_one_by_one(free, size, count):
    fleet = world(nodes=[node(f"n{number}", gpus=gpus) for number, gpus in enumerate(free)]).fleet
    holds = sum(each // size for each in free)
    slots = (1 << len(free)) - 1
    found = cluster_room(fleet, [EqualPods(demand(size, cpu=1, memory=1), count, slots)], EmptyRoom(fleet))
    assert found == (min(count, holds), holds >= count)
