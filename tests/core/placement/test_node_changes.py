"""When nodes changed: never earlier than they did, the latest first."""

from webhook.core.model.amounts import NodeName
from webhook.core.placement.unused_nodes import NodeChanges

A, B = NodeName("a"), NodeName("b")


def test_an_event_has_the_time_of_the_first_tick_after_it():
    changes = NodeChanges()
    changes.tick(100)
    changes.note(A)
    assert list(changes.latest()) == []
    changes.tick(110)
    changes.tick(120)
    assert list(changes.latest()) == [(A, 110)]


def test_a_node_that_changes_again_is_the_latest():
    changes = NodeChanges()
    for at, node in [(1, A), (2, B), (3, A)]:
        changes.note(node)
        changes.tick(at)
    assert list(changes.latest()) == [(A, 3), (B, 2)]


def test_old_changes_are_forgotten():
    changes = NodeChanges()
    changes.note(A)
    changes.tick(1)
    changes.note(B)
    changes.tick(10_000)
    assert list(changes.latest()) == [(B, 10_000)]
