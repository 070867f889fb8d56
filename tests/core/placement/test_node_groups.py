"""Nodes grouped by labels: kept by events, as if all were read again."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import node
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.node_labels import NO_GROUP

KEYS = ("rack", "zone")
LABELS = st.fixed_dictionaries({}, optional={"rack": st.sampled_from("ab"), "zone": st.sampled_from("xy")})
CHANGES = st.lists(st.tuples(st.integers(0, 3), LABELS | st.none()), max_size=20)


def by_name(fleet):
    groups = fleet.groups(KEYS)
    found = {}
    for each in fleet.nodes():
        slot = fleet.bit(each.name).bit_length() - 1
        number = groups.ids[slot] if slot < len(groups.ids) else NO_GROUP
        assert bool(groups.bits >> slot & 1) == (number != NO_GROUP)
        found[each.name] = None if number == NO_GROUP else groups.paths[number]
    return found


@given(CHANGES)
def test_after_any_events_each_node_is_in_the_group_of_its_labels(changes):
    fleet = Fleet()
    for number, labels in changes:
        if labels is None:
            fleet.remove(f"n{number}")
        else:
            fleet.set(node(f"n{number}", labels=labels))
        want = {
            each.name: (each.labels["rack"], each.labels.get("zone")) if "rack" in each.labels else None
            for each in fleet.nodes()
        }
        assert by_name(fleet) == want
        assert fleet.groups(KEYS).bits.bit_count() == sum(path is not None for path in want.values())


def test_keys_that_no_node_has_are_not_remembered():
    fleet = Fleet()
    fleet.set(node("n0", labels={"rack": "a"}))
    for number in range(1000):
        assert fleet.groups((f"key-{number}",)).bits == 0
    assert fleet.groups(("rack",)) is fleet.groups(("rack",))


def test_groups_that_are_empty_are_forgotten():
    fleet = Fleet()
    for number in range(1000):
        fleet.set(node("n0", labels={"rack": f"r{number}"}))
        assert by_name(fleet) == {"n0": (f"r{number}", None)}
    assert len(fleet.groups(KEYS).paths) < 100
