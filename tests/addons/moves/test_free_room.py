"""What is free on single nodes."""

from dataclasses import replace

from tests.addons.moves.made import fleet, movable
from tests.core.support.make import GPU, node
from webhook.addons.moves.candidates import free_room
from webhook.core.model.policy import BUILT_IN_RESOURCES


def test_nodes_are_counted_by_what_is_free_on_them():
    pod = movable("a", 3, on="n1")
    there = fleet([4, 4, 4], [(pod.node, pod.victim.demand, pod.uid)])
    there.set(replace(node("closed", gpus=8), is_cordoned=True))
    found = free_room(there, BUILT_IN_RESOURCES, among=there.open_bits)
    assert found.nodes == {GPU: {4: 2, 1: 1}}
    assert found.largest(GPU) == 4
