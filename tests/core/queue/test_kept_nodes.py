"""The nodes that back-fill leaves alone."""

import random

from webhook.core.line.entries import KeepableNode, kept_nodes

ROOMS = [KeepableNode("n1", 2, 8), KeepableNode("n2", 5, 8), KeepableNode("n3", 3, 4)]


def test_the_node_is_kept_where_the_least_is_missing():
    assert kept_nodes([8], ROOMS) == {"n2"}
    assert kept_nodes([4], [*ROOMS, KeepableNode("n4", 0, 4)]) == {"n2"}


def test_the_smaller_of_equal_nodes_then_the_first_by_name():
    assert kept_nodes([4], [KeepableNode("n1", 3, 8), KeepableNode("n3", 3, 4), KeepableNode("n2", 3, 4)]) == {"n2"}


def test_a_gang_keeps_the_nodes_where_its_pods_miss_least():
    assert kept_nodes([4, 4], ROOMS) == {"n2", "n3"}
    assert kept_nodes([2, 2, 1], ROOMS) == {"n1", "n3"}


def test_nothing_is_kept_where_it_could_never_fit():
    assert kept_nodes([9], ROOMS) == frozenset()
    assert kept_nodes([8, 8, 8], ROOMS) == frozenset()


def test_what_was_kept_stays_kept_while_it_is_large_enough():
    assert kept_nodes([8], ROOMS, before=frozenset({"n1"})) == {"n1"}
    assert kept_nodes([8], ROOMS, before=frozenset({"n3"})) == {"n2"}
    assert kept_nodes([8], ROOMS, before=frozenset({"gone"})) == {"n2"}


def test_the_order_of_nodes_makes_no_difference():
    rooms = [KeepableNode(f"n{n}", n % 3, 4 + n % 2 * 4) for n in range(9)]
    found = {kept_nodes([4, 3, 2], random.Random(seed).sample(rooms, 9)) for seed in range(20)}
    assert len(found) == 1
