from collections import Counter

import pytest

from tests.core.support.make import demand, node
from webhook.core.model.amounts import NodeName, ResourceName
from webhook.core.placement.best_nodes import best_nodes, distant_slots, with_distant
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import DemandMix

RACK = 16


def fleet(count: int) -> Fleet:
    made = Fleet(DemandMix())
    for number in range(count):
        made.set(node(f"n{number:03}", gpus=8))
    return made


def every(count: int) -> int:
    return (1 << count) - 1


def listed(found: Fleet, *best: str, count: int = 4, among: int | None = None) -> tuple[str, ...]:
    names = tuple(map(NodeName, best))
    return with_distant(found, demand(1), every(200) if among is None else among, names, count=count)


def test_distant_nodes_follow_the_best_ones_in_their_order():
    found = listed(fleet(200), "n100", "n101")
    assert found[:2] == ("n100", "n101")
    assert len(set(found)) == 4
    assert all(abs(int(name[1:]) - 100) > RACK for name in found[2:])


@pytest.mark.parametrize("first", [0, 7, 100, 199])
def test_no_fallback_is_lost_with_the_rack_of_the_first(first):
    assert all(abs(slot - first) > RACK for slot in distant_slots(every(200), first, 3))


def test_where_all_nodes_with_room_are_near_they_are_fallbacks_all_the_same():
    assert sorted(distant_slots(every(4) & ~1, 0, 3)) == [1, 2, 3]
    assert sorted(distant_slots(0b1100, 0, 3)) == [2, 3], "no more than there are"
    assert distant_slots(0, 0, 3) == []


def test_the_only_distant_node_comes_before_near_ones():
    assert distant_slots(1 << 150 | every(9), 0, 2)[0] == 150


def test_the_pods_of_a_rack_have_different_fallbacks():
    chosen = [tuple(distant_slots(every(500), first, 2)) for first in range(64, 64 + RACK)]
    assert [max(Counter(slots).values()) for slots in zip(*chosen, strict=True)] == [1, 1]


@pytest.mark.parametrize("listed_nodes", [0, 2, 4, 7])
def test_fallbacks_listed_with_the_best_nodes_are_the_same_as_those_added_later(listed_nodes):
    found = fleet(100)
    found.track(ResourceName("nvidia.com/gpu"))
    for number in range(0, 100, 3):
        found.take(NodeName(f"n{number:03}"), demand(number % 9))
    best = best_nodes(found, demand(1), every(90), count=2)
    want = with_distant(found, demand(1), every(90), best, count=listed_nodes)
    assert best_nodes(found, demand(1), every(90), count=2, listed=listed_nodes) == want
    assert len(want) == max(2, listed_nodes)


def test_a_node_without_room_is_no_fallback():
    found = fleet(40)
    full = [f"n{number:03}" for number in range(20, 39)]
    for name in full:
        found.take(NodeName(name), demand(8))
    assert not set(full) & set(listed(found, "n000", "n001"))


def test_only_the_given_slots_and_open_nodes_are_fallbacks():
    found = fleet(40)
    found.set(node("n039", gpus=8, is_cordoned=True))
    assert set(listed(found, "n000", among=1 | 0b111 << 37)) == {"n000", "n037", "n038"}


def test_without_a_best_node_or_with_enough_of_them_nothing_is_added():
    assert listed(fleet(4)) == ()
    assert listed(fleet(4), "n000", "n001", count=2) == ("n000", "n001")
